import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { AUDIT_KEY, openTestAudit, useFolders } from '../../support/audit-log.ts';
import { closing } from '../../support/closing.ts';
import { startGatewayProcess } from '../../support/gateway-process.ts';
import { PROGRAM, runProgram } from '../../support/program.ts';
import { onTerminal } from '../../support/terminal.ts';

// Hooks run in this order: folders go when nothing writes there any more.
const folder = useFolders();

/** A valid configuration, changed by `changes`; `locked`: this process writes to its audit log. */
async function configured(changes: Record<string, unknown>, locked = false): Promise<string> {
  const place = await folder();
  await writeFile(join(place, 'key'), AUDIT_KEY, { mode: 0o600 });
  await mkdir(join(place, 'audit'));
  if (locked) {
    const { audit } = await openTestAudit(join(place, 'audit'), { replica: 'r1' });
    closing.push(() => audit.close());
  }
  const file = join(place, 'gateway.yaml');
  const config = {
    listen: { port: 0 },
    control: { port: 0 },
    anonymous: true,
    audit: { directory: 'audit', replica: 'r1', keyFile: 'key' },
    credentials: { a: { username: { value: 'me' }, password: { env: 'P' } } },
    deployments: {
      d: { baseUrl: 'https://127.0.0.1:1', match: { pathPrefix: '/a/' }, credential: 'a' },
    },
    ...changes,
  };
  await writeFile(file, JSON.stringify(config));
  return file;
}

function linesOf(stderr: string): { level: string; time: string; msg: string }[] {
  return stderr
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));
}

describe('serve logs in JSON from the first line to the last', () => {
  test.each([
    ['an option is missing', 2, async () => [], /^required option '--config <file>' not specified/],
    ['the file is missing', 2, async () => ['--config', '/missing.yaml'], /^\/missing\.yaml:1:1 \(file\): /],
    [
      'a key is wrong',
      2,
      async () => ['--config', await configured({ listne: {} })],
      /^\S+gateway\.yaml:1:\d+ listne: does not exist: the nearest key is listen$/,
    ],
    [
      'another process writes to the audit log',
      2,
      async () => ['--config', await configured({}, true)],
      /^audit\.directory: /,
    ],
  ])('when %s', async (_title, expected, args, message) => {
    const { status, stdout, stderr } = await runProgram(['serve', ...(await args())], { P: 'hunter2' });
    const last = linesOf(stderr).at(-1);
    expect([status, stdout]).toEqual([expected, '']);
    expect(last?.level).toBe('error');
    expect(Date.parse(last?.time ?? '')).not.toBeNaN();
    expect(last?.msg).toMatch(message);
  });

  test('also warnings of Node.js', async () => {
    const warn = "data:text/javascript,process.on('SIGWINCH',()=>process.emitWarning('from Node'))";
    const settings = { tls: { allowPlaintext: true } };
    const running = await startGatewayProcess(
      { d: { origin: 'http://127.0.0.1:1', settings } },
      {},
      { runner: [process.execPath, '--import', warn] },
    );
    closing.push(() => running.close());
    process.kill(running.pid, 'SIGWINCH');
    await running.close();
    expect(running.logged).toContainEqual(
      expect.objectContaining({ level: 'warn', name: 'Warning', msg: 'from Node' }),
    );
    expect(running.printed.filter((line) => !line.startsWith('{'))).toEqual([]);
  });
});

test('on a terminal, the error of a start has the form of the other lines', async () => {
  const coloured = `env -u CI -u FORCE_COLOR -u NO_COLOR TERM=xterm ${process.execPath}`;
  const { status, screen } = await onTerminal(`${coloured} ${PROGRAM} serve --config /missing.yaml`);
  expect(status).toBe(2);
  // [12:01:02.003] ERROR: …, with colours.
  expect(screen).toMatch(
    /^\[\d\d:\d\d:\d\d\.\d{3}\].*ERROR.*\/missing\.yaml:1:1 \(file\): there is no such file/,
  );
  expect(screen).toContain('\x1b[31mERROR');
});

test('on a terminal, NO_COLOR leaves the colours out', async () => {
  const uncoloured = `env -u FORCE_COLOR NO_COLOR=1 ${process.execPath}`;
  const { screen } = await onTerminal(`${uncoloured} ${PROGRAM} serve --config /missing.yaml`);
  expect(screen).toMatch(/^\[[\d:.]+\] ERROR: \/missing\.yaml:1:1 \(file\): there is no such file/);
});
