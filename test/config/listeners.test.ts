import { describe, expect, test } from '@jest/globals';
import { parse } from 'yaml';
import { keysThatNeedRestart, pin } from '../../src/app/changes.ts';
import { runAtOnce } from '../../src/base/steps.ts';
import { effectiveYaml } from '../../src/config/effective.ts';
import { locatedAlone } from '../../src/config/load.ts';
import { fromPieces, toPieces } from '../../src/config/transfer.ts';
import type { ListenTls } from '../../src/gateway/listener.ts';
import type { AppSetup } from '../../src/setup/setup.ts';
import { setupFor } from '../support/gateway.ts';
import { parseConfig } from '../support/parsed-config.ts';
import { type Case, expectIssues, served } from './issue-lines.ts';
import { CREDENTIALS, DEPLOYMENTS } from './texts.ts';

const RIGHT = `${CREDENTIALS}\n${DEPLOYMENTS}`;
const withListeners = (...lines: string[]): string =>
  [RIGHT, 'listen:', ...lines.map((line) => `  - ${line}`)].join('\n');
/** A client, since nobody else may reach an address of other machines. */
const EXPOSED = '\nclients: [{ id: c, identify: { addresses: [10.0.0.1] }, allow: [{ deployment: d }] }]';
const configOf = (...lines: string[]) => parseConfig(served(withListeners(...lines)), 'c.yaml');
const treeOf = (text: string) => locatedAlone(Buffer.from(text), 'c.yaml').tree;

const cases: Case[] = [
  ['loopback, a UNIX socket and TLS', withListeners('{}', '{ address: "unix:/a" }', '{ port: 8443 }'), []],
  ['any free port twice', withListeners('{ port: 0 }', '{ port: 0 }'), []],
  ['one port of two addresses', withListeners('{ address: 127.0.0.1 }', '{ address: 127.0.0.2 }'), []],
  [
    'a listener that is no mapping',
    withListeners('{}', 'text'),
    ['5:5 listen[1]: must be a mapping of keys to values'],
  ],
  [
    'an unknown key of the second listener',
    withListeners('{}', '{ port: 1, host: a }'),
    ['5:16 listen[1].host: does not exist: the nearest key is hosts'],
  ],
  [
    'one address twice',
    withListeners('{ port: 1 }', '{ port: 2 }', '{ port: 1 }'),
    ['6:13 listen[2].port: is the port of listen[0], too: give each its own'],
  ],
  [
    'an address that stands for all, and one of them',
    withListeners('{ port: 1 }', '{ port: 1, address: 0.0.0.0 }'),
    [
      '5:13 listen[1].port: is the port of listen[0], too: give each its own',
      '6:12 anonymous: would let everyone who reaches listen[1].address use the credentials: set it to false and describe clients, or listen on 127.0.0.1',
    ],
  ],
  ...[
    ['"::1"', '"0:0:0:0:0:0:0:1"'],
    ['127.0.0.1', '"::ffff:127.0.0.1"'],
    ['localhost', '"::"'],
  ].map(
    ([one, other]): Case => [
      `one address in two spellings, ${one} and ${other}`,
      withListeners(`{ port: 1, address: ${one} }`, `{ port: 1, address: ${other} }`).concat(EXPOSED),
      ['5:13 listen[1].port: is the port of listen[0], too: give each its own'],
    ],
  ),
  [
    'one address of two links',
    withListeners('{ port: 1, address: "fe80::1%a" }', '{ port: 1, address: "fe80::1%b" }').concat(EXPOSED),
    [],
  ],
  [
    'one socket twice',
    withListeners('{ address: "unix:/a" }', '{ address: "unix:/a" }'),
    ['5:16 listen[1].address: is the socket of listen[0], too: give each its own'],
  ],
  [
    'the port of the control plane',
    withListeners('{}', '{ port: 8081 }'),
    ['1:1 control.port: is the port of listen[1], too: give each its own'],
  ],
  [
    'revocation lists without an authority',
    withListeners('{}', '{ port: 1, tls: { certFile: a, keyFile: b, crlFile: c } }'),
    [
      '5:57 listen[1].tls.crlFile: needs listen[1].tls.clientCaFile: without it no client is asked for a certificate',
    ],
  ],
  [
    'a UNIX socket with the PROXY protocol',
    withListeners('{}', '{ address: "unix:/a", proxyProtocol: [10.0.0.7] }'),
    [
      '5:42 listen[1].proxyProtocol: names networks, and clients of a UNIX socket are of none: leave it out, or listen on a port',
    ],
  ],
  [
    'different limits',
    withListeners('{ limits: { connections: 5 } }', '{ port: 1, limits: { connections: 6 } }', '{ port: 2 }'),
    [
      '5:24 listen[1].limits: differs from listen[0].limits, and it holds for the whole gateway: give it at one listener',
    ],
  ],
  [
    'different proxies',
    withListeners('{ trustedProxies: [10.0.0.1] }', '{ port: 1, trustedProxies: [10.0.0.2] }'),
    [
      '5:32 listen[1].trustedProxies: differs from listen[0].trustedProxies, and it holds for the whole gateway: give it at one listener',
    ],
  ],
  [
    'an issue of what listeners share is told once',
    withListeners('{}', '{ port: 1, limits: { connections: 0 }, trustedProxies: ["::/0"] }', '{ port: 2 }'),
    [
      '5:39 listen[1].limits.connections: must be a whole number from 1 to 1000000, not 0',
      '5:61 listen[1].trustedProxies[0]: is every address, so that everyone could claim any: name the proxies only',
    ],
  ],
];

describe('a list of listeners', () => {
  test.each(cases)('%s', (_title, text, lines) => expectIssues(served(text), lines));

  test('shares what is given at one of them', () => {
    const { listen } = configOf(
      '{ address: "unix:/a" }',
      '{ port: 1, limits: { connections: 5 }, trustedProxies: [10.0.0.1] }',
    );
    expect(listen.map(({ limits }) => limits.connections)).toEqual([5, 5]);
    expect(listen.map(({ trustedProxies }) => trustedProxies.map(String))).toEqual([
      ['10.0.0.1/32'],
      ['10.0.0.1/32'],
    ]);
    expect(listen.map(({ address, port }) => `${address} ${port}`)).toEqual(['unix:/a 8080', '127.0.0.1 1']);
  });

  test('a client with a certificate needs one listener that asks for it', () => {
    const client =
      'clients: [{ id: c, identify: { certificate: { subject: "CN=c" } }, allow: [{ deployment: d }] }]';
    const tls = '{ port: 1, tls: { certFile: a, keyFile: b, clientCaFile: c } }';
    expectIssues(`${withListeners('{}', tls)}\n${client}`, []);
  });

  test('is shown with its defaults, and means the same then', () => {
    const text = served(
      withListeners('{ address: "unix:/a" }', '{ port: 1, limits: { connections: 5 }, hosts: [a.example] }'),
    );
    const yaml = effectiveYaml(treeOf(text));
    expect(parse(yaml).listen).toMatchObject([
      { address: 'unix:/a', limits: { connections: 5, headerSize: '16KiB' } },
      { address: '127.0.0.1', port: 1, limits: { connections: 5 }, hosts: ['a.example'] },
    ]);
    expect(parseConfig(yaml, 'c.yaml')).toEqual(parseConfig(text, 'c.yaml'));
  });
});

test('one listener is shown as one', () => {
  const yaml = effectiveYaml(treeOf(served(`${RIGHT}\nlisten: { port: 1 }`)));
  expect(parse(yaml).listen).toMatchObject({ address: '127.0.0.1', port: 1 });
});

describe('a reload', () => {
  const tlsOf = (cert: string): ListenTls => ({
    cert,
    key: '',
    clientCa: undefined,
    crl: undefined,
    crlExpires: 0,
    minVersion: 'TLSv1.2',
    validFrom: 0,
    expires: 1,
  });

  async function setupOf(text: string, tls: readonly (ListenTls | undefined)[]): Promise<AppSetup> {
    const { config, tree } = locatedAlone(Buffer.from(text), 'c.yaml');
    const base = await setupFor({ d: { origin: 'https://u.example.org' } });
    return { ...base, config, listenTls: tls, source: { file: 'c.yaml', config: toPieces(tree) } };
  }

  const tls = 'tls: { certFile: a, keyFile: b }';

  test('follows a listener by its address, wherever it is in the list', async () => {
    const running = await setupOf(
      served(withListeners('{ port: 1, hosts: [a.example] }', `{ port: 2, hosts: [b.example], ${tls} }`)),
      [undefined, tlsOf('old')],
    );
    const next = await setupOf(
      served(withListeners(`{ port: 2, hosts: [c.example], ${tls} }`, '{ port: 1, hosts: [d.example] }')),
      [tlsOf('new'), undefined],
    );
    const { setup, needsRestart } = pin(running, next);
    expect(needsRestart).toEqual([]);
    expect(setup.config.listen).toMatchObject([
      { port: 1, hosts: ['d.example'] },
      { port: 2, hosts: ['c.example'] },
    ]);
    expect(setup.listenTls.map((each) => each?.cert)).toEqual([undefined, 'new']);
    // A worker reads its configuration from these pieces.
    expect(runAtOnce(fromPieces(setup.source.config, 'c.yaml'))).toEqual(setup.config);
  });

  test('keeps the number of listeners, and what else needs a restart, and shares what changes for all', async () => {
    const running = await setupOf(
      served(
        withListeners('{ port: 1 }', `{ port: 2, hosts: [b.example], ${tls}, trustedProxies: [10.0.0.1] }`),
      ),
      [undefined, tlsOf('old')],
    );
    const next = await setupOf(
      served(
        `${RIGHT}\nlisten: { port: 2, hosts: [c.example], trustedProxies: [10.0.0.2], tls: { certFile: c, keyFile: b } }`,
      ),
      [tlsOf('of another file')],
    );
    const { setup, needsRestart } = pin(running, next);
    expect(needsRestart).toEqual(['listen[0]', 'listen[1].tls.certFile']);
    const [plain, secure] = setup.config.listen;
    expect(plain).toMatchObject({ port: 1 });
    expect(secure).toMatchObject({ port: 2, hosts: ['c.example'], tls: running.config.listen[1]?.tls });
    for (const { trustedProxies } of setup.config.listen)
      expect(trustedProxies.map(String)).toEqual(['10.0.0.2/32']);
    expect(setup.listenTls.map((each) => each?.cert)).toEqual([undefined, 'old']);
    expect(runAtOnce(fromPieces(setup.source.config, 'c.yaml'))).toEqual(setup.config);
    expect(pin(setup, running).setup.config).toEqual(running.config);
  });

  test('names a listener that was added, and a port that changed', () => {
    const running = configOf('{ port: 1 }', '{ port: 2 }');
    expect(keysThatNeedRestart(running, configOf('{ port: 1 }', '{ port: 2 }', '{ port: 3 }'))).toEqual([
      'listen[2]',
    ]);
    expect(keysThatNeedRestart(running, configOf('{ port: 3 }', '{ port: 2 }'))).toEqual(['listen[0].port']);
    expect(keysThatNeedRestart(running, configOf('{ port: 1 }'))).toEqual(['listen[1]']);
  });
});
