import { hash } from 'node:crypto';
import { Socket } from 'node:net';
import { describe, expect, test } from '@jest/globals';
import { GatewayError } from '../../src/base/errors.ts';
import { Network } from '../../src/base/network.ts';
import { runAtOnce } from '../../src/base/steps.ts';
import type { ClientDescription } from '../../src/identity/client-index.ts';
import { Identification } from '../../src/identity/identification.ts';
import { Tokens } from '../../src/identity/tokens.ts';

const ENDS = Date.parse('2027-03-01T00:00:00Z');
const key = (secret: string, more: object = {}) => ({ sha256: hash('sha256', secret), ...more });
const clients: ClientDescription[] = [
  {
    id: 'reporting',
    allow: [],
    identify: {
      apiKeys: [key('old', { expires: ENDS, note: 'Berlin' }), key('new')],
      apiKeySha256: [hash('sha256', 'plain')],
    },
  },
  {
    id: 'near',
    allow: [],
    identify: { addresses: [Network.parse('10.0.0.0/8')], apiKeys: [key('far', { expires: ENDS })] },
  },
];

let now = 0;
const refusals: string[] = [];
const identification = runAtOnce(
  Identification.build(
    { clients, anonymous: true, trustedProxies: [], forwardedHeader: 'X-Forwarded-For' },
    { tokens: new Tokens([], () => {}), onRefusal: (proof) => refusals.push(proof), now: () => now },
  ),
);

/** Whom a request with these fields is from at a time; the error if it is refused. */
async function identified(at: number, ...headers: string[]): Promise<string | GatewayError> {
  now = at;
  try {
    const { client, refusal } = await identification.identify(new Socket(), headers);
    return refusal ?? client.id;
  } catch (error) {
    if (error instanceof GatewayError) return error;
    throw error;
  }
}

test.each([
  ['old', 'Berlin'],
  ['new', hash('sha256', 'new').slice(0, 8)],
  ['plain', hash('sha256', 'plain').slice(0, 8)],
])('the caller has the name of its key: %s', async (secret, name) => {
  now = 0;
  const socket = new Socket();
  const callers = [];
  for (const each of [secret, 'new', secret]) {
    callers.push(await identification.identify(socket, ['X-Api-Key', each]));
  }
  const other = hash('sha256', 'new').slice(0, 8);
  expect(callers.map(({ key }) => key)).toEqual([name, other, name]);
  expect(await identification.identify(socket, [])).toMatchObject({ client: { id: 'anonymous' }, key: '' });
});

const basic = (id: string, secret: string) => `Basic ${Buffer.from(`${id}:${secret}`).toString('base64')}`;

describe('an API key with an end', () => {
  test.each([
    ['as X-Api-Key', ['X-Api-Key', 'old']],
    ['as password of Basic', ['Authorization', basic('reporting', 'old')]],
  ])('holds until its end and not from then on, %s', async (_title, fields) => {
    expect(await identified(ENDS - 1, ...fields)).toBe('reporting');
    refusals.length = 0;
    expect(await identified(ENDS, ...fields)).toMatchObject({
      code: 'client-key-expired',
      detail:
        'The API key Berlin of the client reporting ended 2027-03-01. Send another key of the client, or ask the operator of this gateway for one.',
    });
    expect(refusals).toEqual(['api-key']);
    expect(await identification.identify(new Socket(), fields)).toMatchObject({
      client: { id: 'reporting' },
      key: 'Berlin',
    });
    expect(await identified(ENDS - 1, ...fields)).toBe('reporting');
  });

  test.each(['new', 'plain'])('ends no other key of its client: %s', async (other) => {
    expect(await identified(ENDS, 'X-Api-Key', other)).toBe('reporting');
  });

  test.each([
    ['a wrong key', ['X-Api-Key', 'wrong']],
    ['its hash', ['X-Api-Key', hash('sha256', 'old')]],
    ['the key with the id of another client', ['Authorization', basic('near', 'old')]],
    ['a wrong key with the id of its client', ['Authorization', basic('reporting', 'wrong')]],
    ['the key from elsewhere than its client calls', ['X-Api-Key', 'far']],
  ])('is nothing that who presents %s learns', async (_title, fields) => {
    expect(await identified(ENDS, ...fields)).toMatchObject({ code: 'client-unknown' });
  });
});
