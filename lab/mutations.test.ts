import { readFileSync } from 'node:fs';
import { expect, test } from '@jest/globals';
import { repository } from '../test/support/repository.ts';
import { MUTATIONS as ofClients } from './clients/mutations.ts';
import { targets } from './guided/targets.ts';
import { MUTATIONS as ofSimulation } from './simulation/mutations.ts';
import { MUTATIONS as ofUpstreams } from './upstreams/mutations.ts';

const ofGuided = targets.flatMap(({ mutations }) => mutations);

test.each([...ofSimulation, ...ofClients, ...ofUpstreams, ...ofGuided])(
  'the text that $name changes is in its file once',
  ({ file, find }) => {
    expect(readFileSync(`${repository}/${file}`, 'utf8').split(find)).toHaveLength(2);
  },
);
