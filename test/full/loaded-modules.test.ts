import { expect, test } from '@jest/globals';
import { startGatewayProcess } from '../support/gateway-process.ts';
import { PROGRAM, runCommand, SOURCE_PROGRAM } from '../support/program.ts';

/** Libraries that only some configurations need. Those of HTTP and age take 15 MiB of memory each. */
const OPTIONAL = [
  'age-encryption/',
  'aws4fetch/',
  // A second copy: prom-client requires `index.cjs`.
  '@opentelemetry/api/dist/index.mjs',
  'ioredis/',
  'jose/',
  'pino-pretty/',
  'undici/',
];

const NODE_OPTIONS = `--import ${new URL('../support/loaded-modules.js', import.meta.url).href}`;

interface Report {
  loaded: string[];
  builtin: string[];
}

/** Runs a gateway with so many workers; resolves to the modules that each of its processes had loaded at its end. */
async function loadedBy(workers: number, program = SOURCE_PROGRAM): Promise<Report[]> {
  await using gateway = await startGatewayProcess(
    { submissions: { origin: 'https://127.0.0.1:1' } },
    { workers },
    { environment: { ...process.env, NODE_OPTIONS } as Record<string, string>, program },
  );
  await gateway.close();
  return reportsIn(gateway.printed);
}

function reportsIn(lines: readonly string[]): Report[] {
  return lines.filter((line) => line.startsWith('{"loaded"')).map((line) => JSON.parse(line));
}

function has({ loaded }: Report, name: string): boolean {
  return loaded.some((url) => url.includes(`/node_modules/${name}`));
}

test('a gateway that needs none of the optional libraries loads none of them', async () => {
  const [report, ...others] = await loadedBy(1);
  if (report === undefined) throw new Error('the gateway did not say what it loaded');
  expect(others).toEqual([]);
  // Seen, whether they are imported or required.
  for (const name of ['zod/', 'express/', '@opentelemetry/api/']) expect(has(report, name)).toBe(true);
  expect(OPTIONAL.filter((name) => has(report, name))).toEqual([]);
  // The undici of Node.js itself, which `import` of node:http loads.
  expect(report.builtin).not.toContain('NativeModule internal/deps/undici/undici');
});

test('the built program does not load the OpenTelemetry API where no SDK is registered', async () => {
  const [report] = await loadedBy(1, PROGRAM);
  if (report === undefined) throw new Error('the gateway did not say what it loaded');
  expect(report.loaded).toContainEqual(expect.stringMatching(/\/process-parts-[^/]*\.js$/));
  expect(has(report, '@opentelemetry/api/')).toBe(false);
});

test('a worker does not load the control plane, which its primary process has', async () => {
  const reports = await loadedBy(2);
  const isWorker = ({ loaded }: Report): boolean => loaded.some((url) => url.endsWith('/src/cli/worker.ts'));
  const workers = reports.filter(isWorker);
  expect(reports).toHaveLength(3);
  expect(workers).toHaveLength(2);
  for (const worker of workers) {
    expect(has(worker, 'ipaddr.js/')).toBe(true);
    expect(['express/', 'helmet/', 'yaml/', ...OPTIONAL].filter((name) => has(worker, name))).toEqual([]);
  }
});

test('a version is printed without loading any command', async () => {
  for (const flag of ['--version', '-V']) {
    const command = [`NODE_OPTIONS=${NODE_OPTIONS}`, process.execPath, SOURCE_PROGRAM, flag];
    const { status, printed } = await runCommand('env', command);
    const [report] = reportsIn(printed.split('\n'));
    expect(status).toBe(0);
    expect(report?.loaded.some((url) => url.endsWith('/src/cli/io.ts'))).toBe(true);
    expect(report?.loaded.filter((url) => /\/src\/cli\/serve\.ts$|\/node_modules\/zod\//.test(url))).toEqual(
      [],
    );
  }
});
