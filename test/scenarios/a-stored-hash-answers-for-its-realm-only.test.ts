import { createHash } from 'node:crypto';
import { expect, test } from '@jest/globals';
import { authors, problemOf, startPair } from '../support/simulated-pair.ts';

const REALM = 'ExampleApiService';
const NAMES = { md5: 'md5', sha256: 'sha256', 'sha512-256': 'sha512-256' } as const;

/** The credential of the simulator's account, without its password. */
function stored(hashes: readonly (keyof typeof NAMES)[], realm = REALM): Record<string, unknown> {
  const a1 = `demo-user:${realm}:demo-api-key`;
  const entries = hashes.map((name) => [name, { value: createHash(NAMES[name]).update(a1).digest('hex') }]);
  return { username: { value: 'demo-user' }, ha1: { realm, ...Object.fromEntries(entries) } };
}

test.each([
  ['MD5', ['md5']],
  ['MD5-sess', ['md5']],
  ['SHA-256', ['sha256']],
  ['SHA-256-sess', ['md5', 'sha256']],
  ['SHA-512-256', ['sha512-256']],
] as const)('a challenge of %s is answered', async (algorithm, hashes) => {
  const { simulator, get } = await startPair(
    { algorithms: [algorithm], qop: 'auth' },
    { credential: stored(hashes) },
  );
  for (let count = 0; count < 3; count += 1) expect((await get(authors)).status).toBe(200);
  expect(simulator.counts('submissions').challenges).toBe(1);
});

test('of several challenges, one that there is a hash for is answered', async () => {
  const { get } = await startPair(
    { algorithms: ['SHA-256', 'MD5'], qop: 'auth' },
    { credential: stored(['md5']) },
  );
  expect((await get(authors)).status).toBe(200);
});

test.each([
  ['another realm', stored(['md5'], 'OtherService'), /another realm than that of ha1/],
  ['an algorithm without hash', stored(['sha256']), /asks for MD5, for which ha1 has no hash/],
])('%s is told at once, and the upstream is asked with no answer', async (_title, credential, detail) => {
  const { simulator, get, gateway } = await startPair({}, { credential });
  const answers = await Promise.all(Array.from({ length: 5 }, () => get(authors)));
  for (const answer of answers) {
    const problem = await problemOf(answer);
    expect([problem.status, problem.code, problem.detail]).toEqual([
      503,
      'credential-unavailable',
      expect.stringMatching(detail),
    ]);
    expect(answer.headers.get('retry-after')).toBe('30');
  }
  const { requests, unauthenticated } = simulator.counts('submissions');
  expect(unauthenticated).toBe(requests);
  expect(await gateway.metric('digest_gateway_requests_total', { code: 'credential-unavailable' })).toBe(5);
});
