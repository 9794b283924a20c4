import { stripVTControlCharacters, styleText } from 'node:util';
import { expect, test } from '@jest/globals';
import { reportLines } from '../../src/cli/doctor.ts';
import type { Report } from '../../src/doctor/doctor.ts';
import { about, fine, ADVICE as REMEDIES, wrong } from '../../src/doctor/finding.ts';

/** As the examination of a deployment writes it, with the path of the key. */
const ADVICE =
  'Write https:// in deployments.abstracts.baseUrl: everyone on the network can read requests and responses.';

const report: Report = {
  mark: 'fail',
  failures: 2,
  warnings: 1,
  deployments: [
    {
      name: 'submissions',
      origin: 'https://submissions.example.org',
      probe: 'HEAD /api/',
      findings: [
        fine('egress', 'from 203.0.113.7'),
        about('journal-a', wrong('credential', 'credential-refused', 'HTTP 401')),
      ],
    },
    {
      name: 'abstracts',
      origin: 'https://abstracts.example.org',
      probe: 'HEAD /',
      findings: [{ ...wrong('tls', 'plaintext', 'no TLS'), advice: ADVICE }],
    },
  ],
  gateway: [
    wrong('redis', 'redis-unreachable', 'connect ECONNREFUSED 127.0.0.1:6379'),
    fine('audit', '/var/log/digest-gateway is writable, 5000 MiB free'),
  ],
};

const plain = (_mark: string, text: string): string => text;

test('the table has a line for each finding, and advice under what is not ok', () => {
  expect(reportLines(report, plain).join('\n')).toBe(`\
submissions  https://submissions.example.org  HEAD /api/
  ok    egress                from 203.0.113.7
  fail  credential journal-a  HTTP 401  [credential-refused]
                              → Check user name and password of this credential, or ask the operator of the upstream; each further attempt may get this address locked out.

abstracts  https://abstracts.example.org  HEAD /
  warn  tls                   no TLS  [plaintext]
                              → Write https:// in deployments.abstracts.baseUrl: everyone on the network can read requests and responses.

  fail  redis                 connect ECONNREFUSED 127.0.0.1:6379  [redis-unreachable]
                              → Check the address and TLS settings under redis, and whether Redis runs.
  ok    audit                 /var/log/digest-gateway is writable, 5000 MiB free

2 failures, 1 warning.`);
});

test('the mark and the sum are what is coloured, and columns stay where they are', () => {
  const green = (text: string): string => styleText('green', text, { validateStream: false });
  const coloured = reportLines(report, (_mark, text) => green(text));
  expect(coloured[1]).toBe(`  ${green('ok')}    egress                from 203.0.113.7`);
  expect(coloured.at(-1)).toBe(green('2 failures, 1 warning.'));
  expect(coloured.map(stripVTControlCharacters)).toEqual(reportLines(report, plain));
});

test('without anything wrong it says so', () => {
  const gateway = report.gateway.slice(1);
  const well: Report = { mark: 'ok', failures: 0, warnings: 0, deployments: [], gateway };
  expect(reportLines(well, plain)).toEqual([
    '  ok    audit  /var/log/digest-gateway is writable, 5000 MiB free',
    '',
    'All is well.',
  ]);
});

test.each(Object.entries(REMEDIES))('%s has one sentence of advice', (_name, advice) => {
  expect(advice).toMatch(/^[A-Z].*[^.]\.$/);
  expect(advice).not.toMatch(/[.!?] /);
});
