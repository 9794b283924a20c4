import { describe, expect, test } from '@jest/globals';
import { type Config, sectionsSchema } from '../../src/config/schema.ts';
import { sectionIssues } from '../../src/config/section-issues.ts';
import { readYaml } from '../../src/config/yaml-source.ts';
import { largeConfig } from './large-config.ts';

type Large = ReturnType<typeof largeConfig>;

/** Four times as large is four times the work, and 16 times where each is compared with each. */
const [SMALL, LARGE] = [50, 200];
const LINEAR = 5;

const HASH = 'ab'.repeat(32);

/** The sections, each of which is valid by itself. */
function sectionsOf(tree: object): Config {
  return sectionsSchema().parse(tree);
}

/** How many keys and values of a configuration are read while its sections are checked against each other. */
function readsOf(config: object): number {
  let reads = 0;
  const proxies = new WeakMap<object, object>();
  const counted = (value: object): object => {
    const proxy = proxies.get(value) ?? counting(value);
    proxies.set(value, proxy);
    return proxy;
  };
  const counting = (value: object): object =>
    new Proxy(value, {
      get(target, key) {
        reads += 1;
        const inner: unknown = Reflect.get(target, key);
        return isContainer(inner) ? counted(inner) : inner;
      },
      ownKeys(target) {
        const keys = Reflect.ownKeys(target);
        reads += keys.length;
        return keys;
      },
    });
  for (const _ of sectionIssues(counted(config) as Config)) reads += 1;
  return reads;
}

/** A mapping or a list. Sets and networks work on themselves only, and not on a proxy. */
function isContainer(value: unknown): value is object {
  if (typeof value !== 'object' || value === null) return false;
  return [Object.prototype, Array.prototype, null].includes(Object.getPrototypeOf(value));
}

const wrong: [title: string, change: (config: Large) => object][] = [
  ['all is right', (config) => config],
  [
    'no credential exists',
    (config) => ({ ...config, credentials: { other: Object.values(config.credentials)[0] } }),
  ],
  [
    'every client is the same',
    (config) => ({
      ...config,
      clients: config.clients.map((client) => ({ ...client, id: 'c', identify: { apiKeySha256: HASH } })),
    }),
  ],
  [
    'every rule names a deployment that does not exist',
    (config) => ({
      ...config,
      clients: config.clients.map((client) => ({ ...client, allow: [{ deployment: 'nowhere' }] })),
    }),
  ],
  [
    'every address is in every network',
    (config) => ({
      ...config,
      clients: config.clients.map((client) => ({ ...client, identify: { addresses: ['10.0.0.0/8'] } })),
    }),
  ],
];

describe('checks between sections read each part of a configuration a few times, however large it is, when', () => {
  test.each(wrong)('%s', (_title, change) => {
    const work = (size: number): number => readsOf(sectionsOf(change(largeConfig(size * 5, size))));
    expect(work(LARGE) / work(SMALL)).toBeLessThan(LINEAR);
  });
});

test('one message lists no more than twenty names', () => {
  const { clients } = largeConfig(200, 100);
  const deployments = largeConfig(1, 100).deployments;
  const rules = clients.map((client) => ({ ...client, allow: [{ deployment: 'nowhere' }] }));
  const config = sectionsOf({ clients: rules, deployments });
  const messages = Array.from(sectionIssues(config), ({ message }) => message);
  expect(messages).toContainEqual(expect.stringMatching(/deployments has d0, d1, .* and 80 more$/));
  expect(Math.max(...messages.map(({ length }) => length))).toBeLessThan(300);
});

test('places of many issues in one file are looked up in an index', () => {
  const names = Array.from({ length: 20_000 }, (_, at) => `d${at}`);
  let source = readYaml('', 'c.yaml');
  const reading = cpuOf(() => {
    source = readYaml(`deployments:\n${names.map((name) => `  ${name}: {}\n`).join('')}`, 'c.yaml');
  });
  let lines: number[] = [];
  const locating = cpuOf(() => {
    lines = names.map((name) => source.locate({ path: ['deployments', name], message: '' }).line);
  });
  expect(lines).toEqual(names.map((_, at) => at + 2));
  expect(locating).toBeLessThan(reading);
});

/** Milliseconds of the processor. */
function cpuOf(work: () => void): number {
  const before = process.threadCpuUsage();
  work();
  const { user, system } = process.threadCpuUsage(before);
  return (user + system) / 1000;
}
