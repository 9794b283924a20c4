import { describe, expect, test } from '@jest/globals';
import { GatewayError } from '../../src/base/errors.ts';
import { decide, type Grant } from '../../src/policy/decide.ts';
import type { Client, Rule } from '../../src/policy/rules.ts';
import { rulesOf } from './world.ts';

const ENDS = Date.parse('2027-03-01T00:00:00Z');
const every = { deployment: 'bare', sites: '*', operations: '*', methods: '*', parameters: [] } as const;
const request = { method: 'GET', target: '/bare/x', headers: [], hasBody: false };

function judged(now: number, ...allow: Rule[]): Grant | GatewayError {
  const client: Client = { id: 'c', allow };
  try {
    return decide(rulesOf('bare'), client, request, now);
  } catch (error) {
    if (error instanceof GatewayError) return error;
    throw error;
  }
}

describe('a rule with an end', () => {
  test('allows until its end, and nothing from then on', () => {
    const rule = { ...every, ends: ENDS };
    expect(judged(ENDS - 1, rule)).toMatchObject({ rule });
    expect(judged(ENDS, rule)).toMatchObject({
      code: 'client-forbidden',
      detail:
        'The client c may not use the deployment bare any more: what allowed it ended 2027-03-01. The operator of this gateway can allow it: see allow in the configuration.',
    });
  });

  test('leaves a request to the rules that have not ended', () => {
    const first = { ...every, credential: 'key-account', ends: ENDS };
    const later = { ...every, ends: ENDS + 1000 };
    const rules = [first, later, every];
    const granted = [ENDS - 1, ENDS, ENDS + 1000].map((now) => judged(now, ...rules));
    expect(granted).toMatchObject([
      { rule: first, credential: 'key-account', credentialRule: 'allow[0]' },
      { rule: later, credential: 'key-bare', credentialRule: '' },
      { rule: every },
    ]);
  });

  test('restricts a request only while it holds', () => {
    const restricted = { ...every, methods: new Set(['POST']), ends: ENDS };
    expect(judged(ENDS - 1, restricted)).toMatchObject({ detail: expect.stringContaining('the method GET') });
    expect(judged(ENDS, restricted)).toMatchObject({ detail: expect.stringContaining('ended 2027-03-01') });
  });
});
