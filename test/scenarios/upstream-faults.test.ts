import { describe, expect, test } from '@jest/globals';
import type { BehaviourChange } from '../../src/simulator/settings.ts';
import { startGateway } from '../support/gateway.ts';
import { authors, problemOf, startScene } from '../support/scene.ts';
import { startUpstream } from '../support/scripted-upstream.ts';

interface Row {
  readonly name: string;
  readonly behaviour: BehaviourChange;
  readonly settings?: Record<string, unknown>;
  readonly wanted: string;
  /** Of Proxy-Status. */
  readonly type: string;
}

const rows: Row[] = [
  {
    name: 'an expired certificate',
    behaviour: { tls: 'expired' },
    wanted: '502 upstream-tls',
    type: 'tls_certificate_error',
  },
  {
    name: 'a certificate of an unknown authority',
    behaviour: { tls: 'foreign' },
    wanted: '502 upstream-tls',
    type: 'tls_certificate_error',
  },
  {
    name: 'a certificate for another host',
    behaviour: { tls: 'wrong-host' },
    wanted: '502 upstream-tls',
    type: 'tls_certificate_error',
  },
  {
    name: 'a reset before the head, twice',
    behaviour: { faults: [{ kind: 'reset-before-head', when: 'authenticated' }] },
    wanted: '502 upstream-unreachable',
    type: 'connection_terminated',
  },
  {
    name: 'an answer that is not HTTP',
    behaviour: { faults: [{ kind: 'garbage', when: 'authenticated' }] },
    wanted: '502 upstream-protocol',
    type: 'http_protocol_error',
  },
  {
    name: 'no answer within timeouts.total',
    behaviour: { faults: [{ kind: 'hang' }] },
    settings: { timeouts: { total: '100ms' } },
    wanted: '504 upstream-timeout',
    type: 'http_response_timeout',
  },
];

describe('a fault before the head of the response:', () => {
  test.each(rows)('$name: $wanted', async ({ behaviour, settings, wanted, type }) => {
    const { get, gateway } = await startScene({ behaviour, settings: settings ?? {} });
    const answer = await get(authors);
    const problem = await problemOf(answer);
    expect(`${answer.status} ${problem.code}`).toBe(wanted);
    expect(answer.headers.get('proxy-status')).toBe(`digest-gateway; error=${type}`);
    const code = wanted.slice(4);
    expect(await gateway.metric('digest_gateway_requests_total', { code, deployment: 'submissions' })).toBe(
      1,
    );
    expect(gateway.logged.flatMap((line) => line['code'] ?? [])).toEqual([code]);
  });

  test('nobody listens: 502 upstream-unreachable', async () => {
    const upstream = await startUpstream(() => {});
    await upstream.close();
    expect(await codeFrom(upstream.origin)).toBe('502 upstream-unreachable connection_refused');
  });

  test('a name that does not exist: 502 upstream-unreachable', async () => {
    expect(await codeFrom('http://upstream.invalid')).toBe('502 upstream-unreachable dns_error');
  });

  test('plain HTTP where TLS is expected: 502 upstream-tls', async () => {
    const upstream = await startUpstream((_req, res) => res.end());
    expect(await codeFrom(upstream.origin.replace('http:', 'https:'))).toBe(
      '502 upstream-tls tls_protocol_error',
    );
    await upstream.close();
  });
});

async function codeFrom(origin: string): Promise<string> {
  const gateway = await startGateway({ broken: { origin, settings: { tls: { allowPlaintext: true } } } });
  const answer = await fetch(`${gateway.origin}/x`);
  const { code } = await problemOf(answer);
  await gateway.close();
  const type = answer.headers.get('proxy-status')?.replace('digest-gateway; error=', '');
  return `${answer.status} ${code} ${type}`;
}

describe('a fault within the body breaks the response off:', () => {
  const faults = [
    { name: 'a reset', fault: { kind: 'reset-in-body', afterBytes: 10_000 } as const },
    { name: 'a Content-Length that is too long', fault: { kind: 'content-length', offBy: 5 } as const },
  ];
  test.each(faults)('$name', async ({ fault }) => {
    const { get, gateway } = await startScene({
      behaviour: { faults: [{ ...fault, when: 'authenticated' }] },
    });
    const outcome = await get('/bytes/100000')
      .then((answer) => answer.arrayBuffer())
      .catch(() => 'broken off');
    expect(outcome).toBe('broken off');
    expect(await gateway.metric('digest_gateway_upstream_attempts_total', { result: 'error' })).toBe(1);
    expect(await gateway.metric('digest_gateway_requests_in_flight')).toBe(0);
  });
});

test('a request that is safe to repeat survives one reset', async () => {
  const { get, gateway } = await startScene({
    behaviour: { faults: [{ kind: 'reset-before-head', times: 1 }] },
  });
  expect((await get(authors)).status).toBe(200);
  expect(await gateway.metric('digest_gateway_upstream_attempts_total', { result: 'error' })).toBe(1);
});

test('a request that is not safe to repeat is never repeated after a reset', async () => {
  const { get, simulator } = await startScene({
    behaviour: {
      faults: [{ kind: 'reset-before-head', times: 1, when: 'authenticated' }],
    },
  });
  const answer = await get('/echo', { method: 'POST', body: 'x' });
  expect((await problemOf(answer)).code).toBe('upstream-unreachable');
  expect(simulator.counts('submissions').accepted).toBe(1);
});

test('an upstream that is down does not fill the log', async () => {
  const { get, gateway } = await startScene({ behaviour: { tls: 'expired' } });
  for (let index = 0; index < 20; index += 1) await get(authors);
  const logged = gateway.logged.map(({ code, msg }) => code ?? msg);
  expect(logged.toSorted()).toEqual([
    'circuit opened: most exchanges with the upstream fail',
    'upstream address failing',
    'upstream-tls',
  ]);
});

test('responses about maintenance and throttling are passed on', async () => {
  const { get, simulator } = await startScene({ behaviour: { faults: [{ kind: 'status', status: 503 }] } });
  expect((await get(authors)).status).toBe(503);
  simulator.set('submissions', { faults: [{ kind: 'throttle', status: 429 }] });
  const throttled = await get(authors);
  expect([throttled.status, throttled.headers.get('retry-after')]).toEqual([429, '60']);
});
