import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from '@jest/globals';
import { AUDIT_KEY, openTestAudit, recordAccess, useFoldersOfAll } from '../support/audit-log.ts';
import { gateway, PROGRAM } from '../support/program.ts';
import { onTerminal } from '../support/terminal.ts';

const MIB = 2 ** 20;
const SHOWN = /(\d+)% of \d+ MiB read, about \d+ (?:s|min|h) left/g;

const folder = useFoldersOfAll();
let config: string;
let place: string;

/** Writes a log of some 25 MiB in segments of 4 MiB, most of them compressed. */
beforeAll(async () => {
  place = await folder();
  await writeFile(join(place, 'key'), AUDIT_KEY, { mode: 0o600 });
  config = join(place, 'gateway.yaml');
  const deployment = { baseUrl: 'https://127.0.0.1:1', match: { pathPrefix: '/a/' }, credential: 'a' };
  await writeFile(
    config,
    JSON.stringify({
      anonymous: true,
      audit: { directory: 'audit', keyFile: 'key', parameters: ['ids'] },
      credentials: { a: { username: { value: 'me' }, password: { env: 'P' } } },
      deployments: { d: deployment },
    }),
  );
  const segment = { size: 4 * MIB, age: 86_400_000, keep: 86_400_000 };
  const { audit } = await openTestAudit(join(place, 'audit'), { segment });
  const target = `/a/x?ids=${'%27A-1001%27,'.repeat(80)}`;
  for (let batch = 0; batch < 80; batch += 1) {
    await Promise.all(Array.from({ length: 500 }, () => recordAccess(audit, { target })));
  }
  await audit.close();
});

const COMMANDS = [
  ['audit verify', '', ['verify']],
  ['audit search', 'nothing found', ['search', '--client', 'nobody']],
  ['audit export', '', ['export', '--output', 'exported']],
] as const;

describe.each(COMMANDS)('%s', (_title, noted, [name, ...options]) => {
  const args = (output: string): string[] => [
    'audit',
    name,
    '--config',
    config,
    ...options.map((option) => (option === 'exported' ? join(place, output) : option)),
  ];

  test('shows on a terminal how much has been read and how long the rest takes', async () => {
    const out = join(place, `${name}.out`);
    const { status, screen } = await onTerminal(
      `${process.execPath} ${PROGRAM} ${args('on-terminal').join(' ')} >${out}`,
    );
    expect([status, screen]).toEqual([0, expect.stringMatching(SHOWN)]);
    const shown = [...screen.matchAll(SHOWN)].map(([, percent]) => Number(percent));
    expect(shown).toEqual(shown.toSorted((a, b) => a - b));
    expect(shown.at(-1)).toBeLessThanOrEqual(100);
    expect(await readFile(out, 'utf8')).not.toContain('MiB read');
    // The last thing on the screen is an empty line: the cursor is at its start, and it was cleared.
    // biome-ignore lint/suspicious/noControlCharactersInRegex: sequences of a terminal
    expect(screen).toMatch(/\x1b\[1?G\x1b\[[02]?K[^%]*$/);
  });

  test('writes no progress where stderr is no terminal', async () => {
    const { status, stdout, stderr } = await gateway(args('elsewhere'));
    expect([status, stderr.split(':')[0]]).toEqual([0, noted]);
    expect(stdout + stderr).not.toContain('MiB read');
  });
});
