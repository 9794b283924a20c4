import { afterEach, expect, jest, test } from '@jest/globals';
import type { ClientDetailView } from '../../../src/control/client-view.ts';
import { auditOptions, recordsIn, useFolders } from '../../support/audit-log.ts';
import { authors, startScene } from '../../support/scene.ts';
import { setWallClock } from '../../support/wall-clock.ts';

const folder = useFolders();
const DAY_MS = 86_400_000;
afterEach(() => {
  jest.useRealTimers();
});

const WOULD_REFUSE = 'digest_gateway_would_refuse_total';
const LABELS = { client: 'reporting', code: 'client-forbidden' };

/** A gateway whose client may use GET with a credential of its own, and is observed for a day. */
async function observing(client: object = {}) {
  const directory = await folder();
  const until = new Date(Date.now() + DAY_MS).toISOString();
  const scene = await startScene({
    audit: auditOptions(directory),
    credentials: { account: { username: { value: 'demo-user' }, password: { value: 'demo-api-key' } } },
    top: {
      anonymous: false,
      clients: [
        {
          id: 'reporting',
          identify: { addresses: ['127.0.0.0/8'] },
          allow: [{ deployment: 'submissions', methods: ['GET'], credential: 'account' }],
          mode: { observe: true, until },
          ...client,
        },
      ],
    },
    settings: {
      credential: undefined,
      siteParameter: 'site_name',
      sites: { demo: { credential: 'submissions' } },
    },
  });
  const status = async (target: string, init?: RequestInit): Promise<number> =>
    (await scene.get(target, init)).status;
  const shown = async (): Promise<ClientDetailView> =>
    JSON.parse(await (await fetch(`${scene.gateway.control}/api/clients/reporting`)).text());
  const records = async () => {
    await scene.gateway.app.close();
    return (await recordsIn(directory)).filter(({ kind }) => kind === 'access');
  };
  return { scene, status, shown, records };
}

test('what the rules of an observed client would refuse is served, recorded, counted and shown', async () => {
  const { scene, status, shown, records } = await observing();
  expect(await status(authors)).toBe(200);
  expect(await status(authors, { method: 'HEAD' })).toBe(200);
  expect(await status(authors, { method: 'HEAD', headers: { 'X-HTTP-Method-Override': 'GET' } })).toBe(200);
  expect(await scene.gateway.metric(WOULD_REFUSE, LABELS)).toBe(2);
  const { observedUntil, refusals } = await shown();
  expect(observedUntil).toBeGreaterThan(Date.now());
  expect(refusals).toMatchObject([{ code: 'client-forbidden', isServed: true, count: 2 }]);
  const own = { name: 'account', version: '1' };
  const ofSite = { name: 'submissions', version: '1' };
  const [allowed, ...observed] = await records();
  expect(allowed).toMatchObject({ status: 200, credential: own, credentialRule: 'allow[0]' });
  expect(allowed).not.toHaveProperty('wouldRefuse');
  const served = { status: 200, code: '', site: 'demo', credential: ofSite, wouldRefuse: 'client-forbidden' };
  expect(observed).toMatchObject([served, served]);
});

test('what the rules would refuse counts, also where a limit refuses it', async () => {
  const { scene, status, shown, records } = await observing({ limits: { daily: 1 } });
  expect(await status(authors, { method: 'HEAD' })).toBe(200);
  expect(await status(authors, { method: 'HEAD' })).toBe(429);
  expect(await scene.gateway.metric(WOULD_REFUSE, LABELS)).toBe(2);
  expect((await shown()).refusals).toMatchObject([
    { code: 'rate-limited', isServed: false, count: 1 },
    { code: 'client-forbidden', isServed: true, count: 2 },
  ]);
  expect(await records()).toMatchObject([
    { status: 200, wouldRefuse: 'client-forbidden' },
    { status: 429, code: 'rate-limited', wouldRefuse: 'client-forbidden' },
  ]);
});

test('what the deployment refuses is refused to an observed client, and not counted', async () => {
  const { scene, status, records } = await observing();
  expect(await status(authors.replace('site_name=demo', 'site_name=x'), { method: 'HEAD' })).toBe(403);
  expect(await scene.gateway.metric(WOULD_REFUSE)).toBe(0);
  const [record] = await records();
  expect(record).toMatchObject({ code: 'site-unknown' });
  expect(record).not.toHaveProperty('wouldRefuse');
});

test('the rules refuse from the end of the mode on, without a reload', async () => {
  const { scene, status, shown } = await observing();
  expect(await status(authors, { method: 'HEAD' })).toBe(200);
  setWallClock(Date.now() + DAY_MS);
  expect(await status(authors, { method: 'HEAD' })).toBe(403);
  expect(await status(authors)).toBe(200);
  expect(await scene.gateway.metric(WOULD_REFUSE)).toBe(1);
  const { observedUntil, refusals } = await shown();
  expect(observedUntil).toBeNull();
  expect(refusals).toMatchObject([
    { isServed: false, count: 1 },
    { isServed: true, count: 1 },
  ]);
});
