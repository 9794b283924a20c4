import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { cp, mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { describe, expect, test } from '@jest/globals';
import { Secret } from '../../src/base/secret.ts';
import { AUDIT_KEY, openTestAudit, recordAccess, useFolders } from '../support/audit-log.ts';
import { allPages, blocksOf, commandsOf, runInShell, type Step } from '../support/page-commands.ts';
import { compileCache, gateway, PROGRAM } from '../support/program.ts';
import { repository } from '../support/repository.ts';

/** A page whose commands are run by a test of their own, from the first command that contains this text on. */
const WHOLE = {
  page: 'docs/start/first-hour.md',
  from: 'openssl req -x509',
  test: 'test/full/first-hour.test.ts',
};

/** What a command has to print when this file runs it. */
const RUN: Record<string, Record<string, RegExp>> = {
  'README.md': {
    'curl -i "http://127.0.0.1:8080/api/manuscripts/v2/submissions/full/contributors/authors/submissionids?ids=%27DEMO-2026-0001%27&site_name=demo&external_id=123"':
      /^HTTP\/1\.1 200 [\s\S]*DEMO-2026-0001/,
    'curl -i "http://127.0.0.1:8080/api/abstracts/v3/abstracts/full/abstractsbyid?site_name=demo&ids=%27A-1001%27"':
      /^HTTP\/1\.1 200 [\s\S]*A-1001/,
    'curl -ik "https://127.0.0.1:9444/api/abstracts/v3/abstracts/full/abstractsbyid?site_name=demo&ids=%27A-1001%27"':
      /^HTTP\/1\.1 401 Unauthorized[\s\S]*www-authenticate: Digest realm="ExampleApiService", nonce="/i,
  },
  'docs/audit/use.md': {
    'digest-gateway audit key new --out secrets/audit-signing-key': /audit-signing-key\.pub/,
    'digest-gateway audit verify --directory copy/audit --public-key audit-signing-key.pub':
      /^head gateway-1:\d+:\S+\ncopy\/audit: ok — 1 replica, .* signed heads over \d+ records\n$/,
    'digest-gateway audit prove 7f3c… --config gateway.yaml > request.proof': /^$/,
    'digest-gateway audit check-proof request.proof --public-key audit-signing-key.pub':
      /^\{"seq":\d+,.*\nrequest\.proof: ok — 1 record of request 7f3c in digest-gateway\/gateway-1\/1\n$/,
    'digest-gateway audit usage --config gateway.yaml --by client,site --from 2026-03 --to 2026-03':
      /^CLIENT +SITE +REQUESTS +IDENTIFIERS +BYTES-OUT +BYTES-IN +DAYS +ERRORS\nreporting +journal-a +2 /,
  },
  'docs/audit/witness.md': {
    'digest-gateway audit key new --out witness-key': /witness-key\.pub/,
  },
  'docs/configure/policy.md': {
    'digest-gateway policy replay --config new.yaml --log-config gateway.yaml --from 30d':
      /^VERDICT +WAS +CLIENT [^\n]*\nrefused +served +reporting +submissions +- +client-forbidden +1 [\s\S]*1 request would be refused, 1 allowed/,
    'digest-gateway policy learn --config gateway.yaml --client reporting --from 30d':
      /^# 2 requests of reporting\nallow:\n {2}- deployment: submissions # 1 request\n/,
  },
  'docs/operate/kubernetes.md': {
    'TOKEN=$(openssl rand -hex 32); printf %s "$TOKEN" | sha256sum': /^[0-9a-f]{64} {2}-\n$/,
  },
  'docs/operate/rotation.md': {
    'digest-gateway credential rotate journal-a --withdraw --config gateway.yaml':
      /credentials\.age: journal-a, version 1 stays, the next version is withdrawn; a gateway that uses it already keeps it, and logs a warning\n$|^journal-a has no next version, so there is nothing to withdraw\n$/,
  },
};

/** Commands that another test runs, with its file, or that none runs, with the reason. */
const EXCEPTIONS: Record<string, Record<string, { readonly test: string } | { readonly reason: string }>> = {
  'README.md': {
    'npm ci && npm run demo': {
      reason: 'npm ci would replace the dependencies of the tests; the demo runs here',
    },
  },
  'docs/audit/use.md': {
    'digest-gateway audit forget --config gateway.yaml --month 2026-03': {
      test: 'test/full/cli/audit-forget.test.ts',
    },
  },
  'docs/audit/witness.md': {
    'cat witness.yaml': { test: 'test/witness/witness.test.ts' },
    'digest-gateway witness --config witness.yaml': { test: 'test/witness/witness.test.ts' },
    'curl -o heads https://witness.example.org:8090/checkpoints': { test: 'test/witness/witness.test.ts' },
    'digest-gateway audit verify --directory copy/audit --public-key audit-signing-key.pub --witness-key witness.pub --witness-heads heads':
      { test: 'test/full/scenarios/audit/witness.test.ts' },
    'digest-gateway audit check-proof request.proof --public-key audit-signing-key.pub --witness-key witness.pub':
      { test: 'test/full/scenarios/audit/witness.test.ts' },
    ...Object.fromEntries(
      [
        'digest-gateway audit verify --directory copy/audit --public-key audit-signing-key.pub --timestamp-ca tsa-ca.pem',
        'tail -n 1 copy/audit/gateway-1/000000000001.stamped > line',
        `printf %b "$(sed 's/{"checkpoint":"\\([^"]*\\)".*/\\1/' line)" > head`,
        `sed 's/.*"timestamp":"\\([^"]*\\)".*/\\1/' line | base64 -d > head.tst`,
        'openssl ts -verify -in head.tst -token_in -data head -CAfile tsa-ca.pem',
      ].map((command) => [command, { test: 'test/scenarios/audit/timestamps.test.ts' }]),
    ),
  },
  'docs/operate/deploy.md': {
    'docker build --build-arg NODE_IMAGE=node:26.10.0-slim@sha256:… -t digest-gateway .': {
      test: 'test/full/image.test.ts',
    },
    'docker run --read-only --cap-drop ALL --security-opt no-new-privileges --memory 512m --stop-timeout 65 -v ./gateway.yaml:/etc/digest-gateway/gateway.yaml:ro -v ./secrets:/run/secrets:ro -v state:/var/lib/digest-gateway -p 8080:8080 digest-gateway':
      { test: 'test/full/image.test.ts' },
  },
  'docs/operate/kubernetes.md': {
    'kubectl create secret generic digest-gateway-credentials --from-file=journal-a=api-key.txt': {
      reason: 'it needs a cluster',
    },
  },
  'docs/operate/monitoring.md': {
    'npm install ./digest-gateway-*.tgz @opentelemetry/sdk-node': {
      reason: 'it needs a registry of packages',
    },
    'export OTEL_EXPORTER_OTLP_ENDPOINT=http://collector.internal:4318': {
      test: 'test/full/package.test.ts',
    },
    'node_modules/.bin/digest-gateway serve --config gateway.yaml': {
      test: 'test/full/package.test.ts',
    },
  },
  'docs/operate/rotation.md': {
    'curl -X POST -H "Authorization: Bearer $TOKEN" http://127.0.0.1:8081/api/credentials/NAME/promote': {
      test: 'test/full/credential-operator.test.ts',
    },
  },
  'docs/security/supply-chain.md': Object.fromEntries(
    [
      'v=v26.10.0 a=node-$v-linux-x64',
      'curl -fO https://nodejs.org/dist/$v/SHASUMS256.txt.asc -fO https://nodejs.org/dist/$v/$a.tar.xz',
      'gpg --verify SHASUMS256.txt.asc',
      'grep " $a.tar.xz$" SHASUMS256.txt.asc | sha256sum --check',
      'tar -xJOf $a.tar.xz $a/bin/node | sha256sum',
      "digest=$(docker buildx imagetools inspect node:26.10.0-slim --format '{{.Manifest.Digest}}')",
      'echo "$digest"',
      'docker build --build-arg NODE_IMAGE=node:26.10.0-slim@$digest -t digest-gateway .',
    ].map((command) => [command, { reason: 'it needs nodejs.org or a registry of images' }]),
  ),
  'docs/start/first-hour.md': {
    'git clone REPOSITORY digest-gateway && cd digest-gateway': {
      reason: 'the repository has no public address',
    },
    'npm ci': { reason: 'it would replace the dependencies of the tests' },
    'npm run demo': { reason: 'the demo runs here as that of the README' },
  },
};

/** The commands of a page that WHOLE does not have. */
async function listedCommands(page: string): Promise<string[]> {
  const commands = (await blocksOf(page)).flatMap(commandsOf).map(({ command }) => command);
  if (page !== WHOLE.page) return commands;
  return commands.slice(
    0,
    commands.findIndex((command) => command.includes(WHOLE.from)),
  );
}

test('each command of each page is run by a test, or has a reason why none runs it', async () => {
  const found = new Map<string, readonly string[]>();
  for (const page of await allPages()) {
    const commands = [...new Set(await listedCommands(page))].sort();
    if (commands.length > 0) found.set(page, commands);
  }
  const pages = [...new Set([...Object.keys(RUN), ...Object.keys(EXCEPTIONS)])].sort();
  const listed = pages.map((page) => [page, [...Object.keys({ ...RUN[page], ...EXCEPTIONS[page] })].sort()]);
  expect([...found].sort(([a], [b]) => (a < b ? -1 : 1))).toEqual(listed);
  const tests = Object.values(EXCEPTIONS).flatMap((rows) =>
    Object.values(rows).flatMap((row) => ('test' in row ? row.test : [])),
  );
  expect([WHOLE.test, ...tests].filter((file) => !existsSync(join(repository, file)))).toEqual([]);
});

const folder = useFolders();

/** Runs commands of RUN in a folder, and compares what they print. `change`: as the test has it. */
async function runListed(
  place: string,
  listed: readonly (readonly [string, string])[],
  change: (command: string) => string = (command) => command,
): Promise<void> {
  const steps = listed.map(([, command]): Step => ({ command: change(command) }));
  const printed = await runInShell(place, steps);
  for (const [index, [page, command]] of listed.entries()) {
    expect([command, (printed[index] ?? '').replaceAll(`${place}/`, '')]).toEqual([
      command,
      expect.stringMatching(RUN[page]?.[command] ?? /never/),
    ]);
  }
}

function commandsIn(page: string): (readonly [string, string])[] {
  return Object.keys(RUN[page] ?? {}).map((command) => [page, command]);
}

const configOf = (allow: string): string => `
sealed: { file: credentials.age, identity: { file: identity.txt } }
credentials: { journal-a: { username: { value: me }, password: { sealed: journal-a } } }
deployments:
  submissions:
    baseUrl: https://a.example
    match: { pathPrefix: /api }
    siteParameter: site
    sites: { journal-a: { credential: journal-a } }
    operations: { authors: { method: GET, path: /api/x, parameters: { ids: quoted-list } } }
audit: { directory: audit, keyFile: key, signingKeyFile: secrets/audit-signing-key, parameters: [ids, site] }
clients: [{ id: reporting, identify: { addresses: [192.0.2.7] }, allow: ${allow} }]
`;

test('the commands for an audit log, rules and a sealed file do what the pages show', async () => {
  const place = await folder();
  const file = (name: string): string => join(place, name);
  await mkdir(file('secrets'));
  await writeFile(file('key'), AUDIT_KEY, { mode: 0o600 });
  await writeFile(file('gateway.yaml'), configOf('[{ deployment: submissions }]'));
  await writeFile(file('new.yaml'), configOf('[{ deployment: submissions, operations: [authors] }]'));
  const [newKey, ...useOfAudit] = commandsIn('docs/audit/use.md');
  if (newKey === undefined) throw new Error('The page makes a key first.');
  await runListed(place, [
    newKey,
    ...commandsIn('docs/audit/witness.md'),
    ...commandsIn('docs/operate/kubernetes.md'),
  ]);
  const signingKey = new Secret(await readFile(file('secrets/audit-signing-key'), 'utf8'));
  const { audit } = await openTestAudit(file('audit'), { replica: 'gateway-1', signingKey });
  const target = '/api/x?ids=%27A%27&site=journal-a';
  const credential = { name: 'journal-a', version: '1' };
  await recordAccess(audit, { requestId: '7f3c', target, credential });
  await recordAccess(audit, { method: 'POST', target: '/api/y?site=journal-a', operation: '', credential });
  await audit.close();
  await cp(file('audit'), file('copy/audit'), { recursive: true });
  await cp(file('secrets/audit-signing-key.pub'), file('audit-signing-key.pub'));
  const sealed = ['journal-a', '--config', file('gateway.yaml')];
  await gateway(['credential', 'seal', ...sealed, '--new-identity'], {}, 'first');
  await gateway(['credential', 'rotate', ...sealed], {}, 'second');
  const month = new Date().toISOString().slice(0, 7);
  const listed = [
    ...useOfAudit,
    ...commandsIn('docs/configure/policy.md'),
    ...commandsIn('docs/operate/rotation.md'),
  ];
  // The page shows what withdrawing says the first and the second time.
  await runListed(place, [...listed, ...listed.slice(-1)], (command) =>
    command.replace('7f3c…', '7f3c').replaceAll('2026-03', month),
  );
});

describe('the demo', () => {
  test('serves what the README asks for, and its upstream does not', async () => {
    const child = spawn(process.execPath, [PROGRAM, 'demo', '--free-ports'], {
      env: compileCache,
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    try {
      const ports = new Map<string, string>();
      for await (const line of createInterface(child.stdout)) {
        const [, program = '', name = '', port = ''] =
          /^(\w+) +(.+?) +https?:\/\/[^:]+:(\d+)/.exec(line) ?? [];
        const [shown] = [...SHOWN_PORTS].find(([, row]) => row === `${program} ${name}`) ?? [];
        if (shown !== undefined) ports.set(shown, port);
        if (ports.size === SHOWN_PORTS.size) break;
      }
      child.stdout.resume();
      const place = await folder();
      await runListed(place, commandsIn('README.md'), (command) =>
        [...ports].reduce((text, [shown, own]) => text.replaceAll(`:${shown}/`, `:${own}/`), command),
      );
    } finally {
      const ended = once(child, 'close');
      child.kill('SIGINT');
      await ended;
    }
  });
});

/** The ports of the README, with the rows of the demo that show those in their place. */
const SHOWN_PORTS = new Map([
  ['8080', 'gateway clients'],
  ['9444', 'simulator abstracts'],
]);
