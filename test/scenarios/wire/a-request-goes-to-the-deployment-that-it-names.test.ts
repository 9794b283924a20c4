import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { beforeEach, describe, expect, test } from '@jest/globals';
import { defaultSettings } from '../../../src/simulator/settings.ts';
import { startSimulator } from '../../../src/simulator/simulator.ts';
import { startGateway } from '../../support/running-gateway.ts';
import { codeOf, useClients, useRunning } from '../../support/wire.ts';

const AUTHORS = '/api/manuscripts/v2/submissions/full/contributors/authors/submissionids';
const SUBMISSION = `${AUTHORS}?ids=%27DEMO-2026-0001%27&site_name=demo&external_id=123`;
const ABSTRACT = '/api/abstracts/v3/abstracts/full/abstractsbyid?site_name=demo&ids=%27A-1001%27';

const run = promisify(execFile);
const connect = useClients();
const scene = useRunning(async () => {
  const simulator = await startSimulator(defaultSettings());
  const { submissions, abstracts } = simulator.deployments;
  const gateway = await startGateway({
    submissions: {
      origin: submissions.origin,
      ca: simulator.ca,
      settings: { match: { pathPrefix: '/api/manuscripts/', host: 'submissions.internal' } },
    },
    abstracts: {
      origin: abstracts.origin,
      ca: simulator.ca,
      settings: { match: { pathPrefix: '/api/abstracts' } },
    },
  });
  const close = async () => {
    await gateway.close();
    await simulator.close();
  };
  return { simulator, gateway, close };
});

type Name = 'submissions' | 'abstracts';
const NAMES = ['submissions', 'abstracts'] as const;

beforeEach(() => {
  for (const name of NAMES) scene().simulator.reset(name);
});

/** Where accepted requests arrived since the test began. */
function arrivals(): Name[] {
  return NAMES.filter((name) => scene().simulator.counts(name).accepted > 0);
}

async function ask(target: string, host = 'gateway.internal', method = 'GET') {
  const client = await connect(scene().gateway.port);
  await client.send(`${method} ${target} HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
  return client.answer(method);
}

describe('by its path', () => {
  test.each([
    [SUBMISSION, 'submissions', 'DEMO-2026-0001'],
    [ABSTRACT, 'abstracts', 'A-1001'],
  ] as const)('%s', async (target, name, content) => {
    const answer = await ask(target);
    expect(answer.status).toBe(200);
    expect(answer.body.toString()).toContain(content);
    expect(arrivals()).toEqual([name]);
  });

  test('and nothing goes anywhere under another', async () => {
    for (const target of ['/', '/api', '/api/manuscripts', '/api/abstractsx', '/API/abstracts/']) {
      const answer = await ask(target);
      expect([answer.status, codeOf(answer)]).toEqual([404, 'no-deployment']);
    }
    expect(arrivals()).toEqual([]);
  });
});

describe('by its host, whatever the path', () => {
  test.each(['submissions.internal', 'Submissions.Internal:8080'])('%s', async (host) => {
    // The path of the other deployment: the service itself says that it has no such thing.
    const answer = await ask(ABSTRACT, host);
    expect(answer.status).toBe(404);
    expect(arrivals()).toEqual(['submissions']);
  });
});

describe('by the name of the upstream, as to a forward proxy', () => {
  test.each(NAMES)('%s', async (name) => {
    const { port } = scene().simulator.deployments[name];
    const target = name === 'submissions' ? SUBMISSION : ABSTRACT;
    for (const scheme of ['http', 'https', 'HTTP']) {
      scene().simulator.reset(name);
      const answer = await ask(`${scheme}://127.0.0.1:${port}${target}`, 'elsewhere.example');
      expect(answer.status).toBe(200);
      expect(arrivals()).toEqual([name]);
    }
  });

  test('without its port it is 443, which is another upstream', async () => {
    const answer = await ask(`http://127.0.0.1${SUBMISSION}`);
    expect([answer.status, codeOf(answer)]).toEqual([404, 'no-deployment']);
  });

  test('another name goes nowhere, although the path would fit', async () => {
    for (const authority of ['unknown.example', '127.0.0.1:1', 'localhost', '127.0.0.1.example']) {
      const answer = await ask(`http://${authority}${SUBMISSION}`, 'submissions.internal');
      expect([answer.status, codeOf(answer)]).toEqual([404, 'no-deployment']);
    }
    expect(arrivals()).toEqual([]);
  });

  test('curl with nothing but http_proxy gets the content', async () => {
    const { gateway, simulator } = scene();
    const { port } = simulator.deployments.submissions;
    const { stdout } = await run(
      'curl',
      ['-sS', '--max-time', '20', `http://127.0.0.1:${port}${SUBMISSION}`],
      {
        env: { PATH: process.env['PATH'], http_proxy: gateway.origin, no_proxy: '' },
      },
    );
    expect(stdout).toContain('<submissionId>DEMO-2026-0001</submissionId>');
  });
});

describe('what names no path is refused', () => {
  test.each([
    ['OPTIONS', '*'],
    ['GET', '*'],
    ['GET', 'gateway.internal'],
    ['GET', 'ftp://127.0.0.1/'],
    ['GET', 'http://'],
    ['GET', 'http://user@127.0.0.1/'],
    ['GET', '/api/abstracts/#x'],
  ])('%s %s', async (method, target) => {
    const answer = await ask(target, 'submissions.internal', method);
    expect([answer.status, codeOf(answer)]).toEqual([400, 'bad-request']);
    expect(arrivals()).toEqual([]);
  });
});
