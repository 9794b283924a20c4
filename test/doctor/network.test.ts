import { expect, test } from '@jest/globals';
import { connectionFinding } from '../../src/doctor/upstream-findings.ts';
import { upstreamError } from '../../src/transport/errors.ts';

test.each([
  ['ECONNREFUSED', 'connection-refused', 'nothing listens there: the connection was refused'],
  ['ECONNRESET', 'connection-broken', 'the other side ended the connection'],
  ['EHOSTUNREACH', 'no-route', 'no route to the address'],
  ['EACCES', 'not-permitted', 'this host does not permit the connection'],
  ['EMFILE', 'no-files-left', 'this process may not open any more files'],
  ['ERR_SSL_WRONG_VERSION_NUMBER', 'tls-not-tls', 'it does not speak TLS'],
])('%s is a sentence with a remedy', (code, problem, saw) => {
  const finding = connectionFinding(upstreamError(Object.assign(new Error('connect'), { code })));
  expect(finding).toMatchObject({ mark: 'fail', problem, saw });
  expect(finding.advice).toMatch(/^[A-Z].+[^.]\.$/);
});
