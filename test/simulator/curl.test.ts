import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { defaultSettings } from '../../src/simulator/settings.ts';
import { type Simulator, startSimulator } from '../../src/simulator/simulator.ts';
import { needPackages } from '../support/system-packages.ts';
import { authors } from './session.ts';

const run = promisify(execFile);
const abstracts =
  '/api/abstracts/v3/abstracts/full/abstractsbyid?site_name=demo&ids=%27A-1001%27,%27A-1002%27';

let simulator: Simulator<'submissions' | 'abstracts'>;
let folder: string;

beforeAll(async () => {
  simulator = await startSimulator(defaultSettings());
  folder = await mkdtemp(join(tmpdir(), 'simulator-'));
  await writeFile(join(folder, 'ca.pem'), simulator.ca);
});
afterAll(async () => {
  await simulator.close();
  await rm(folder, { recursive: true });
});
beforeEach(() => {
  simulator.reset('submissions');
  simulator.reset('abstracts');
});

/** curl with the authority, Digest and the demo's account; the last line is the status. */
async function curl(name: 'submissions' | 'abstracts', target: string, ...more: string[]) {
  needPackages('curl');
  const { stdout } = await run('curl', [
    ...['--silent', '--show-error', '--max-time', '20', '--cacert', join(folder, 'ca.pem')],
    ...['--digest', '--user', 'demo-user:demo-api-key', '--write-out', '\n%{http_code}', ...more],
    `${simulator.deployments[name].origin}${target}`,
  ]);
  const end = stdout.lastIndexOf('\n');
  return { status: Number(stdout.slice(end + 1)), body: stdout.slice(0, end) };
}

describe('curl --digest, which shares no code with the simulator, is answered', () => {
  test('as the specification says: MD5 without qop', async () => {
    const seen = await curl('submissions', authors);
    expect(seen.status).toBe(200);
    expect(seen.body).toContain('<submissionId>DEMO-2026-0001</submissionId>');
    expect(simulator.counts('submissions')).toMatchObject({ requests: 2, challenges: 1, accepted: 1 });
  });

  test('by the other deployment', async () => {
    const seen = await curl('abstracts', abstracts);
    expect(seen.status).toBe(200);
    expect(seen.body.match(/<abstractId>/g)).toHaveLength(2);
  });

  test.each([
    [['MD5'], 'auth'],
    [['SHA-256'], 'auth'],
    [['SHA-256'], 'none'],
    [['MD5-sess'], 'auth'],
    [['SHA-256-sess'], 'auth'],
    [['SHA-256', 'MD5'], 'both'],
  ] as const)('with %s and qop %s', async (algorithms, qop) => {
    simulator.set('abstracts', {
      algorithms: [...algorithms] as ['MD5'],
      qop,
      opaque: true,
      requireMatchingOpaque: true,
    });
    expect((await curl('abstracts', abstracts)).status).toBe(200);
    simulator.set('abstracts', {
      algorithms: ['MD5'],
      qop: 'none',
      opaque: false,
      requireMatchingOpaque: false,
    });
  });

  test('with 401 to a wrong password', async () => {
    const seen = await curl('submissions', authors, '--user', 'demo-user:guess');
    expect(seen.status).toBe(401);
    expect(simulator.counts('submissions').refused['wrong-response']).toBe(1);
  });

  test('with 401 to a target that was rewritten after signing', async () => {
    const seen = await curl('submissions', authors, '--request-target', `${authors}&x=1`);
    expect(seen.status).toBe(401);
    expect(simulator.counts('submissions').refused.uri).toBe(1);
  });

  test('several times over one connection', async () => {
    const { origin } = simulator.deployments.submissions;
    const seen = await curl('submissions', authors, `${origin}${authors}`, `${origin}${authors}`);
    expect(seen.status).toBe(200);
    expect(simulator.counts('submissions')).toMatchObject({ connections: 1, requests: 6, accepted: 3 });
  });

  test('with 401 before it sends the body that it holds back for 100 Continue', async () => {
    simulator.set('submissions', { testPaths: true });
    const file = join(folder, 'body');
    await writeFile(file, 'x'.repeat(2_000_000));
    const more = ['--data-binary', `@${file}`, '--header', 'Expect: 100-continue', '--include'];
    const { status, body } = await curl('submissions', '/echo', ...more);
    expect(status).toBe(200);
    expect(body.match(/^HTTP\/1.1 \d+/gm)).toEqual(['HTTP/1.1 401', 'HTTP/1.1 100', 'HTTP/1.1 200']);
    expect(JSON.parse(body.slice(body.indexOf('{')))).toMatchObject({ body: { length: 2_000_000 } });
  });
});
