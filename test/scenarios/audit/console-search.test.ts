import { expect, test } from '@jest/globals';
import type { RequestRow, SearchView } from '../../../src/control/audit-view.ts';
import { Tracing } from '../../../src/tracing/tracing.ts';
import { auditOptions, recordsIn, useFolders } from '../../support/audit-log.ts';
import { recordTraces } from '../../support/recorded-traces.ts';
import { authors, startScene } from '../../support/scene.ts';
import { until } from '../../support/until.ts';

const folder = useFolders();
const TRACE_ID = '0af7651916cd43dd8448eb211c80319c';

test('the console finds a request of the running gateway with its trace, and records that it was asked', async () => {
  const directory = await folder();
  const fields = ['address', 'parameters.ids'];
  const pseudonyms = { keysDirectory: await folder(), fields, per: 'month' as const };
  const { get, gateway } = await startScene({
    audit: auditOptions(directory, { pseudonyms }),
    tracing: new Tracing(recordTraces().tracer),
    top: { control: { port: 0, traceUrl: 'https://traces.example.org/trace/{traceId}' } },
  });
  const traceparent = `00-${TRACE_ID}-b7ad6b7169203331-01`;
  const response = await get(authors, { headers: { traceparent, 'x-request-id': 'mine' } });
  await response.text();
  const search = async (path: string): Promise<SearchView> => {
    const found = await fetch(`${gateway.control}/api/${path}`);
    expect(found.status).toBe(200);
    return (await found.json()) as SearchView;
  };
  const traceUrl = `https://traces.example.org/trace/${TRACE_ID}`;
  let row: RequestRow | undefined;
  await until(async () => {
    const { rows } = await search('audit/search?identifier=DEMO-2026-0001&address=127.0.0.1');
    row = rows[0] as RequestRow | undefined;
    return row?.outcome !== undefined;
  });
  expect(row).toMatchObject({ requestId: 'mine', status: 200, traceId: TRACE_ID, traceUrl });
  expect([row?.address, row?.parameters['ids']]).toEqual(['127.0.0.1', "'DEMO-2026-0001'"]);
  expect((await search('requests/mine')).rows).toMatchObject([{ requestId: 'mine', traceUrl }]);
  const exported = await fetch(`${gateway.control}/api/audit/export?client=anonymous&format=jsonl`);
  expect(JSON.parse(await exported.text())).toMatchObject({ requestId: 'mine' });

  await gateway.app.close();
  const events = (await recordsIn(directory)).filter(({ event }) => String(event).startsWith('audit-'));
  const hidden = expect.stringMatching(/^ps1:/);
  const asked = { by: 'api', address: hidden };
  expect(events).toMatchObject([
    {
      event: 'audit-search',
      ...asked,
      query: [expect.stringMatching(/^identifier=ps1:/), expect.stringMatching(/^address=ps1:/)],
    },
    { event: 'audit-search', ...asked, query: ['requestId=mine'] },
    { event: 'audit-export', ...asked, query: ['client=anonymous'], format: 'jsonl' },
  ]);
});
