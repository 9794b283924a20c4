import type { LabPart } from './part.ts';
import { MUTATIONS } from './upstreams/mutations.ts';
import { runUpstreams } from './upstreams/run.ts';
import { runWirePart } from './wire/wire-part.ts';

/** Answers of a full run. */
const ANSWERS = 300_000;

export const upstreams: LabPart = {
  name: 'upstreams',
  description:
    'Answers of an upstream, valid and not, over sockets and TLS to a gateway with clients that keep to the rules.',
  run: (options) =>
    runWirePart(options, { name: 'upstreams', messages: ANSWERS, mutations: MUTATIONS, run: runUpstreams }),
};
