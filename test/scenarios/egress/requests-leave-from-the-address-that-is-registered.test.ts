import { describe, expect, test } from '@jest/globals';
import { authors, type Pair, problemOf, startPair } from '../../support/simulated-pair.ts';

const REGISTERED = '127.0.0.2';
/** TEST-NET-1, RFC 5737: nobody's. */
const ELSEWHERE = '192.0.2.1';

const from = (localAddress: string): Record<string, unknown> => ({ egress: { localAddress } });

interface Readiness {
  readonly status: string;
  readonly checks: readonly { readonly name: string; readonly ok: boolean; readonly detail: string }[];
}

async function readinessOf({ gateway }: Pair): Promise<{ http: number; status: string; detail: string }> {
  const answer = await fetch(`${gateway.control}/readyz`);
  const { status, checks } = (await answer.json()) as Readiness;
  const detail = checks.find(({ name }) => name === 'deployment:submissions')?.detail ?? 'no such check';
  return { http: answer.status, status, detail };
}

describe('an upstream that knows one address', () => {
  const behaviour = { allowedAddresses: [REGISTERED] };

  test('refuses requests from another, and the client sees it', async () => {
    const { get } = await startPair(behaviour);
    expect((await get(authors)).status).toBe(403);
  });

  test('serves requests from egress.localAddress', async () => {
    const pair = await startPair(behaviour, { settings: from(REGISTERED) });
    expect((await pair.get(authors)).status).toBe(200);
    expect(await readinessOf(pair)).toEqual({ http: 200, status: 'ready', detail: '' });
    expect(
      await pair.gateway.metric('digest_gateway_egress_address_present', { deployment: 'submissions' }),
    ).toBe(1);
  });
});

test('an address that is not on this host: it starts, says so everywhere, and nothing leaves from elsewhere', async () => {
  const pair = await startPair({}, { settings: from(ELSEWHERE) });
  const problem = await problemOf(await pair.get(authors));
  expect(problem).toMatchObject({ status: 502, code: 'upstream-unreachable' });
  expect(problem.detail).toContain('does not have the address');
  expect(problem.detail).not.toContain(ELSEWHERE);
  expect(await readinessOf(pair)).toEqual({
    http: 503,
    status: 'unready',
    detail: 'the address of egress.localAddress is not on this host: add it to an interface',
  });
  const text = await (await fetch(`${pair.gateway.control}/metrics`)).text();
  expect(text).toContain('digest_gateway_egress_address_present{deployment="submissions"} 0');
  expect(pair.gateway.logged[0]).toMatchObject({
    level: 40,
    deployment: 'submissions',
    msg: 'egress.localAddress is not an address of this host; requests fail until it is',
  });
  expect(pair.simulator.counts('submissions').connections).toBe(0);
});

test('without egress.localAddress there is nothing to be present', async () => {
  const { gateway } = await startPair();
  const text = await (await fetch(`${gateway.control}/metrics`)).text();
  expect(text).not.toContain('digest_gateway_egress_address_present{');
});

test('through a proxy the connection to the proxy leaves from it', async () => {
  const proxy = { url: 'http://127.0.0.1:9' };
  const { get } = await startPair({}, { settings: { egress: { localAddress: ELSEWHERE, proxy } } });
  expect((await problemOf(await get(authors))).detail).toContain('does not have the address');
});
