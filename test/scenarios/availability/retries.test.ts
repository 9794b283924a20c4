import { describe, expect, test } from '@jest/globals';
import { outcomeOf, useAvailability } from '../../support/availability-scene.ts';
import { useClosing } from '../../support/closing.ts';
import { startGateway } from '../../support/gateway.ts';
import { startRawUpstream } from '../../support/raw-upstream.ts';

const start = useAvailability();
const closing = useClosing();
/** High enough that no circuit opens here. */
const circuit = { minimum: 1_000_000 };
const retries = (reason: string) =>
  ['digest_gateway_retries_total', { deployment: 'submissions', reason }] as const;

describe('a request whose connection broke before the response began', () => {
  test('is sent again as often as retry.attempts says', async () => {
    for (const attempts of [0, 1, 3]) {
      const scene = await start({ settings: { circuit, retry: { attempts } } });
      await scene.relays[0]?.set('resetting');
      expect(await scene.outcomes(1)).toEqual(['502 upstream-unreachable']);
      expect(scene.relays[0]?.connections).toBe(1 + attempts);
      expect(await scene.gateway.metric(...retries('connection_broke'))).toBe(attempts);
    }
  });

  test('is sent again once after an idle connection, whatever the settings', async () => {
    const scene = await start({ settings: { circuit, retry: { attempts: 0 } } });
    expect(await scene.outcomes(1)).toEqual(['200']);
    await scene.relays[0]?.set('resetting');
    expect(await scene.outcomes(1)).toEqual(['502 upstream-unreachable']);
    expect(await scene.gateway.metric(...retries('stale_connection'))).toBe(1);
    expect(scene.relays[0]?.connections).toBe(2);
  });

  test('is not sent again if it is a POST', async () => {
    const scene = await start({ settings: { circuit } });
    await scene.relays[0]?.set('resetting');
    expect(await outcomeOf(await scene.get('/echo', { method: 'POST', body: 'x' }))).toBe(
      '502 upstream-unreachable',
    );
    expect(scene.relays[0]?.connections).toBe(1);
  });

  test('is sent again within the budget of all requests only', async () => {
    const scene = await start({ settings: { circuit } });
    await scene.relays[0]?.set('resetting');
    expect(await scene.outcomes(40)).toEqual(Array(40).fill('502 upstream-unreachable'));
    expect(scene.relays[0]?.connections).toBe(40 + 30);
    expect(await scene.gateway.metric(...retries('connection_broke'))).toBe(30);
    expect(await scene.gateway.metric(...retries('denied'))).toBe(10);
    scene.advance(10_000);
    await scene.outcomes(1);
    expect(scene.relays[0]?.connections).toBe(70 + 2);
  });
});

describe('a request whose connection broke after the first byte of a response', () => {
  test.each([
    ['an interim response', 'HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n'],
    ['the start of a head', 'HTTP/1.1 200 OK\r\n'],
    ['one byte', 'H'],
  ])('is not sent again: %s', async (_what, begun) => {
    let requests = 0;
    const upstream = await startRawUpstream(() => {
      requests += 1;
      return { text: begun, end: true };
    });
    closing.push(() => upstream.close());
    const settings = { tls: { allowPlaintext: true }, health: { interval: 'off' } };
    const gateway = await startGateway({ submissions: { origin: upstream.origin, settings } });
    closing.push(() => gateway.close());
    expect(await outcomeOf(await fetch(`${gateway.origin}/`))).toBe('502 upstream-unreachable');
    expect(requests).toBe(1);
  });
});
