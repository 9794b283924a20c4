import { execFile } from 'node:child_process';
import { hash } from 'node:crypto';
import {
  appendFile,
  cp,
  mkdir,
  mkdtemp,
  open,
  readdir,
  readFile,
  rm,
  truncate,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { zstdCompressSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { auditKeys } from '../../src/audit/keys.ts';
import type { Verified } from '../../src/audit/reader/verify.ts';
import { recordLine } from '../../src/audit/record.ts';
import { GENESIS, sealFor, sealLine } from '../../src/audit/seal.ts';
import { headerLine } from '../../src/audit/segments/segment.ts';
import { Secret } from '../../src/base/secret.ts';
import {
  AUDIT_KEY,
  auditOptions,
  openTestAudit,
  REPLICA,
  recordAccess,
  recordsIn,
  segmentText,
  useFolders,
} from '../support/audit-log.ts';
import { type ConfiguredGateway, startConfiguredGateway } from '../support/gateway.ts';
import { gateway, runProgram } from '../support/program.ts';
import { authors, startScene } from '../support/scene.ts';

const run = promisify(execFile);
const newFolder = useFolders();
const FIRST = '000000000001.jsonl';

interface Scene {
  /** The folder of the replica, which the attacker can write to. */
  readonly place: string;
  readonly directory: string;
  readonly config: string;
  /** The exit status of `audit verify`, and its result. */
  verify(...args: string[]): Promise<Pick<Verified, 'alterations' | 'notes' | 'records'> & Verdict>;
}

interface Verdict {
  readonly status: number;
  readonly heads: readonly string[];
}

async function setScene(given?: string): Promise<Scene> {
  const folder = given ?? (await newFolder());
  const config = join(folder, 'gateway.yaml');
  await writeFile(join(folder, 'key'), AUDIT_KEY, { mode: 0o600 });
  await writeFile(
    config,
    `audit: { directory: log, keyFile: key, parameters: [ids] }
anonymous: true
credentials: { a: { username: { env: U }, password: { env: P } } }
deployments: { d: { baseUrl: "https://a.example", match: { pathPrefix: /a/ }, credential: a } }
`,
  );
  const directory = join(folder, 'log');
  return {
    directory,
    config,
    place: join(directory, REPLICA),
    async verify(...args) {
      const command = ['audit', 'verify', '--config', config, '--json', ...args];
      const { status, stdout } = await gateway(command);
      return { status, ...JSON.parse(stdout) };
    },
  };
}

/** A log of a process that stopped, and the head that it logged at its end. */
async function stopped(scene: Scene, records: number, size = 2 ** 28): Promise<string> {
  const segment = { ...auditOptions('').segment, size };
  const { audit, logged } = await openTestAudit(scene.directory, { segment });
  for (let index = 0; index < records; index += 1) await recordAccess(audit, { requestId: `q${index}` });
  await audit.close('stop');
  return String(logged.findLast(({ head }) => head !== undefined)?.['head']);
}

async function started(scene: Scene, change: Parameters<typeof openTestAudit>[1] = {}) {
  const { audit, logged } = await openTestAudit(scene.directory, change);
  await audit.close('stop');
  return logged;
}

const segmentsOf = async ({ place }: Scene): Promise<string[]> =>
  (await readdir(place)).filter((name) => /\.jsonl(\.zst)?$/.test(name)).sort();

const linesOf = async ({ place }: Scene, name: string): Promise<string[]> =>
  (await readFile(join(place, name), 'utf8')).trimEnd().split('\n');

/** A record as the gateway would write it next, from one that it wrote. */
function forged(lines: readonly string[], change: (record: Record<string, unknown>) => object): string {
  const records = lines.filter((line) => line.startsWith('{"seq":'));
  const record = JSON.parse(records[0] ?? '') as Record<string, unknown>;
  return `${JSON.stringify({ ...record, seq: records.length + 1, ...change(record) })}\n`;
}

describe('somebody who can write to the folder and does not have the key', () => {
  test('cannot add a record to the segment of a gateway that stopped', async () => {
    const scene = await setScene();
    const { simulator } = await startScene();
    const upstream = { origin: simulator.deployments.submissions.origin, ca: simulator.ca };
    const keyFile = join(scene.directory, '..', 'key');
    const audit = { directory: scene.directory, keyFile, replica: REPLICA };
    const serve = (): Promise<ConfiguredGateway> => startConfiguredGateway({ upstream }, { audit });
    const first = await serve();
    expect((await fetch(`${first.origin}${authors}`)).status).toBe(200);
    await first.close();
    expect(await scene.verify()).toMatchObject({ status: 0 });
    const before = await linesOf(scene, FIRST);
    const line = before.length + 1;
    await appendFile(
      join(scene.place, FIRST),
      forged(before, () => ({ client: 'mallory' })),
    );

    expect(await scene.verify()).toMatchObject({
      status: 1,
      alterations: [
        { replica: REPLICA, segment: FIRST, line, kind: 'appended-after-stop', facts: { records: 1 } },
      ],
    });
    const second = await serve();
    expect(
      second.logged.some(({ msg }) => msg === 'audit log was appended to after its process had stopped'),
    ).toBe(true);
    await second.close();
    expect(JSON.stringify(await recordsIn(scene.directory))).not.toContain('mallory');
    const facts = { segment: FIRST, line, file: expect.any(String) };
    expect(await scene.verify()).toMatchObject({
      status: 1,
      alterations: [{ replica: REPLICA, segment: FIRST, kind: 'recovered-after-stop', facts }],
    });
  });

  test('cannot remove older segments by a record of their retirement without a seal', async () => {
    const scene = await setScene();
    const head = await stopped(scene, 9, 1200);
    const segments = await segmentsOf(scene);
    const { heads } = await scene.verify();
    const newest = segments.at(-1) ?? '';
    const lines = await linesOf(scene, newest);
    const { previous, first } = (
      JSON.parse(lines[0] ?? '') as { segment: { previous: string; first: number } }
    ).segment;
    await appendFile(
      join(scene.place, newest),
      forged(lines, () => ({
        kind: 'admin',
        event: 'segment-retired',
        segment: FIRST,
        last: first - 1,
        hmac: previous,
      })),
    );
    for (const name of segments.slice(0, -1)) await rm(join(scene.place, name));
    const missing = expect.objectContaining({
      replica: REPLICA,
      segment: newest,
      line: 1,
      kind: 'segment-missing',
      facts: { last: first - 1 },
    });
    for (const args of [
      [],
      ['--head', heads[0] ?? ''],
      ['--head', head],
      ['--head', `${REPLICA}:2:${'x'.repeat(43)}`],
    ]) {
      const { status, alterations } = await scene.verify(...args);
      expect([args, status]).toEqual([args, 1]);
      expect(alterations).toContainEqual(missing);
    }
    await started(scene);
    expect((await scene.verify()).alterations).toContainEqual(missing);
  });

  test('cannot remove older segments before the gateway retires the next one', async () => {
    const scene = await setScene();
    await stopped(scene, 9, 1200);
    const [oldest = '', second = ''] = await segmentsOf(scene);
    await rm(join(scene.place, oldest));
    const logged = await started(scene, { segment: { size: 2 ** 28, age: 1e9, keep: 1 } });
    expect(logged).not.toEqual([]);
    const { status, alterations } = await scene.verify();
    expect(status).toBe(1);
    const facts = { from: 1, to: Number.parseInt(second, 10) - 1 };
    expect(alterations).toContainEqual(expect.objectContaining({ kind: 'retired-missing', facts }));
  });

  test('cannot hide a changed record by the retirement of its segment', async () => {
    const scene = await setScene();
    await stopped(scene, 9, 1200);
    const [oldest = ''] = await segmentsOf(scene);
    const plain = oldest.replace('.zst', '');
    const text = await segmentText(scene.directory, oldest);
    await rm(join(scene.place, oldest));
    await writeFile(join(scene.place, plain), text.replace('192.0.2.7', '192.0.2.8'));
    await started(scene, { segment: { ...auditOptions('').segment, keep: 1 } });
    expect(await segmentsOf(scene)).not.toContain(plain);
    const { status, alterations } = await scene.verify();
    expect(status).toBe(1);
    const facts = { segment: plain, altered: expect.stringMatching(/^line 3 /) };
    expect(alterations).toContainEqual(expect.objectContaining({ kind: 'retired-altered', facts }));
  });

  test('cannot remove the end of the log, or restore an old copy, if a head was kept', async () => {
    const scene = await setScene();
    await stopped(scene, 3);
    const copy = join(scene.directory, '..', 'copy');
    await cp(scene.place, copy, { recursive: true });
    const head = await stopped(scene, 3);
    await rm(scene.place, { recursive: true });
    await cp(copy, scene.place, { recursive: true });
    await stopped(scene, 9);
    const facts = { seq: Number(head.split(':')[1]), source: '--head' };
    expect(await scene.verify('--head', head)).toMatchObject({
      status: 1,
      alterations: [{ replica: REPLICA, kind: 'log-rewritten', facts }],
    });
  });

  test('cannot add a newer segment with any number', async () => {
    const scene = await setScene();
    await stopped(scene, 3);
    const lines = await linesOf(scene, FIRST);
    const header = (lines[0] ?? '').replace('"first":1', '"first":900000000000000');
    const seal = (lines[1] ?? '').replace('[1,0]', '[900000000000000,900000000000009]');
    await writeFile(join(scene.place, '900000000000000.jsonl'), `${header}\n${seal}\n`);
    expect((await scene.verify()).status).toBe(1);
    const logged = await started(scene);
    expect(logged.find(({ segment }) => segment === '900000000000000.jsonl')).toMatchObject({ lines: 2 });
    expect((await recordsIn(scene.directory)).at(-1)).toMatchObject({ seq: 6, event: 'stop' });
    expect(await scene.verify()).toMatchObject({ status: 0 });
  });

  test('cannot fill the memory with a compressed segment', async () => {
    const scene = await setScene();
    await stopped(scene, 9, 1200);
    const [oldest = ''] = await segmentsOf(scene);
    const bomb = zstdCompressSync(Buffer.alloc(200 * 2 ** 20, 'x\n'));
    await writeFile(join(scene.place, oldest), bomb);
    const config = join(scene.directory, '..', 'gateway.yaml');
    for (const command of ['verify', 'search', 'export']) {
      const { status, stdout, stderr } = await runProgram(['audit', command, '--config', config], {}, [
        '--max-old-space-size=64',
      ]);
      expect([command, status]).toEqual([command, 1]);
      expect(command === 'verify' ? stdout : stderr).toContain(oldest);
      expect(stdout.length).toBeLessThan(100_000);
    }
  });

  test('cannot occupy a reader with endless seals over nothing', async () => {
    const scene = await setScene();
    await stopped(scene, 9, 1200);
    const [, second = ''] = await segmentsOf(scene);
    const hmac = 'A'.repeat(43);
    const first = Number.parseInt(second, 10);
    const opened = new Date(0).toISOString();
    const header = headerLine({ replica: REPLICA, first, previous: hmac, key: 'f'.repeat(16), opened });
    const seal = (lines: string): string =>
      sealLine({ first, last: first - 1, form: 'sha256', digest: hash('sha256', lines, 'base64url'), hmac });
    const bytes = zstdCompressSync(`${header}${seal(header)}${seal('').repeat(300_000)}`);
    expect(bytes.length).toBeLessThan(10_000);
    await writeFile(join(scene.place, second), bytes);
    const { status, alterations } = await scene.verify();
    const found = alterations.filter(({ segment }) => segment === second);
    expect([status, found.map(({ kind }) => kind)]).toEqual([
      1,
      ['key-unknown', 'chain-broken', 'errors-omitted'],
    ]);
    expect(found.at(-1)?.line).toBeLessThan(50_000);
    for (const command of ['search', 'tail']) {
      const { stderr } = await gateway(['audit', command, '--config', scene.config]);
      expect(stderr).toMatch(command === 'search' ? /what follows was not looked at/ : /left out/);
    }
  });

  test('does not make a reader leave out what a worker wrote that began often and served nothing', async () => {
    const scene = await setScene();
    const keys = auditKeys(new Secret(AUDIT_KEY));
    const chain = { replica: REPLICA, previous: GENESIS };
    const header = headerLine({ ...chain, first: 1, key: keys.id, opened: new Date(0).toISOString() });
    let text = header;
    let covered = header;
    for (let count = 0; count < 40_000; count += 1) {
      const seal = sealFor(keys, chain, { first: 1, last: 0 }, Buffer.from(covered));
      chain.previous = seal.hmac;
      text += sealLine(seal);
      covered = '';
    }
    await mkdir(scene.place, { recursive: true });
    await writeFile(join(scene.place, FIRST), text);
    await stopped(scene, 1);
    expect(await scene.verify()).toMatchObject({ status: 0, alterations: [], records: 2 });
  });
});

test('sets the batch of a killed process aside, which is no alteration', async () => {
  const scene = await setScene();
  const { audit } = await openTestAudit(scene.directory);
  await recordAccess(audit);
  await audit.close();
  await appendFile(
    join(scene.place, FIRST),
    forged(await linesOf(scene, FIRST), () => ({ requestId: 'torn' })),
  );
  expect(await scene.verify()).toMatchObject({
    status: 0,
    notes: [{ segment: FIRST, kind: 'end-unsealed', facts: { lines: 1, bytes: 0 } }],
  });
  await started(scene);
  expect(await scene.verify()).toMatchObject({
    status: 0,
    notes: [{ kind: 'set-aside', facts: { lines: 1, line: 5, segment: FIRST } }],
  });
});

describe('the start of a gateway with a segment of 240 MiB', () => {
  let scene: Scene;
  let path: string;
  let size: number;
  beforeAll(async () => {
    scene = await setScene(await mkdtemp(join(tmpdir(), 'audit-')));
    path = join(scene.place, FIRST);
    await mkdir(scene.place, { recursive: true });
    size = await writeLarge(path);
  });
  afterAll(() => rm(join(scene.directory, '..'), { recursive: true }));

  test.each([
    ['whole', async () => undefined],
    ['with lines under no seal, and a line without end', () => appendTail(path)],
    ['with a gigabyte that is no line', () => truncate(path, size + 2 ** 30)],
  ])('%s: needs little memory', async (_title, change: () => Promise<unknown>) => {
    await truncate(path, size);
    await change();
    const script = `
      import { readFileSync } from 'node:fs';
      import { openAudit } from ${JSON.stringify(new URL('../../src/audit/journal/file-audit.ts', import.meta.url).href)};
      import { Secret } from ${JSON.stringify(new URL('../../src/base/secret.ts', import.meta.url).href)};
      const quiet = { level: 'info', debug() {}, info() {}, warn() {}, error() {} };
      const options = { ...JSON.parse(process.argv[1]), key: new Secret(process.argv[2]) };
      await openAudit(options, { log: quiet });
      console.log(/VmHWM:\\s+(\\d+) kB/.exec(readFileSync('/proc/self/status', 'utf8'))[1]);
      process.exit(0);`;
    const { key: _key, ...options } = auditOptions(scene.directory);
    const { stdout } = await run(process.execPath, [
      '--max-old-space-size=64',
      '--input-type=module',
      '--eval',
      script,
      JSON.stringify(options),
      AUDIT_KEY,
    ]);
    expect(Number(stdout) * 1024).toBeLessThan(160 * 2 ** 20);
  });
});

/** A segment of 240 MiB as a gateway leaves it; gives its size. */
async function writeLarge(path: string): Promise<number> {
  const keys = auditKeys(new Secret(AUDIT_KEY));
  const opened = new Date(0).toISOString();
  const header = headerLine({ replica: REPLICA, first: 1, previous: GENESIS, key: keys.id, opened });
  const handle = await open(path, 'w');
  let [previous, seq, size] = [GENESIS, 1, 0];
  for (let lines = header; size < 240 * 2 ** 20; lines = '') {
    const first = seq;
    while (lines.length < 2 ** 18) {
      lines += recordLine(seq, opened, `"kind":"access","path":"/${'a'.repeat(500)}"}`);
      seq += 1;
    }
    const seal = sealFor(keys, { replica: REPLICA, previous }, { first, last: seq - 1 }, Buffer.from(lines));
    const text = `${lines}${sealLine(seal)}`;
    await handle.write(text);
    size += text.length;
    previous = seal.hmac;
  }
  await handle.close();
  return size;
}

async function appendTail(path: string): Promise<void> {
  const line = `${'{"seq":1,"time":"2026-01-01T00:00:00.000Z","kind":"access"'.padEnd(1000)}}\n`;
  await appendFile(path, line.repeat(15_000) + 'x'.repeat(12 * 2 ** 20));
}
