import { hash } from 'node:crypto';
import { describe, expect, test } from '@jest/globals';
import { basic, requestsOf } from '../../support/client-call.ts';
import { openScene } from '../../support/scene.ts';
import { codeOf, connect, useRunning } from '../../support/wire.ts';

const KEY = 'dgk_0123456789abcdef0123456789abcdef01234567';
const OTHER = 'dgk_ffffffffffffffffffffffffffffffffffffffff';
const KEYED = basic('keyed', KEY);
const ENDED = 'dgk_eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee';
const allow = [{ deployment: 'submissions' }];
const keyed = { id: 'keyed', identify: { apiKeySha256: hash('sha256', KEY) }, allow };
const apiKeys = [
  { sha256: hash('sha256', ENDED), expires: '2026-01-31', note: 'Berlin' },
  { sha256: hash('sha256', 'another'), expires: '9999-12-31T23:59:59Z' },
];
const ending = { id: 'ending', identify: { apiKeys }, allow };
const other = { id: 'other', identify: { apiKeySha256: hash('sha256', OTHER) }, allow };
const near = { id: 'near', identify: { addresses: ['127.0.0.0/8'] }, allow };
const jwt = { issuer: 'https://issuer.invalid/', audience: 'gateway' };
const bearer = { id: 'bearer', identify: { jwt }, allow };

const known = useRunning(() =>
  openScene({ top: { anonymous: false, clients: [near, keyed, other, ending] } }),
);
const anonymous = useRunning(() => openScene({ top: { anonymous: true, clients: [keyed, other] } }));
const tokens = useRunning(() =>
  openScene({
    top: {
      clients: [near, bearer],
      jwt: { issuers: [{ issuer: jwt.issuer, jwksUrl: 'http://127.0.0.1:1/keys' }] },
    },
  }),
);

/** The client that a request with these fields is served as; the code if it is refused. */
async function outcomeOf({ gateway }: ReturnType<typeof known>, ...fields: string[]): Promise<string> {
  const ids = ['near', 'keyed', 'other', 'bearer', 'ending', 'anonymous'];
  const counts = () => Promise.all(ids.map((id) => requestsOf(gateway, id)));
  const before = await counts();
  const client = await connect(gateway.port);
  await client.send(`${['GET /echo HTTP/1.1', 'Host: a', ...fields].join('\r\n')}\r\n\r\n`);
  const answer = await client.answer();
  if (answer.status !== 200) return `${answer.status} ${codeOf(answer)}`;
  const after = await counts();
  return ids.filter((_, index) => after[index] !== before[index]).join();
}

describe('a request that presents an identity', () => {
  const REFUSED = [
    ['a wrong API key', 'X-Api-Key: dgk_wrong'],
    ['an empty API key', 'X-Api-Key:'],
    ['an API key twice', `X-Api-Key: ${KEY}`, `X-Api-Key: ${KEY}`],
    ['a wrong API key behind the right one', `X-Api-Key: ${KEY}`, 'X-Api-Key: dgk_wrong'],
    ['Basic with a wrong key', `Authorization: ${basic('keyed', 'wrong')}`],
    ['Basic with the key of another client', `Authorization: ${basic('keyed', OTHER)}`],
    ['Basic with an unknown id', `Authorization: ${basic('nobody', KEY)}`],
    ['Basic for the proxy with a wrong key', `Proxy-Authorization: ${basic('keyed', 'wrong')}`],
    ['Basic twice', `Authorization: ${KEYED}`, `Authorization: ${KEYED}`],
    ['Basic behind another scheme', 'Authorization: Digest a="b"', `Authorization: ${KEYED}`],
    ['Basic in a list', `Authorization: Digest a="b", ${KEYED}`.replace('Digest a="b", ', 'Basic eA==, ')],
    ['Basic without padding', `Authorization: ${KEYED.replace(/=+$/, '')}`],
    ['Basic with more padding', `Authorization: ${KEYED}=`],
    ['Basic with a byte that is no base64', `Authorization: ${KEYED.replace('Basic ', 'Basic !')}`],
    ['Basic with a space inside', `Authorization: ${KEYED.replace('Basic a', 'Basic a ')}`],
    ['Basic after a tab', `Authorization: ${KEYED.replace(' ', '\t')}`],
    ['Basic with bits beyond its end', `Authorization: ${basic('k', KEY).replace(/.=*$/, '')}`],
    ['Basic without credentials', 'Authorization: Basic'],
    ['Basic without a colon', `Authorization: Basic ${Buffer.from('keyed').toString('base64')}`],
    ['no scheme', 'Authorization:'],
    [
      'a right key beside the one of another client',
      `X-Api-Key: ${KEY}`,
      `Authorization: ${basic('other', OTHER)}`,
    ],
    [
      'a right key beside a wrong one',
      `X-Api-Key: ${KEY}`,
      `Proxy-Authorization: ${basic('keyed', 'wrong')}`,
    ],
    ['a wrong key beside a right one', 'X-Api-Key: dgk_wrong', `Authorization: ${KEYED}`],
    [
      'a wrong key for the proxy beside a right one',
      `Proxy-Authorization: ${basic('x', 'y')}`,
      `Authorization: ${KEYED}`,
    ],
  ] as const;

  test.each(REFUSED)('is refused with %s, also from an address of a client', async (_title, ...fields) => {
    expect(await outcomeOf(known(), ...fields)).toBe('401 client-unknown');
  });

  test.each(REFUSED)('is refused with %s where anonymous clients are served', async (_title, ...fields) => {
    expect(await outcomeOf(anonymous(), ...fields)).toBe('401 client-unknown');
  });

  test.each([
    ['near', []],
    ['keyed', [`X-Api-Key: ${KEY}`]],
    ['ending', ['X-Api-Key: another']],
    ['other', [`Authorization: ${basic('other', OTHER)}`]],
    ['keyed', [`Proxy-Authorization: ${KEYED.replace('Basic', 'bASIC')}`]],
    // Schemes by which the gateway knows nobody are meant for somebody else.
    ['near', ['Authorization: Digest username="a"']],
    ['near', ['Authorization: Bearer abc']],
    ['keyed', [`X-Api-Key: ${KEY}`, 'Authorization: Bearer abc']],
  ])('is served as %s with %j, whichever client comes first', async (client, fields) => {
    expect(await outcomeOf(known(), ...fields)).toBe(client);
  });

  test.each([
    ['X-Api-Key', `X-Api-Key: ${ENDED}`],
    ['Basic', `Authorization: ${basic('ending', ENDED)}`],
  ])('is told when its API key has ended: %s', async (_title, field) => {
    const client = await connect(known().gateway.port);
    await client.send(`${['GET /echo HTTP/1.1', 'Host: a', field].join('\r\n')}\r\n\r\n`);
    const answer = await client.answer();
    expect([answer.status, codeOf(answer)]).toEqual([401, 'client-key-expired']);
    expect(JSON.parse(answer.body.toString())).toMatchObject({
      detail: expect.stringMatching(/^The API key Berlin of the client ending ended 2026-01-31\. Send /),
    });
    expect(answer.headers).toContainEqual(['proxy-status', 'digest-gateway; error=http_request_denied']);
  });

  test('has the end of its API key in the metrics, under its note or the first digits of its hash', async () => {
    const name = 'digest_gateway_client_key_expiry_timestamp_seconds';
    const ends = apiKeys.map(({ sha256, expires, note = sha256.slice(0, 8) }) => [
      note,
      Date.parse(expires) / 1000,
    ]);
    for (const [key, end] of ends) {
      expect(await known().gateway.metric(name, { client: 'ending', key: String(key) })).toBe(end);
    }
    expect(await known().gateway.metric(name, { client: 'keyed' })).toBe(0);
  });

  test.each([
    ['a token of nobody', 'Authorization: Bearer abc'],
    ['what is no token', 'Authorization: Bearer a b'],
    ['two tokens', 'Authorization: Bearer abc', 'Proxy-Authorization: Bearer abc'],
    ['Bearer without a token', 'Authorization: Bearer'],
  ])('is refused with %s where tokens are accepted', async (_title, ...fields) => {
    expect(await outcomeOf(tokens(), ...fields)).toBe('401 client-unknown');
    expect(await outcomeOf(tokens())).toBe('near');
  });
});
