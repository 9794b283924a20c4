import type { IncomingMessage, ServerResponse } from 'node:http';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { fuzzRuns } from '../support/fuzz.ts';
import { credentialSet, startGateway } from '../support/gateway.ts';
import { type ScriptedUpstream, startUpstream } from '../support/scripted-upstream.ts';

/** The upstream's reaction to an authenticated request, or to one that asks for a challenge. */
const replies = ['200', '401', '401 stale', '401 no digest', '503', '403', 'reset'] as const;
type Reply = (typeof replies)[number];

const POLICIES = ['auto', 'shared', 'exclusive', 'single-use'] as const;
const METHODS = ['GET', 'HEAD', 'PUT', 'POST', 'DELETE'] as const;

interface Script {
  readonly policy: (typeof POLICIES)[number];
  readonly qop: boolean;
  readonly rotates: boolean;
  readonly methods: readonly (typeof METHODS)[number][];
  readonly atOnce: boolean;
  readonly replies: readonly Reply[];
}

const script: fc.Arbitrary<Script> = fc.record({
  policy: fc.constantFrom(...POLICIES),
  qop: fc.boolean(),
  rotates: fc.boolean(),
  methods: fc.array(fc.constantFrom(...METHODS), { minLength: 1, maxLength: 6 }),
  atOnce: fc.boolean(),
  replies: fc.array(fc.constantFrom(...replies), { minLength: 1, maxLength: 24 }),
});

/** Exchanges of one client request, as the upstream sees them. */
interface Attempts {
  answered: number;
  lost: number;
  asked: number;
}

let upstream: ScriptedUpstream;
let current: { readonly replies: Reply[]; readonly qop: boolean; readonly seen: Map<string, Attempts> };
let nonces = 0;

/** Notes what the upstream saw of a client request. */
function note(req: IncomingMessage, next: Reply): void {
  const seen = current.seen.get(String(req.headers['tag']));
  if (seen === undefined) return;
  if (req.headers.authorization === undefined) seen.asked += 1;
  else if (next === 'reset') seen.lost += 1;
  else seen.answered += 1;
}

function challenge(isStale: boolean): string {
  nonces += 1;
  return `Digest realm="r", nonce="n${nonces}"${current.qop ? ', qop="auth"' : ''}${isStale ? ', stale=true' : ''}`;
}

function reply(req: IncomingMessage, res: ServerResponse): void {
  const next = current.replies.shift() ?? '200';
  note(req, next);
  if (next === 'reset') {
    req.socket.destroy();
    return;
  }
  req.resume();
  const isAuthenticated = req.headers.authorization !== undefined;
  const status = isAuthenticated ? Number.parseInt(next, 10) : 401;
  if (status === 401 && next !== '401 no digest') {
    res.setHeader('www-authenticate', challenge(isAuthenticated && next === '401 stale'));
  }
  res.writeHead(status).end();
}

beforeAll(async () => {
  upstream = await startUpstream(reply);
});

afterAll(async () => {
  await upstream.close();
});

/** Sends the requests of a script through a gateway of its own; resolves to what the upstream saw of each. */
async function play({ policy, qop, rotates, methods, atOnce, replies: order }: Script): Promise<Attempts[]> {
  const settings = { tls: { allowPlaintext: true }, digest: { noncePolicy: policy } };
  current = { replies: [], qop, seen: new Map() };
  const gateway = await startGateway({ scripted: { origin: upstream.origin, settings } });
  try {
    // Half of the scripts begin with a credential that was accepted.
    if (order.length % 2 === 0) await (await fetch(`${gateway.origin}/first`)).arrayBuffer();
    if (rotates) gateway.plane.offer(await credentialSet(gateway, 'scripted', 'demo-api-key', 'another'));
    current.replies.push(...order);
    const send = async (method: string, index: number): Promise<void> => {
      const tag = `t${index}`;
      current.seen.set(tag, { answered: 0, lost: 0, asked: 0 });
      const body = method === 'PUT' || method === 'POST' ? { body: 'x' } : {};
      const answer = await fetch(`${gateway.origin}/path`, { method, headers: { tag }, ...body });
      await answer.arrayBuffer();
      expect(answer.status).not.toBe(500);
    };
    if (atOnce) await Promise.all(methods.map(send));
    else for (const [index, method] of methods.entries()) await send(method, index);
  } finally {
    await gateway.close();
  }
  return [...current.seen.values()];
}

test('whatever the upstream says, a client request costs at most two answered authenticated attempts, four in a rotation', async () => {
  await fc.assert(
    fc.asyncProperty(script, async (played) => {
      for (const { answered, lost, asked } of await play(played)) {
        expect(answered).toBeLessThanOrEqual(played.rotates ? 4 : 2);
        // One repeat, which may break as well.
        expect(lost).toBeLessThanOrEqual(2);
        expect(answered + lost).toBeLessThanOrEqual(played.rotates ? 5 : 3);
        expect(asked).toBeLessThanOrEqual(6);
      }
    }),
    { numRuns: fuzzRuns(40), interruptAfterTimeLimit: 60_000 },
  );
});
