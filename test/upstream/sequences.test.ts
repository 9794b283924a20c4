import { readFileSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { describe, expect, test } from '@jest/globals';
import { answer, readChallenges } from '../support/digest-client.ts';
import { startGateway } from '../support/gateway.ts';
import { startUpstream } from '../support/scripted-upstream.ts';

interface Step {
  readonly client_request: number;
  readonly gateway_sends: {
    readonly method: string;
    readonly uri: string;
    readonly cookie: string | null;
    readonly authorization: {
      readonly params: Record<string, { readonly wire: string }>;
      readonly absent: readonly string[];
    } | null;
  };
  readonly upstream_replies: { readonly status: number; readonly headers: readonly [string, string][] };
}

interface Sequence {
  readonly kind: string;
  readonly id: string;
  readonly credentials: { readonly username: string; readonly password: string };
  readonly steps: readonly Step[];
  readonly final: { readonly client_statuses: Record<string, number | string> };
}

const { vectors } = JSON.parse(
  readFileSync(new URL('../vectors/digest-vectors.json', import.meta.url), 'utf8'),
) as { vectors: Sequence[] };
const sequences = vectors.filter(({ kind }) => kind === 'sequence');

const plaintext = { tls: { allowPlaintext: true } };

describe('sequences of the vectors', () => {
  test('are all there', () => expect(sequences).toHaveLength(12));

  test.each(sequences.map((sequence) => [sequence.id, sequence] as const))('%s', async (_id, sequence) => {
    const { steps, credentials, final } = sequence;
    const seen: IncomingMessage[] = [];
    const upstream = await startUpstream((req, res) => {
      // What the gateway asks itself about a refused credential is answered as the last step is.
      const isOwn = req.url === '/';
      const step = isOwn ? steps.at(-1) : steps[seen.length];
      if (!isOwn) seen.push(req);
      for (const [name, value] of step?.upstream_replies.headers ?? []) res.appendHeader(name, value);
      res.writeHead(step?.upstream_replies.status ?? 500).end();
    });
    const gateway = await startGateway({
      vectors: { origin: upstream.origin, settings: plaintext, ...credentials },
    });
    try {
      for (const number of new Set(steps.map(({ client_request }) => client_request))) {
        const { uri, method } = steps.find((step) => step.client_request === number)?.gateway_sends ?? {};
        const { status } = await fetch(`${gateway.origin}${uri}`, { method: method ?? '' });
        const wanted = final.client_statuses[number];
        expect(status).toBe(typeof wanted === 'number' ? wanted : 502);
      }
      expect(seen).toHaveLength(steps.length);
      for (const [index, step] of steps.entries()) expectSent(seen[index], step, sequence);
    } finally {
      await gateway.close();
      await upstream.close();
    }
  });
});

function expectSent(req: IncomingMessage | undefined, step: Step, { credentials }: Sequence): void {
  const { method, uri, cookie, authorization } = step.gateway_sends;
  expect([req?.method, req?.url, req?.headers.cookie ?? null]).toEqual([method, uri, cookie]);
  const sent = req?.headers.authorization;
  if (authorization === null) {
    expect(sent).toBeUndefined();
    return;
  }
  const [parameters] = readChallenges([sent ?? '']);
  if (parameters === undefined) throw new Error('the gateway sent no Digest answer');
  const { response, cnonce: _, ...fixed } = authorization.params;
  for (const [name, { wire }] of Object.entries(fixed)) expect(sent).toContain(`${name}=${wire}`);
  for (const name of authorization.absent) expect(parameters.has(name)).toBe(false);
  expect(response).toBeDefined();
  // The cnonce is the gateway's own, so the response is computed anew, by other code than the gateway's.
  const expected = answer(parameters, {
    method,
    target: uri,
    ...credentials,
    ...(parameters.has('nc') && { nc: Number.parseInt(parameters.get('nc') ?? '', 16) }),
    ...(parameters.has('cnonce') && { cnonce: parameters.get('cnonce') ?? '' }),
  });
  expect(parameters.get('response')).toBe(readChallenges([expected])[0]?.get('response'));
}
