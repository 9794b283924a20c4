import { expect, test } from '@jest/globals';
import { auditOptions, useFolders } from '../../support/audit-log.ts';
import { RawClient } from '../../support/raw-client.ts';
import { authors, startPair } from '../../support/simulated-pair.ts';

const folder = useFolders();

test('not even while the record of the refusal is being written', async () => {
  const pair = await startPair({}, { audit: auditOptions(await folder(), { durability: 'fsync' }) });
  expect((await pair.get(authors)).status).toBe(200);
  const { requests } = pair.simulator.counts('submissions');
  const client = await RawClient.open(pair.gateway.port);
  const hidden = `GET ${authors} HTTP/1.1\r\nHost: a\r\n\r\n`;
  await client.send(
    `POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n${hidden}`,
  );
  expect((await client.answer()).status).toBe(400);
  expect((await client.end()).toString()).toBe('');
  client.close();
  expect(pair.simulator.counts('submissions').requests).toBe(requests);
});
