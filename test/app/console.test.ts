import { expect, test } from '@jest/globals';
import { consoleSource } from '../../src/app/console.ts';
import { setupFor } from '../support/gateway.ts';

test('the rules of the map are those that have not ended', async () => {
  const deployment = 'submissions';
  const allow = [{ deployment, ends: '2020-01-01' }, { deployment }, { deployment, ends: '9999-01-01' }];
  const { config } = await setupFor(
    { [deployment]: { origin: 'https://127.0.0.1:9' } },
    { anonymous: false, clients: [{ id: 'reporting', identify: { addresses: ['10.1.0.0/16'] }, allow }] },
  );
  const source = consoleSource({ build: {}, reloads: { active: { config } } } as never);
  expect(source.rules().map(({ path }) => path)).toEqual(['clients[0].allow[1]', 'clients[0].allow[2]']);
});
