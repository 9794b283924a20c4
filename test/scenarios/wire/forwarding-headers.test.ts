import { expect, test } from '@jest/globals';
import { echoOf, useWire } from '../../support/wire.ts';

const wire = useWire();

test.each([
  'Cookie2: $Version=1',
  'True-Client-IP: 10.0.0.1',
  'CF-Connecting-IP: 10.0.0.1',
  'X-Client-IP: 10.0.0.1',
  'X-Original-Forwarded-For: 10.0.0.1',
  'X_Forwarded_For: 10.0.0.1',
  'X_Real-IP: 10.0.0.1',
  'True_Client_IP: 10.0.0.1',
  'X_Api_Key: hunter2',
  'Proxy_Authorization: Basic aHVudGVyMg==',
  'Content_Length: 5',
  'Transfer_Encoding: chunked',
])('does not pass %s on', async (header) => {
  const answer = await wire.ask(`GET /echo HTTP/1.1\r\nHost: x\r\nX_Mine: 1\r\n${header}\r\n\r\n`);
  const names = echoOf(answer).rawHeaders.filter((_, index) => index % 2 === 0);
  expect(names).toContain('X_Mine');
  expect(names).not.toContain(header.split(':')[0]);
});
