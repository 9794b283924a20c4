import { MUTATIONS } from './clients/mutations.ts';
import { runClients } from './clients/run.ts';
import type { LabPart } from './part.ts';
import { runWirePart } from './wire/wire-part.ts';

/** Messages of a full run. */
const MESSAGES = 300_000;

export const clients: LabPart = {
  name: 'clients',
  description:
    'Messages of clients, valid and not, over sockets to a gateway before an upstream that notes what it gets.',
  run: (options) =>
    runWirePart(options, { name: 'clients', messages: MESSAGES, mutations: MUTATIONS, run: runClients }),
};
