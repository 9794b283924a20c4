import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { describe, expect, test } from '@jest/globals';
import type { AccessFacts } from '../../../src/audit/record.ts';
import { CLIENTS, CREDENTIALS, DEPLOYMENTS } from '../../config/texts.ts';
import { AUDIT_KEY, openTestAudit, recordAccess, useFolders } from '../../support/audit-log.ts';
import { closing } from '../../support/closing.ts';
import { gateway, PROGRAM } from '../../support/program.ts';
import { onTerminal } from '../../support/terminal.ts';
import { until } from '../../support/until.ts';

const folder = useFolders();

async function place(
  ...records: Partial<AccessFacts>[]
): Promise<{ directory: string; log: string; config: string }> {
  const directory = await folder();
  const config = join(directory, 'gateway.yaml');
  const log = join(directory, 'log');
  await writeFile(join(directory, 'key'), `${AUDIT_KEY}\n`, { mode: 0o600 });
  await writeFile(
    config,
    `${CLIENTS}\n${CREDENTIALS}\n${DEPLOYMENTS}\naudit: { directory: log, keyFile: key, parameters: [ids] }\n`,
  );
  const { audit } = await openTestAudit(log);
  for (const record of records) await recordAccess(audit, record);
  await audit.close();
  return { directory, log, config };
}

const audit = (command: string, config: string, ...more: string[]) =>
  gateway(['audit', command, '--config', config, ...more]);

describe('audit search', () => {
  test('prints columns without control characters', async () => {
    const { config } = await place(
      { requestId: 'a', target: '/api/x?ids=%27A%1b[2J%27&token=hunter2' },
      { requestId: 'b', client: 'loader' },
    );
    const { status, stdout, stderr } = await audit('search', config, '--client', 'reporting');
    expect([status, stderr]).toEqual([0, '']);
    const [header = '', line = '', end] = stdout.split('\n');
    expect(header.split(/\s+/)).toEqual(
      'TIME REQUESTID CLIENT ADDRESS DEPLOYMENT SITE OPERATION METHOD STATUS CODE BYTESOUT DURATIONMS OUTCOME REQUEST'.split(
        ' ',
      ),
    );
    expect(line).toMatch(
      /Z +a +reporting +192\.0\.2\.7 +submissions +journal-a +authors +GET +200 +- +- +- +- /,
    );
    expect(line).toContain("/api/x?ids='A\\u001b[2J'&token");
    expect(end).toBe('');
    expect(stdout).not.toContain('\u001b');
  });

  test.each(['search', 'tail', 'usage'])('no format of %s has control characters', async (command) => {
    const target = '/api/x?ids=%27%1b[2J%C2%9b8m%7f%E2%80%AE%F3%A0%80%81%0D%27&token=x';
    const client = 'c\u001b[2J\u009b8m\u007f\u202e\u{e0001}\r';
    const { config } = await place({ requestId: 'a', client, target });
    for (const format of command === 'tail' ? ['--json'] : ['--json', '--csv']) {
      const { status, stdout } = await audit(command, config, format);
      expect([format, status]).toEqual([format, 0]);
      expect(stdout).toContain('\\u001b[2J\\u009b8m\\u007f\\u202e\\udb40\\udc01');
      expect(stdout.replaceAll('\r\n', '').replaceAll('\n', '')).not.toMatch(/[\p{Cc}\p{Cf}]/u);
      const first = format === '--json' ? JSON.parse(stdout.split('\n', 1).join('')) : undefined;
      if (first !== undefined) expect(first.rows?.[0] ?? first).toMatchObject({ client });
    }
  });

  test('an export to a terminal has no control characters, and one to a file the bytes of the log', async () => {
    const { directory, config } = await place({ client: 'c\u009b8m' });
    const command = `${process.execPath} ${PROGRAM} audit export --config ${config}`;
    const { screen } = await onTerminal(command);
    expect(screen).toContain('"client":"c\\u009b8m"');
    expect(screen).not.toContain('\u009b');
    const output = join(directory, 'exported');
    await audit('export', config, '--output', output);
    expect(await readFile(output, 'utf8')).toContain('"client":"c\u009b8m"');
  });

  test('says on stderr that nothing was found, and where it looked', async () => {
    const { config, log } = await place({ requestId: 'a' });
    const [replica] = await readdir(log);
    const period = ['--from', '2026-03-01', '--to', '2026-03-01'];
    expect(await audit('search', config, '--json', '--client', 'nobody', ...period)).toEqual({
      status: 0,
      stdout: '',
      stderr: `nothing found: no request in ${log} (${replica}) from 2026-03-01T00:00:00.000Z before 2026-03-02T00:00:00.000Z matches\n`,
    });
    await rm(join(log, String(replica)), { recursive: true });
    const { stdout, stderr } = await audit('search', config, '--csv');
    expect([stdout.split('\n').length, stderr]).toEqual([
      2,
      `nothing found: there is no audit log in ${log}\n`,
    ]);
  });

  test('prints one JSON object per request', async () => {
    const { config } = await place({ requestId: 'a' }, { requestId: 'b' });
    const { stdout } = await audit('search', config, '--json', '--id', 'A');
    const found = stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(found).toMatchObject([
      { requestId: 'a', parameters: { ids: "'A'", token: null }, status: 200 },
      { requestId: 'b' },
    ]);
  });

  test('finds requests by id, address and code, and prints them in columns', async () => {
    const { config } = await place(
      { requestId: 'q-1', address: '198.51.100.7' },
      { requestId: 'q-2', status: 429, code: 'rate-limited' },
      { requestId: 'q-3', status: 404, address: '198.51.100.7' },
    );
    const ids = async (...options: string[]) => {
      const { stdout } = await audit('search', config, '--table', ...options);
      return Array.from(stdout.matchAll(/q-\d/g), ([id]) => id);
    };
    expect(await ids('--request-id', 'q-2')).toEqual(['q-2']);
    expect(await ids('--address', '198.51.100.7')).toEqual(['q-1', 'q-3']);
    expect(await ids('--address', '198.51.100.7', '--status', '4xx')).toEqual(['q-3']);
    expect(await ids('--code', 'rate-limited')).toEqual(['q-2']);
    expect(await ids('--code', 'rate-limited', '--replica', 'r1')).toEqual(['q-2']);
  });

  const cells: [string, string, string][] = [
    ['a quote', 'a"b', '"a""b"'],
    ['a comma', 'a,b', '"a,b"'],
    ['a line break', 'a\nb', '"a\nb"'],
    ['a formula', '=1+1', "'=1+1"],
    ['a formula with a sign', '+cmd|x', "'+cmd|x"],
    ['a formula with a minus', '-2+3', "'-2+3"],
    ['a formula with an at', '@SUM(A1)', "'@SUM(A1)"],
    ['a formula as a Japanese spreadsheet reads it', '\uff1d1+1', "'\uff1d1+1"],
    ['a formula after a tab', '\t=1', "'\t=1"],
    ['a formula that has to be quoted', '=HYPERLINK("x","y")', `"'=HYPERLINK(""x"",""y"")"`],
    ['a formula further on', 'a=1', 'a=1'],
  ];
  test('prints CSV without formulas for spreadsheets', async () => {
    const { config } = await place(...cells.map(([, client]) => ({ client, requestId: '' })));
    const { stdout } = await audit('search', config, '--csv');
    const [header, ...lines] = stdout.split('\r\n');
    expect(header).toMatch(/^time,replica,seq,requestId,client,address,/);
    expect(lines.pop()).toBe('');
    for (const [index, [title, , expected]] of cells.entries()) {
      expect([title, lines[index]?.slice('2026-01-01T00:00:00.000Z,r1,'.length)]).toEqual([
        title,
        expect.stringMatching(new RegExp(`^${index + 1},,${escaped(expected)},192\\.0\\.2\\.7,`)),
      ]);
    }
  });

  test.each([
    [['--status', '9xx'], /--status.*9xx/],
    [['--from', 'yesterday'], /--from.*yesterday.* is invalid\. A time is 2026-03, .*\.$/m],
    [['--to', '2026-02-30'], /--to.*2026-02-30/],
    [['--to', '2026-02-29T23:59:59Z'], /--to.*2026-02-29T23:59:59Z/],
    [['--from', '2026-04-31T08:00'], /--from.*2026-04-31T08:00/],
    [['--from', '2026-13'], /--from.*2026-13/],
    [['--from', '2d  ago'], /--from.*2d {2}ago/],
    [
      ['--from', '2026-04', '--to', '2026-03'],
      /--from begins at 2026-04-01T\S+, and --to ends at 2026-04-01T.*: no time lies between/,
    ],
    [['--from', '2w ago'], /--from.*2w ago/],
    [['--address', '192.0.2'], /--address.*192\.0\.2/],
    [['--replica', 'r1@0'], /--replica.*r1@0/],
    [['--code', 'rate-limit'], /--code.*rate-limit.*the nearest one is rate-limited\.$/m],
    [
      ['--code', 'nonsense'],
      /--code.*nonsense.*there is no such error code; docs\/configure\/errors\.md lists them\.$/im,
    ],
    [['--replica', 'r2'], /\br2\b.*\br1\b/],
    [['--json', '--csv'], /--json.*--csv|--csv.*--json/],
  ])('refuses %j', async (options, named) => {
    const { config } = await place();
    expect(await audit('search', config, ...options)).toMatchObject({
      status: 2,
      stdout: '',
      stderr: expect.stringMatching(named),
    });
  });

  test('includes a whole day given as --to', async () => {
    const { config } = await place({ requestId: 'a' });
    const today = new Date().toISOString().slice(0, 10);
    const lines = async (...more: string[]) =>
      (await audit('search', config, '--json', ...more)).stdout.split('\n').length - 1;
    expect(await lines('--from', today, '--to', today)).toBe(1);
    for (const hour of ['1h', '1h ago']) {
      expect([hour, await lines('--from', hour), await lines('--to', hour)]).toEqual([hour, 1, 0]);
    }
    expect(await lines('--from', '2099-01')).toBe(0);
  });

  test('says that identifiers are not recorded, or were cut', async () => {
    const { config, log } = await place({ target: `/x?ids=${'9'.repeat(600)}` }, { target: '/x?token=8' });
    expect((await audit('search', config, '--id', '7')).stderr).toBe(
      `nothing found: no request in ${log} (r1) matches\n1 more request may match: parameters were too long to be recorded whole\n`,
    );
    const text = await readFile(config, 'utf8');
    await writeFile(config, text.replace('[ids]', '[ids, token]'));
    expect((await audit('search', config, '--id', '8')).stderr).toContain(
      '1 more request may match: parameters have their names only, from before they were in audit.parameters\n',
    );
    await writeFile(config, text.replace(', parameters: [ids]', ''));
    expect((await audit('search', config, '--id', '7')).stderr).toContain('audit.parameters');
  });
});

describe('audit tail', () => {
  test('prints the newest records as sentences', async () => {
    const { config } = await place(...['a', 'b', 'c'].map((requestId) => ({ requestId })));
    const { status, stdout } = await audit('tail', config, '-n', '2');
    expect(status).toBe(0);
    expect(stdout.trimEnd().split('\n')).toEqual([
      expect.stringMatching(/Z r1 access {2}200 reporting@192\.0\.2\.7 GET \/api\/x\?ids='A'&token {2}b$/),
      expect.stringMatching(/ {2}c$/),
    ]);
  });

  test('prints the newest records of all segments and workers, in order of time', async () => {
    const { log, config } = await place({ requestId: 'before' });
    const expected = ['before'];
    for (const replica of ['r1', 'r1@1']) {
      const { audit: opened } = await openTestAudit(log, {
        replica,
        segment: { size: 2000, age: 1e9, keep: 1e9 },
      });
      for (let index = 0; index < 20; index += 1) {
        await recordAccess(opened, { requestId: `${replica}-${index}` });
        expected.push(`${replica}-${index}`);
      }
      await opened.close();
    }
    for (const lines of [30, 50]) {
      const { stdout } = await audit('tail', config, '--json', '-n', `${lines}`);
      const ids = stdout.trimEnd().split('\n');
      expect(ids.map((line) => JSON.parse(line).requestId)).toEqual(expected.slice(-lines));
    }
  });

  test('follows the log through closed and compressed segments, and new replicas', async () => {
    const { log, config } = await place({ requestId: 'before' });
    const child = spawn(process.execPath, [PROGRAM, 'audit', 'tail', '-f', '--json', '--config', config], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    closing.push(() => child.kill('SIGKILL'));
    const seen: string[] = [];
    createInterface(child.stdout).on('line', (line) => seen.push(JSON.parse(line).requestId));
    await until(() => seen.length === 1);
    const expected = ['before'];
    for (const replica of ['r1', 'r2']) {
      const { audit: opened } = await openTestAudit(log, {
        replica,
        segment: { size: 2000, age: 1e9, keep: 1e9 },
      });
      for (let index = 0; index < 40; index += 1) {
        await recordAccess(opened, { requestId: `${replica}-${index}` });
        expected.push(`${replica}-${index}`);
      }
      await opened.close();
      await until(() => seen.length >= expected.length);
    }
    expect(seen).toEqual(expected);
    child.kill();
    await once(child, 'close');
  });
});

describe('audit export', () => {
  test('prints every record as it is in the log', async () => {
    const { config, directory } = await place({ requestId: 'a' }, { requestId: 'b' });
    const { status, stdout } = await audit('export', config);
    expect(status).toBe(0);
    expect(
      stdout
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line).seq),
    ).toEqual([1, 2]);
    const output = join(directory, 'all.jsonl');
    expect((await audit('export', config, '--output', output)).stdout).toBe('');
    expect(await readFile(output, 'utf8')).toBe(stdout);
    expect(await audit('export', config, '--output', output)).toMatchObject({
      status: 1,
      stderr: expect.stringContaining(output),
    });
  });

  test('refuses --follow without a stream', async () => {
    const { config } = await place();
    expect(await audit('export', config, '--follow')).toMatchObject({
      status: 2,
      stderr: expect.stringContaining('audit.sinks: '),
    });
    expect(await audit('export', config, '--follow', '--from', '1d')).toMatchObject({ status: 2 });
  });
});

function escaped(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
}
