import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { parse } from 'yaml';
import { effectiveTree, effectiveYaml } from '../../src/config/effective.ts';
import { loadConfig, locatedAlone } from '../../src/config/load.ts';
import { toPieces, treeOf as treeOfPieces } from '../../src/config/transfer.ts';
import { parseConfig } from '../support/parsed-config.ts';
import { gateway } from '../support/program.ts';
import { repository } from '../support/repository.ts';
import { served } from './issue-lines.ts';
import { CREDENTIALS, DEPLOYMENTS, withMore } from './texts.ts';

const treeOf = (text: string) => locatedAlone(Buffer.from(text), 'c.yaml').tree;
const shown = (text: string) => parse(effectiveYaml(treeOf(text))) as Record<string, unknown>;

/** Forms that the files of `config/` do not have. */
const FORMS = [
  'health: { interval: off, failback: 90s }',
  'body: { minRate: off, replayUpTo: 1024 }',
  'tls: { certFile: a, keyFile: { file: b, readableByOthers: true } }',
  'egress: { proxy: { url: "http://localhost:3128" } }',
  'outcomes: [{ name: throttled, status: 400, pause: 5s }]',
  'operations: { o: { method: GET, path: /a/x } }',
];

test.each(['example', 'minimal', 'demo'])('config/%s.yaml means the same with its defaults', async (name) => {
  const file = join(repository, 'config', `${name}.yaml`);
  const text = await readFile(file, 'utf8');
  const hashes = text.match(/\b[0-9a-f]{64}\b/g) ?? [];
  const yaml = effectiveYaml(treeOf(text)).replace(
    /([0-9a-f]{8})…/g,
    (_cut, start) => hashes.find((hash) => hash.startsWith(start)) ?? '',
  );
  expect(parseConfig(yaml, file)).toEqual(await loadConfig(file));
  // A second pass finds nothing to add.
  expect(effectiveYaml(treeOf(yaml))).toBe(effectiveYaml(treeOf(text)));
});

test.each(FORMS)('%s means the same with its defaults', (form) => {
  const text = served(withMore(form));
  expect(parseConfig(effectiveYaml(treeOf(text)), 'c.yaml')).toEqual(parseConfig(text, 'c.yaml'));
});

test('the pieces of a tree give it again', async () => {
  const tree = treeOf(await readFile(join(repository, 'config', 'example.yaml'), 'utf8'));
  expect(treeOfPieces(toPieces(tree))).toEqual(tree);
});

test('has every default as one would write it', () => {
  const { drain, readiness, deployments } = shown(served(`${CREDENTIALS}\n${DEPLOYMENTS}`));
  expect([drain, readiness]).toEqual([{ delay: '5s', timeout: '30s' }, 'gateway']);
  expect(deployments).toMatchObject({
    d: { timeouts: { connect: expect.stringMatching(/^\d+s$/) }, body: { replayUpTo: '1MiB' } },
  });
});

describe('secrets', () => {
  const hash = (text: string) => createHash('sha256').update(text).digest('hex');

  test('are cut, and hashes of keys shortened', () => {
    const key = hash('a key');
    const text = `${withMore('tls: { certFile: c, keyFile: k, keyPassphrase: { value: hunter2-p } }')}
clients:
- { id: c, identify: { apiKeySha256: [${key}, ${hash('b')}] } }
- { id: d, identify: { apiKeySha256: ${hash('c')} } }
- { id: e, identify: { apiKeys: [{ sha256: ${hash('e')}, expires: 2027-03-01, note: n }] } }
control: { tokenSha256: ${hash('token')}, readTokenSha256: ${hash('other')} }
redis: { url: "redis://localhost", password: { value: hunter2-r } }
audit:
  directory: log
  keyFile: key
  sinks:
  - name: o
    otlp: { endpoint: "https://o.example/v1/logs", headers: { authorization: { value: hunter2-h } } }
`.replace('password: { env: P }', 'password: { value: hunter2-c }, next: { password: { value: hunter2-n } }');
    const yaml = effectiveYaml(treeOf(text));
    expect(yaml).not.toContain('hunter2');
    for (const secret of [key, 'a key', 'b', 'c', 'token', 'other', 'e'].slice(2).map(hash)) {
      expect(yaml).not.toContain(secret);
    }
    expect(shown(text)).toMatchObject({
      control: { tokenSha256: '<secret>', readTokenSha256: '<secret>' },
      clients: [
        { identify: { apiKeySha256: [`${key.slice(0, 8)}…`, expect.any(String)] } },
        {},
        {
          identify: {
            apiKeys: [{ sha256: expect.stringMatching(/^.{8}…$/), expires: '2027-03-01', note: 'n' }],
          },
        },
      ],
      credentials: { a: { username: { env: 'U' }, password: { value: '<secret>' } } },
      redis: { password: { value: '<secret>' } },
    });
  });

  test('in an URL would be cut, too', () => {
    const tree = {
      ...(treeOf(served(`${CREDENTIALS}\n${DEPLOYMENTS}`)) as object),
      log: { access: { file: 'https://u:hunter2@h/' } },
    };
    expect(effectiveTree(tree)).toMatchObject({ log: { access: { file: 'https://u:<secret>@h/' } } });
  });
});

test('config show prints what check accepts, and JSON', async () => {
  const file = join(repository, 'config', 'minimal.yaml');
  const { status, stdout } = await gateway(['config', 'show', '--config', file]);
  expect([status, stdout.split('\n')[0]]).toEqual([
    0,
    `# ${file} with defaults; names of files are relative to its folder.`,
  ]);
  expect(parseConfig(stdout, file)).toEqual(await loadConfig(file));
  const json = await gateway(['config', 'show', '--json', '--config', file]);
  expect(JSON.parse(json.stdout)).toEqual(parse(stdout));
  const wrong = await gateway(['config', 'show', '--config', 'none.yaml']);
  expect([wrong.status, wrong.stdout]).toEqual([2, '']);
});
