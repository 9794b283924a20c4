import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { beforeEach, describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { defaultSettings } from '../../../src/simulator/settings.ts';
import { startGateway } from '../../support/gateway.ts';
import { startSimulator } from '../../support/simulator.ts';
import { needPackages } from '../../support/system-packages.ts';
import { codeOf, connect, echoOf, useRunning, useWire } from '../../support/wire.ts';

const run = promisify(execFile);

describe('the upstream gets the target byte for byte:', () => {
  // A server that compares the uri of the answer with the target, byte by byte, and calls a difference 400.
  const wire = useWire({ behaviour: { uriMismatchStatus: 400 } });

  test.each([
    '/echo?ids=%27DEMO-1%27,%27DEMO-2%27&site_name=demo',
    "/echo?ids='DEMO-1'",
    '/echo/%2f%2F%c3%A9%C3%a9',
    '/echo//a//../b/./c/..',
    '/echo/..',
    '/echo/../echo',
    '/echo?',
    '/echo??&&==',
    '/echo/;v=1;w?a;b',
    '/echo/{a}|[b]^`c`<d>~',
    '/echo/%',
    '/echo/%zz%0',
    '/echo?a=%00%0d%0aX:%20y',
    '/echo?a=http://other.example/',
    `/echo?${'x'.repeat(8_000)}`,
  ])('%s', async (target) => {
    const answer = await wire.ask(`GET ${target} HTTP/1.1\r\nHost: x\r\n\r\n`);
    expect(echoOf(answer).url).toBe(target);
  });

  test('path and query of an absolute form', async () => {
    const { port } = wire.simulator.deployments.submissions;
    const path = "/echo//a/%2f/../b?c='d";
    const answer = await wire.ask(`GET http://127.0.0.1:${port}${path} HTTP/1.1\r\nHost: x\r\n\r\n`);
    expect(echoOf(answer).url).toBe(path);
  });

  test('with any printable characters', async () => {
    const client = await wire.connect();
    // `#` begins a fragment, which is no part of a target (RFC 9110 §7.1); `"` and `\` would end the uri of an answer.
    const printable = fc
      .integer({ min: 0x21, max: 0x7e })
      .map((code) => String.fromCharCode(code))
      .filter((character) => !'"#\\'.includes(character));
    await fc.assert(
      fc.asyncProperty(
        fc.array(printable, { maxLength: 200 }),
        fc.constantFrom('/', '?'),
        async (characters, separator) => {
          const target = `/echo${separator}${characters.join('')}`;
          await client.send(`GET ${target} HTTP/1.1\r\nHost: x\r\n\r\n`);
          expect(echoOf(await client.answer()).url).toBe(target);
        },
      ),
      { numRuns: 200 },
    );
    expect(wire.simulator.counts('submissions').refused).toMatchObject({ uri: 0, 'wrong-response': 0 });
  });

  test.each(['/echo?q="a"', '/echo/a\\b'])(
    'but not %s, which servers read differently in the answer',
    async (target) => {
      const answer = await wire.ask(`GET ${target} HTTP/1.1\r\nHost: x\r\n\r\n`);
      expect([answer.status, codeOf(answer)]).toEqual([400, 'bad-request']);
    },
  );

  test('as curl sends it', async () => {
    const target = "/echo/a/../b//c?ids=%27DEMO%27&q='x'";
    needPackages('curl');
    const { stdout } = await run('curl', [
      '-sS',
      '--path-as-is',
      '--globoff',
      `${wire.gateway.origin}${target}`,
    ]);
    expect(JSON.parse(stdout).url).toBe(target);
  });

  describe('never a byte that no target may hold (RFC 3986 §2):', () => {
    test.each(['\x00', '\x01', '\t', '\x0b', '\x1f', '\x7f', '\x80', '\xe9', '\xc3\xa9', '\xff'])(
      '%j',
      async (bytes) => {
        const { requests } = wire.simulator.counts('submissions');
        const answer = await wire.ask(`GET /echo/${bytes} HTTP/1.1\r\nHost: x\r\n\r\n`);
        expect([answer.status, codeOf(answer)]).toEqual([400, 'bad-request']);
        expect(wire.simulator.counts('submissions').requests).toBe(requests);
      },
    );
  });
});

describe('a request goes to its deployment', () => {
  const AUTHORS = '/api/manuscripts/v2/submissions/full/contributors/authors/submissionids';
  const SUBMISSION = `${AUTHORS}?ids=%27DEMO-2026-0001%27&site_name=demo&external_id=123`;
  const ABSTRACT = '/api/abstracts/v3/abstracts/full/abstractsbyid?site_name=demo&ids=%27A-1001%27';

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

    test('never under another path', async () => {
      for (const target of ['/', '/api', '/api/manuscripts', '/api/abstractsx', '/API/abstracts/']) {
        const answer = await ask(target);
        expect([answer.status, codeOf(answer)]).toEqual([404, 'no-deployment']);
      }
      expect(arrivals()).toEqual([]);
    });
  });

  describe('by its host', () => {
    test.each(['submissions.internal', 'Submissions.Internal:8080'])('%s', async (host) => {
      // The path of the other deployment: the service itself says that it has no such thing.
      const answer = await ask(ABSTRACT, host);
      expect(answer.status).toBe(404);
      expect(arrivals()).toEqual(['submissions']);
    });
  });

  describe('by the upstream in an absolute target', () => {
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

    test('whose missing port means 443', async () => {
      const answer = await ask(`http://127.0.0.1${SUBMISSION}`);
      expect([answer.status, codeOf(answer)]).toEqual([404, 'no-deployment']);
    });

    test('which decides even if the path fits', async () => {
      for (const authority of ['unknown.example', '127.0.0.1:1', 'localhost', '127.0.0.1.example']) {
        const answer = await ask(`http://${authority}${SUBMISSION}`, 'submissions.internal');
        expect([answer.status, codeOf(answer)]).toEqual([404, 'no-deployment']);
      }
      expect(arrivals()).toEqual([]);
    });

    test('as curl sends it with http_proxy', async () => {
      const { gateway, simulator } = scene();
      const { port } = simulator.deployments.submissions;
      needPackages('curl');
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

  describe('unless its target has no path:', () => {
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
});
