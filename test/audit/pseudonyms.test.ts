import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import {
  chmod,
  mkdir,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  symlink,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, describe, expect, jest, test } from '@jest/globals';
import type { PseudonymOptions } from '../../src/audit/audit.ts';
import { PseudonymWriter } from '../../src/audit/journal/pseudonym-writer.ts';
import { auditKeys } from '../../src/audit/keys.ts';
import { checkProof } from '../../src/audit/proof.ts';
import { newKeyText, PseudonymKey, revealJson } from '../../src/audit/pseudonym.ts';
import { prove } from '../../src/audit/reader/prove.ts';
import { PseudonymReader } from '../../src/audit/reader/pseudonym-reader.ts';
import { addressForms, type FoundRequest, type Query } from '../../src/audit/reader/query.ts';
import { allRecords, type SearchOptions, search } from '../../src/audit/reader/search.ts';
import { searchInThread } from '../../src/audit/reader/search-thread.ts';
import { UndecidedRequests } from '../../src/audit/reader/undecided.ts';
import { countUsage, type UsageField } from '../../src/audit/reader/usage.ts';
import {
  allKeys,
  destroyKey,
  type PlacedKey,
  readKeys,
  storeKeys,
} from '../../src/audit/segments/pseudonym-files.ts';
import { Secret } from '../../src/base/secret.ts';
import {
  AUDIT_KEY,
  openTestAudit,
  REPLICA,
  recordAccess,
  recordsIn,
  useFolders,
} from '../support/audit-log.ts';
import { newSigningKey } from '../support/signing-key.ts';
import { until } from '../support/until.ts';
import { verified } from '../support/verified-log.ts';
import { setWallClock } from '../support/wall-clock.ts';

const folder = useFolders();
afterEach(() => {
  jest.useRealTimers();
});
const keys = [auditKeys(new Secret(AUDIT_KEY))] as const;
const FIELDS = ['address', 'parameters.ids'];
const unwanted = (issue: string): never => {
  throw new Error(issue);
};

function keyOf(text = newKeyText()): PseudonymKey {
  return new PseudonymKey('AAAAAAAAAAAA', { scope: 'month', subject: '2026-03', made: 0, secret: text });
}

/** Folders of a log and of its keys, and what reads them. */
async function place(change: Partial<PseudonymOptions> = {}) {
  const [directory, keysDirectory] = [await folder(), await folder()];
  const pseudonyms = { keysDirectory, fields: FIELDS, per: 'month', ...change } as const;
  const options = async () => ({
    directory,
    keys,
    pseudonyms: await PseudonymReader.open(keysDirectory, unwanted),
    onBytes: () => undefined,
    onUnreadable: unwantedFinding,
    onNote: unwantedFinding,
  });
  return {
    directory,
    keysDirectory,
    pseudonyms,
    folder: join(keysDirectory, REPLICA),
    keys: () => allKeys(keysDirectory, unwanted),
    found: async (query: Query, change: Partial<SearchOptions> = {}): Promise<FoundRequest[]> =>
      (await listOf(search({ ...(await options()), query, ...change }))) as FoundRequest[],
    lines: async () => (await listOf(allRecords({ ...(await options()), query: {} }))).map(lineOf),
    usage: async (...by: UsageField[]) => countUsage({ ...(await options()), query: {}, by, lists: {} }),
  };
}

async function listOf<T>(items: AsyncIterable<T>): Promise<T[]> {
  const list: T[] = [];
  for await (const item of items) list.push(item);
  return list;
}

const unwantedFinding = (found: unknown): never => unwanted(JSON.stringify(found));
const lineOf = ({ line }: { readonly line: string }): string => line;
const fileOf = ({ key, replica }: PlacedKey, directory: string): string =>
  join(directory, replica, `${key.id}.key`);
const idsOf = (found: readonly FoundRequest[]): string[] => found.map(({ access }) => access.requestId);

describe('a pseudonym', () => {
  test.each(['', 'A', "'A-1','A-2'", 'ü€😀', 'x'.repeat(512), '€'.repeat(512)])(
    'has the value %j for who has the key',
    (value) => {
      const key = keyOf();
      const text = JSON.stringify({ address: key.hide(value), query: [`address=${key.hide(value)}`] });
      expect(key.hide(value)).toBe(key.hide(value));
      expect(JSON.parse(revealJson(text, () => key))).toEqual({
        address: value,
        query: [`address=${value}`],
      });
      expect(revealJson(text, () => keyOf())).toBe(text);
      expect(revealJson(text, () => undefined)).toBe(text);
    },
  );

  test('that was changed has no value', () => {
    const key = keyOf();
    const [, , data = ''] = key.hide('192.0.2.7').split(':');
    for (let at = 0; at < data.length - 1; at += 1) {
      const other = data.charAt(at) === 'A' ? 'B' : 'A';
      expect(key.reveal(data.slice(0, at) + other + data.slice(at + 1))).toBeUndefined();
    }
    expect(key.reveal('')).toBeUndefined();
  });

  test('is what the page of the format says', async () => {
    const page = await readFile('docs/audit/format.md', 'utf8');
    const [, secret = '', value = '', pseudonym = ''] =
      /key `([\w-]{43})` and the id\s+`A{12}`, the value `([^`]+)` has\s+the pseudonym `(ps1:A{12}:[\w-]+)`/.exec(
        page,
      ) ?? [];
    expect(keyOf(new Secret(secret)).hide(value)).toBe(pseudonym);
    // The same by its rules alone.
    const tag = createHash('sha3-256').update(`${secret}tag${value}`).digest('base64url').slice(0, 24);
    const stream = createHash('sha3-512').update(`${secret}stream0.${tag}`).digest();
    const data = Buffer.from(value).map((byte, at) => byte ^ (stream[at] ?? 0));
    expect(`ps1:AAAAAAAAAAAA:${tag}${Buffer.from(data).toString('base64url')}`).toBe(pseudonym);
  });
});

describe('records with pseudonyms', () => {
  test('have no value in clear, and their key is stored before', async () => {
    const { pseudonyms, ...at } = await place();
    const { audit, logged } = await openTestAudit(at.directory, { pseudonyms });
    const stored: number[] = [];
    for (const requestId of ['q1', 'q2']) {
      await recordAccess(audit, { requestId });
      stored.push((await at.keys()).length);
    }
    audit.admin('reload', { address: '192.0.2.7' });
    await audit.close();
    expect(stored).toEqual([1, 1]);
    const records = await recordsIn(at.directory);
    const hidden = { address: expect.stringMatching(/^ps1:/) };
    const parameters = { ids: expect.stringMatching(/^ps1:/), token: null };
    expect(records).toMatchObject([{ ...hidden, parameters }, { ...hidden, parameters }, hidden]);
    expect(new Set(records.map(({ address }) => address)).size).toBe(1);
    const [key] = await at.keys();
    const file = key === undefined ? '' : fileOf(key, at.keysDirectory);
    const modes = await Promise.all([at.folder, file].map(async (path) => (await stat(path)).mode & 0o777));
    expect(modes).toEqual([0o700, 0o600]);
    const secret = key?.key.secret.reveal() ?? '';
    expect(await readFile(file, 'utf8')).toContain(secret);
    expect(JSON.stringify([logged, records])).not.toContain(secret);
  });

  test('have the same key after a restart, and a new one in the next month', async () => {
    const { pseudonyms, ...at } = await place();
    setWallClock(Date.parse('2026-03-31T23:59:59.999Z'));
    const writer = async (): Promise<PseudonymWriter> => {
      const opened = new PseudonymWriter(at.folder, pseudonyms, { warn: () => undefined });
      await opened.load();
      return opened;
    };
    const first = await writer();
    const march = first.address('192.0.2.7', 'c', Date.now());
    await first.ready();
    expect((await writer()).address('192.0.2.7', 'c', Date.now())).toBe(march);
    jest.setSystemTime(Date.parse('2026-04-01T00:00:00.000Z'));
    const april = first.address('192.0.2.7', 'c', Date.now());
    expect(april).not.toBe(march);
    expect(first.ready()).toBeDefined();
    await first.ready();
    const subjects = (await at.keys()).map(({ key }) => [key.scope, key.subject]);
    expect(subjects.sort()).toEqual([
      ['month', '2026-03'],
      ['month', '2026-04'],
    ]);
  });

  test('at the end of a month have its key, though their text is made in the next one', async () => {
    const { pseudonyms, ...at } = await place();
    const monthsOf = async (): Promise<unknown[][]> => {
      const subjects = new Map((await at.keys()).map(({ key }) => [key.id, key.subject]));
      return (await recordsIn(at.directory)).map(({ time, address, parameters }) => {
        const { ids = address } = Object(parameters) as { readonly ids?: unknown };
        const keysOf = [address, ids].map((hidden) => subjects.get(String(hidden).split(':')[1] ?? ''));
        return [String(time).slice(0, 7), ...keysOf];
      });
    };
    setWallClock(Date.parse('2026-03-31T23:59:59.999Z'));
    const { audit } = await openTestAudit(at.directory, { pseudonyms });
    const march = recordAccess(audit);
    jest.setSystemTime(Date.parse('2026-04-01T00:00:00.000Z'));
    const april = recordAccess(audit);
    audit.admin('reload', { address: '192.0.2.7' });
    expect(await Promise.all([march, april])).toEqual([true, true]);
    await audit.close();
    expect(await monthsOf()).toEqual([
      ['2026-03', '2026-03', '2026-03'],
      ['2026-04', '2026-04', '2026-04'],
      ['2026-04', '2026-04', '2026-04'],
    ]);
    expect(await at.keys()).toHaveLength(2);
  });

  test('take nothing from a writer that was killed while it stored a key', async () => {
    const { pseudonyms, ...at } = await place();
    const first = await openTestAudit(at.directory, { pseudonyms });
    await writeFile(join(at.folder, 'BBBBBBBBBBBB.key.tmp'), '{"pseudonymKey":1,"sco', { mode: 0o600 });
    await first.audit.close();
    const second = await openTestAudit(at.directory, { pseudonyms });
    expect(await recordAccess(second.audit)).toBe(true);
    await second.audit.close();
    expect((await readdir(at.folder)).filter((name) => name.endsWith('.tmp'))).toEqual([]);
    expect((await at.found({}))[0]?.access.address).toBe('192.0.2.7');
  });

  test('are refused while the folder of the keys is missing', async () => {
    const { pseudonyms, ...at } = await place();
    const { audit, logged } = await openTestAudit(at.directory, { pseudonyms });
    expect(await recordAccess(audit)).toBe(true);
    await rename(at.folder, `${at.folder}.away`);
    await until(async () => !(await recordAccess(audit)));
    const sentence = `the keys of pseudonyms in ${at.folder} cannot be used: ENOENT`;
    expect([audit.refusing, audit.failing]).toEqual([true, expect.stringContaining(sentence)]);
    await rename(`${at.folder}.away`, at.folder);
    await until(() => audit.failing === undefined);
    expect(await recordAccess(audit, { requestId: 'last' })).toBe(true);
    await audit.close();
    expect(logged).toContainEqual(expect.objectContaining({ code: 'pseudonym-keys', level: 50 }));
    expect((await at.found({ requestId: 'last' }))[0]?.access.address).toBe('192.0.2.7');
  });

  test('are refused while a new key cannot be stored, and written afterwards', async () => {
    const { pseudonyms, ...at } = await place({ per: 'client' });
    const { audit } = await openTestAudit(at.directory, { pseudonyms });
    expect(await recordAccess(audit)).toBe(true);
    await rename(at.folder, `${at.folder}.away`);
    expect(await recordAccess(audit, { client: 'new', requestId: 'held' })).toBe(false);
    await rename(`${at.folder}.away`, at.folder);
    await until(() => audit.failing === undefined);
    await audit.close();
    expect((await at.found({ client: 'new' }))[0]?.access.address).toBe('192.0.2.7');
  });

  test('are refused at a start with a key that others can read', async () => {
    const { pseudonyms, ...at } = await place();
    const { audit } = await openTestAudit(at.directory, { pseudonyms });
    await recordAccess(audit);
    await audit.close();
    const [key] = await at.keys();
    const file = key === undefined ? '' : fileOf(key, at.keysDirectory);
    await chmod(file, 0o644);
    await expect(openTestAudit(at.directory, { pseudonyms })).rejects.toThrow(
      `the keys of pseudonyms in ${at.folder} cannot be used: ${file} can be read by others: run chmod 600 on it`,
    );
    await chmod(file, 0o600);
    await writeFile(file, '{}');
    // A restart does not help here.
    await expect(openTestAudit(at.directory, { pseudonyms })).rejects.toThrow(
      /holds no key of pseudonyms: restore it, or remove it if it is lost$/,
    );
  });

  test('follow the fields that a reload names, under the same key', async () => {
    const { pseudonyms, ...at } = await place();
    const { audit } = await openTestAudit(at.directory, { pseudonyms });
    await recordAccess(audit);
    audit.configure({ parameters: ['ids'], pseudonyms: { fields: ['parameters.ids'] } });
    await recordAccess(audit, { requestId: 'q2' });
    await audit.close();
    const hidden = expect.stringMatching(/^ps1:/);
    expect(await recordsIn(at.directory)).toMatchObject([
      { address: hidden },
      { address: '192.0.2.7', parameters: { ids: hidden } },
    ]);
    expect(await at.keys()).toHaveLength(1);
  });
});

describe('with the keys at hand', () => {
  async function logOfTwo() {
    const { pseudonyms, ...at } = await place();
    for (const replica of ['r1', 'r2']) {
      const { audit } = await openTestAudit(at.directory, { replica, pseudonyms });
      const of = (name: string): string => `${replica}-${name}`;
      await recordAccess(audit, { requestId: of('one'), target: '/x?ids=%27A-1%27&token=a' });
      await recordAccess(audit, { requestId: of('list'), target: '/x?ids=%27A-2%27,%27A-1%27' });
      await recordAccess(audit, { requestId: of('twice'), target: '/x?ids=A-3&ids=A-4' });
      await recordAccess(audit, { requestId: of('other'), address: '192.0.2.8', target: '/x' });
      await audit.close();
    }
    return at;
  }

  test('a search finds addresses, identifiers and text, and shows them', async () => {
    const at = await logOfTwo();
    const both = (...names: string[]): string[] =>
      ['r1', 'r2'].flatMap((replica) => names.map((name) => `${replica}-${name}`)).sort();
    const ids = async (query: Query): Promise<string[]> => idsOf(await at.found(query)).sort();
    expect(await ids({ id: 'A-1' })).toEqual(both('one', 'list'));
    expect(await ids({ id: 'A-4' })).toEqual(both('twice'));
    expect(await ids({ id: 'A-' })).toEqual([]);
    expect(await ids({ text: 'a-2' })).toEqual(both('list'));
    expect(await ids({ address: addressForms('192.0.2.8') })).toEqual(both('other'));
    const [raw] = await recordsIn(at.directory);
    expect(await ids({ address: [String(raw?.['address'])] })).toEqual(both('one', 'list', 'twice'));
    const [twice] = await at.found({ id: 'A-4' });
    expect(twice?.access).toMatchObject({ address: '192.0.2.7', parameters: { ids: ['A-3', 'A-4'] } });
    expect((await at.lines()).join('\n')).not.toContain('ps1:');
  });

  test.each([
    ['one', 1, 3, 4],
    ['every', 0, 6, 8],
  ])(
    'a search says how many requests may match once %s key is gone',
    async (which, left, lists, addresses) => {
      const at = await logOfTwo();
      const all = await at.keys();
      const reader = new PseudonymReader(which === 'one' ? all.slice(1).map(({ key }) => key) : []);
      const undecided = async (query: Query) => {
        const counts = new UndecidedRequests();
        const found = await at.found(query, { pseudonyms: reader, onUndecided: counts.add });
        return [found.length, ...counts.notes];
      };
      const may = (requests: number): string =>
        `${requests} more requests may match: values are pseudonyms whose key is destroyed or not at hand`;
      expect(await undecided({ address: addressForms('192.0.2.8') })).toEqual([left, may(addresses)]);
      expect(await undecided({ id: 'A-4' })).toEqual([left, may(lists)]);
      expect(await undecided({ client: 'reporting', text: 'a-4' })).toEqual([left, may(addresses)]);
      expect(await undecided({ client: 'nobody', id: 'A-4' })).toEqual([0]);
    },
  );

  test('those of other processes are used beside a link that leads nowhere, which is named', async () => {
    const at = await logOfTwo();
    const before = await at.keys();
    const link = join(at.keysDirectory, 'r1@1');
    await symlink('absent', link);
    const issues: string[] = [];
    const pseudonyms = await PseudonymReader.open(at.keysDirectory, (issue) => issues.push(issue));
    expect(before).toHaveLength(2);
    expect(before.filter(({ key }) => !pseudonyms.hasKeyAt(Buffer.from(key.id), 0))).toEqual([]);
    expect(issues).toEqual([expect.stringContaining(`${link} is a link that leads to no folder`)]);
  });

  test('so does a page of the console, and that no identifier is recorded now', async () => {
    const { directory } = await logOfTwo();
    const query = { id: 'A-4', client: 'reporting', replica: 'r1' };
    const scope = { directory, keys, keysDirectory: await folder(), parameters: [], query };
    const task = { kind: 'page', limit: 1, after: undefined, budgetMs: 20_000 } as const;
    const { notes } = await searchInThread(scope, task, new AbortController().signal);
    expect(notes).toEqual([
      'No identifier is recorded now: audit.parameters is empty.',
      '3 more requests may match: values are pseudonyms whose key is destroyed or not at hand.',
    ]);
    // Other pages count some of the same.
    const later = { ...task, after: { time: '2099-01-01T00:00:00.000Z', folder: '', seq: 0 } };
    const { notes: ofOne } = await searchInThread(scope, later, new AbortController().signal);
    expect(ofOne.at(-1)).toMatch(/^In what was read for one page, 3 more requests may match: /);
  });

  test('usage counts identifiers, and groups by address across keys', async () => {
    const at = await logOfTwo();
    const { rows, total } = await at.usage('address');
    expect(rows.map(({ values, requests }) => [values, requests])).toEqual([
      [['192.0.2.7'], 6],
      [['192.0.2.8'], 2],
    ]);
    expect([total.identifiers, total.uncounted]).toEqual([10, 0]);
  });

  test('many keys do not hide an address from a search', async () => {
    const { pseudonyms, ...at } = await place({ per: 'client' });
    const { audit } = await openTestAudit(at.directory, { pseudonyms });
    for (let client = 0; client < 40; client += 1) await recordAccess(audit, { client: `c${client}` });
    await recordAccess(audit, { client: 'c1', requestId: 'other', address: '192.0.2.8' });
    await audit.close();
    expect(await at.keys()).toHaveLength(40);
    expect(await at.found({ address: addressForms('192.0.2.7') })).toHaveLength(40);
    expect(idsOf(await at.found({ address: addressForms('192.0.2.8') }))).toEqual(['other']);
  });
});

describe('once keys are destroyed', () => {
  async function destroy(at: Awaited<ReturnType<typeof place>>, subject: string): Promise<string[]> {
    const wanted = (await at.keys()).filter(({ key }) => key.subject === subject);
    for (const each of wanted) await destroyKey(at.keysDirectory, each);
    return wanted.map(({ key }) => key.id);
  }

  test('the log and all its proofs are valid, the values are gone, and an admin record says which keys', async () => {
    const at = await place();
    const { pseudonyms, directory } = at;
    const signing = newSigningKey();
    const { audit } = await openTestAudit(directory, { pseudonyms, signingKey: signing.secret });
    await recordAccess(audit, { requestId: 'before' });
    await until(() => audit.signed?.checkpoint !== undefined);
    const early = JSON.stringify(await prove({ directory, requestId: 'before' }));
    const month = new Date().toISOString().slice(0, 7);
    const [destroyed] = await destroy(at, month);
    const events = async () =>
      (await recordsIn(directory)).filter(({ event }) => event === 'pseudonyms-forgotten');
    await until(async () => (await events()).length > 0);
    expect(await events()).toMatchObject([{ kind: 'admin', key: destroyed, scope: 'month', month }]);
    await recordAccess(audit, { requestId: 'after' });
    await audit.close('stop');
    expect((await readdir(at.folder)).filter((name) => name.includes(`${destroyed}`))).toEqual([
      `${destroyed}.recorded`,
    ]);
    const found = await at.found({});
    expect(found.map(({ access }) => access.address)).toEqual([expect.stringMatching(/^ps1:/), '192.0.2.7']);
    for (const proof of [early, JSON.stringify(await prove({ directory, requestId: 'before' }))]) {
      expect(checkProof(proof, [signing.publicKey]).records).toHaveLength(1);
    }
    const sealed = await verified(directory);
    const signed = await verified(directory, { keys: 'unknown', publicKeys: [signing.publicKey] });
    expect([sealed.alterations, signed.alterations]).toEqual([[], []]);
    const { rows, total } = await at.usage('address');
    expect(rows.map(({ values }) => values)).toContainEqual([expect.stringMatching(/^ps1:/)]);
    expect([total.identifiers, total.uncounted]).toEqual([1, 1]);
  });

  test('of one subject, the values of others stay, and unknown clients are under the month', async () => {
    const at = await place({ per: 'address' });
    const { pseudonyms, directory } = at;
    const { audit } = await openTestAudit(directory, { pseudonyms });
    await recordAccess(audit, { requestId: 'gone' });
    await recordAccess(audit, { requestId: 'other', address: '192.0.2.8' });
    await recordAccess(audit, { requestId: 'unknown', client: '' });
    expect(await destroy(at, '192.0.2.7')).toHaveLength(1);
    await until(async () => (await readdir(at.folder)).some((name) => name.endsWith('.recorded')));
    await recordAccess(audit, { requestId: 'again' });
    await audit.close();
    const shown = (await at.found({})).map(({ access }) => [access.requestId, access.address]);
    expect(shown).toEqual([
      ['gone', expect.stringMatching(/^ps1:/)],
      ['other', '192.0.2.8'],
      ['unknown', '192.0.2.7'],
      ['again', '192.0.2.7'],
    ]);
    const events = (await recordsIn(directory)).filter(({ event }) => event === 'pseudonyms-forgotten');
    expect(events).toMatchObject([{ scope: 'address' }]);
    expect(JSON.stringify(events)).not.toContain('192.0.2');
  });

  test('that cannot be noted as recorded is logged, and recorded again', async () => {
    const at = await place();
    const { pseudonyms, directory } = at;
    const { audit, logged } = await openTestAudit(directory, { pseudonyms });
    await recordAccess(audit);
    const [key] = await at.keys();
    const id = key?.key.id ?? '';
    await mkdir(join(at.folder, `${id}.recorded`));
    await destroy(at, key?.key.subject ?? '');
    await until(() => logged.some(({ msg }) => msg === 'a destroyed key is recorded again'));
    await rm(join(at.folder, `${id}.recorded`), { recursive: true });
    await until(async () => !(await readdir(at.folder)).includes(`${id}.forgotten`));
    await audit.close();
    expect(logged).toContainEqual(expect.objectContaining({ level: 40, key: id, code: 'EISDIR' }));
    const events = (await recordsIn(directory)).filter(({ event }) => event === 'pseudonyms-forgotten');
    expect(events.length).toBeGreaterThan(1);
  });

  test('while no gateway runs, the next one records it', async () => {
    const at = await place();
    const { pseudonyms, directory } = at;
    const first = await openTestAudit(directory, { pseudonyms });
    await recordAccess(first.audit);
    await first.audit.close();
    const [key] = await at.keys();
    await destroy(at, key?.key.subject ?? '');
    expect(existsSync(join(at.folder, `${key?.key.id}.key`))).toBe(false);
    const second = await openTestAudit(directory, { pseudonyms });
    await until(async () =>
      (await recordsIn(directory)).some(
        ({ event, key: id }) => event === 'pseudonyms-forgotten' && id === key?.key.id,
      ),
    );
    await second.audit.close();
  });
});

describe('a writer', () => {
  const ID = { older: 'OLDEROLDEROL', newer: 'NEWERNEWERNE' };
  const quiet = { warn: () => undefined };

  function keyWith(
    id: string,
    subject: string,
    made: number,
    scope: 'month' | 'client' = 'month',
  ): PseudonymKey {
    return new PseudonymKey(id, { scope, subject, made, secret: newKeyText() });
  }

  async function openWriter(place: string, per: 'month' | 'client' | 'address' = 'month') {
    const writer = new PseudonymWriter(place, { per, fields: FIELDS }, quiet);
    await writer.load();
    return writer;
  }

  const keyIdOf = (pseudonym: string): string | undefined => pseudonym.split(':')[1];

  test('refuses a folder that other users may use', async () => {
    const place = await folder();
    for (const mode of [0o701, 0o702, 0o704]) {
      await chmod(place, mode);
      await expect(openWriter(place)).rejects.toThrow('other users may use it: run chmod 700 on it');
    }
  });

  test.each([
    [ID.older, ID.newer],
    [ID.newer, ID.older],
  ])('uses the newest of several keys of a month: %s is read before %s', async (...order) => {
    const place = await folder();
    const month = new Date().toISOString().slice(0, 7);
    const names = ['AAAAAAAAAAAA', 'ZZZZZZZZZZZZ'];
    const made = { [ID.older]: 1_000, [ID.newer]: 2_000 };
    await storeKeys(
      place,
      order.map((each, at) => keyWith(names[at] ?? '', month, made[each] ?? 0)),
    );
    const writer = await openWriter(place);
    expect(keyIdOf(writer.address('192.0.2.7', '', Date.now()))).toBe(names[order.indexOf(ID.newer)]);
    expect(writer.isReady).toBe(true);
  });

  test('hides what is configured alone, and nothing that is not there', async () => {
    const writer = await openWriter(await folder());
    expect(writer.address('', 'reporting', Date.now())).toBe('');
    const shown = new Map<string, string | null>([
      ['', 'x'],
      ['ids', null],
    ]);
    writer.hideParameters(new Map(shown), 'reporting', '192.0.2.7', Date.now());
    expect(writer.isReady).toBe(true);
    writer.fields = ['parameters.ids'];
    expect(writer.address('192.0.2.7', 'reporting', Date.now())).toBe('192.0.2.7');
    expect(writer.isReady).toBe(true);
  });

  test('uses no key of which a file says that it is about to be destroyed', async () => {
    const place = await folder();
    const month = new Date().toISOString().slice(0, 7);
    await storeKeys(place, [keyWith(ID.older, month, 1_000)]);
    await writeFile(join(place, `${ID.older}.forgotten`), '');
    const writer = await openWriter(place);
    expect(keyIdOf(writer.address('192.0.2.7', '', Date.now()))).not.toBe(ID.older);
  });

  test('uses the key of the month for a client without an address, which is no lack of keys', async () => {
    const place = await folder();
    const month = new Date().toISOString().slice(0, 7);
    await storeKeys(place, [keyWith(ID.older, month, 1_000)]);
    const warn = (): never => unwanted('a log line');
    const writer = new PseudonymWriter(place, { per: 'address', fields: FIELDS }, { warn });
    await writer.load();
    const parameters = new Map<string, string>([['ids', 'A-1']]);
    writer.hideParameters(parameters, 'reporting', '', Date.now());
    expect(keyIdOf(parameters.get('ids') ?? '')).toBe(ID.older);
  });

  test('needs the keys that it has stored, and not those of earlier months', async () => {
    const place = await folder();
    setWallClock(Date.parse('2026-03-31T23:59:59.999Z'));
    await storeKeys(place, [keyWith('BBBBBBBBBBBB', '2026-02', 1_000)]);
    const writer = await openWriter(place);
    const march = keyIdOf(writer.address('192.0.2.7', '', Date.now()));
    await writer.ready();
    jest.setSystemTime(Date.parse('2026-04-01T00:00:00.000Z'));
    const april = keyIdOf(writer.address('192.0.2.7', '', Date.now()));
    await writer.ready();
    for (const id of ['BBBBBBBBBBBB', march]) await rm(join(place, `${id}.key`));
    expect([await writer.refresh(), writer.isReady]).toEqual([[], true]);
    await rm(join(place, `${april}.key`));
    expect([await writer.refresh(), writer.isReady]).toEqual([[], false]);
  });

  test('hides under the key of the month that the records have, also after a clock was set back', async () => {
    const place = await folder();
    setWallClock(Date.parse('2026-03-31T12:00:00.000Z'));
    const writer = await openWriter(place);
    const months: string[] = [];
    for (const day of ['2026-03-31', '2026-04-01', '2026-03-30']) {
      jest.setSystemTime(Date.parse(`${day}T12:00:00.000Z`));
      const id = keyIdOf(writer.address('192.0.2.7', '', Date.now()));
      await writer.ready();
      const [key] = await readKeys(place, [id ?? ''], () => undefined);
      months.push(key?.subject ?? '');
    }
    expect(months).toEqual(['2026-03', '2026-04', '2026-03']);
  });

  test('has one key for a month, also when records of two months get their text in turns', async () => {
    const place = await folder();
    setWallClock(Date.parse('2026-04-01T00:00:00.000Z'));
    const writer = await openWriter(place);
    const ids = ['2026-03-31', '2026-04-01', '2026-03-31', '2026-04-01'].map((day) =>
      keyIdOf(writer.address('192.0.2.7', '', Date.parse(day))),
    );
    await writer.ready();
    expect(ids.slice(2)).toEqual(ids.slice(0, 2));
    expect(
      (await readKeys(place, ids.slice(0, 2).map(String), unwanted)).map(({ subject }) => subject),
    ).toEqual(['2026-03', '2026-04']);
  });

  test('stores a key that is made while it stores others, too', async () => {
    const place = await folder();
    const writer = await openWriter(place, 'client');
    writer.address('192.0.2.7', 'reporting', Date.now());
    const storing = writer.ready();
    writer.address('192.0.2.7', 'other', Date.now());
    await storing;
    expect(writer.isReady).toBe(false);
    await writer.ready();
    expect(writer.isReady).toBe(true);
    expect((await readdir(place)).filter((name) => name.endsWith('.key'))).toHaveLength(2);
  });

  test('does not bring a key back that was destroyed after another one could not be stored', async () => {
    const place = await folder();
    const writer = await openWriter(join(place, 'r1'), 'client');
    const [alice, bob] = ['alice', 'bob'].map((client) =>
      keyIdOf(writer.address('192.0.2.7', client, Date.now())),
    );
    const obstacle = join(place, 'r1', `${bob}.key`);
    await mkdir(join(obstacle, 'x'), { recursive: true });
    await expect(writer.ready()).rejects.toThrow('cannot be used');
    const [stored] = (await allKeys(place, () => undefined)).filter(({ key }) => key.id === alice);
    if (stored === undefined) throw new Error('the key is not there');
    await destroyKey(place, stored);
    await rm(obstacle, { recursive: true });
    await writer.ready();
    expect(writer.isReady).toBe(true);
    expect((await readdir(join(place, 'r1'))).sort()).toEqual([`${alice}.forgotten`, `${bob}.key`].sort());
    expect(await writer.refresh()).toMatchObject([{ key: alice, scope: 'client' }]);
    expect(keyIdOf(writer.address('192.0.2.7', 'alice', Date.now()))).not.toBe(alice);
    expect(keyIdOf(writer.address('192.0.2.7', 'bob', Date.now()))).toBe(bob);
  });

  test('stores the keys that are lacking after one could not be stored, and no other again', async () => {
    const place = await folder();
    const writer = await openWriter(place, 'client');
    const [alice, bob] = ['alice', 'bob'].map((client) =>
      keyIdOf(writer.address('192.0.2.7', client, Date.now())),
    );
    const obstacle = join(place, `${bob}.key`);
    await mkdir(join(obstacle, 'x'), { recursive: true });
    await expect(writer.ready()).rejects.toThrow('cannot be used');
    const before = await stat(join(place, `${alice}.key`));
    await rm(obstacle, { recursive: true });
    await writer.ready();
    expect((await stat(join(place, `${alice}.key`))).ino).toBe(before.ino);
    expect((await readKeys(place, [alice ?? '', bob ?? ''], unwanted)).map(({ subject }) => subject)).toEqual(
      ['alice', 'bob'],
    );
    await writer.refresh();
    expect(writer.isReady).toBe(true);
  });

  test('names 100 destroyed keys at once', async () => {
    const place = await folder();
    const writer = await openWriter(place);
    const note = JSON.stringify({ scope: 'client', destroyed: '2026-03-01T00:00:00.000Z' });
    for (let at = 0; at < 101; at += 1) {
      const id = `A${String(at).padStart(11, '0')}`;
      await writeFile(join(place, `${id}.forgotten`), note, { mode: 0o600 });
    }
    expect(await writer.refresh()).toHaveLength(100);
  });

  test.each([
    ['no gateway can read', async (path: string) => mkdir(path)],
    ['says something else', async (path: string) => writeFile(path, '{}', { mode: 0o600 })],
    ['others may read', async (path: string) => writeFile(path, '{}', { mode: 0o644 })],
  ])('goes on where the note of a destroyed key is one that %s', async (_title, make) => {
    const place = await folder();
    const writer = await openWriter(place);
    await make(join(place, `${ID.older}.forgotten`));
    expect([await writer.refresh(), writer.isReady]).toEqual([[{ key: ID.older }], true]);
  });

  test('goes on with the keys of its clients after a restart, and needs none of another kind', async () => {
    const place = await folder();
    await storeKeys(place, [
      keyWith(ID.older, 'reporting', 1_000, 'client'),
      keyWith(ID.newer, '2020-01', 2_000),
    ]);
    const byClient = await openWriter(place, 'client');
    expect(keyIdOf(byClient.address('192.0.2.7', 'reporting', Date.now()))).toBe(ID.older);
    const byAddress = await openWriter(place, 'address');
    for (const id of [ID.older, ID.newer]) await rm(join(place, `${id}.key`));
    await byAddress.refresh();
    expect(byAddress.isReady).toBe(true);
    await byClient.refresh();
    expect(byClient.isReady).toBe(false);
    await expect(byClient.ready()).rejects.toThrow(
      `${place} cannot be used: key ${ID.older} is missing; restore the folder, or restart the gateway to begin new keys`,
    );
  });

  test('names a destroyed key until its log says so, and looks at the folder again once it has changed', async () => {
    const place = await folder();
    const month = new Date().toISOString().slice(0, 7);
    const key = keyWith(ID.older, month, 1_000);
    const replica = 'r1';
    await mkdir(join(place, replica), { mode: 0o700 });
    await storeKeys(join(place, replica), [key]);
    const writer = new PseudonymWriter(join(place, replica), { per: 'month', fields: FIELDS }, quiet);
    expect(await writer.refresh()).toEqual([]);
    await writer.load();
    const setChanged = (at: number): Promise<void> => utimes(join(place, replica), at, at);
    await setChanged(1_000_000);
    expect(await writer.refresh()).toEqual([]);
    await destroyKey(place, { key, replica });
    await setChanged(1_000_000);
    expect(await writer.refresh()).toEqual([]);
    await setChanged(1_000_001);
    const forgotten = [expect.objectContaining({ key: ID.older, scope: 'month', month })];
    expect(await writer.refresh()).toEqual(forgotten);
    expect(await writer.refresh()).toEqual(forgotten);
    expect(keyIdOf(writer.address('192.0.2.7', '', Date.now()))).not.toBe(ID.older);
  });

  test('looks again at a folder that has changed just now, since it can change within the same tick', async () => {
    const place = await folder();
    const replica = 'r1';
    await mkdir(join(place, replica), { mode: 0o700 });
    const month = new Date().toISOString().slice(0, 7);
    const key = keyWith(ID.older, month, 1_000);
    await storeKeys(join(place, replica), [key]);
    const writer = await openWriter(join(place, replica));
    const soon = Math.round(Date.now() / 1_000) + 3_600;
    await utimes(join(place, replica), soon, soon);
    expect(await writer.refresh()).toEqual([]);
    await destroyKey(place, { key, replica });
    await utimes(join(place, replica), soon, soon);
    expect(await writer.refresh()).toMatchObject([{ key: ID.older }]);
  });

  test('can go on when its folder is back, which looks as it did before', async () => {
    const place = join(await folder(), 'keys');
    const writer = await openWriter(place);
    writer.address('192.0.2.7', '', Date.now());
    await writer.ready();
    await utimes(place, 1_000_000, 1_000_000);
    await writer.refresh();
    await rename(place, `${place}.away`);
    expect([await writer.refresh(), writer.isReady]).toEqual([[], false]);
    await rename(`${place}.away`, place);
    await writer.ready();
    expect(writer.isReady).toBe(true);
  });

  test('hides what was searched for under the key of the month', async () => {
    const { pseudonyms, ...at } = await place({ per: 'client' });
    const { audit } = await openTestAudit(at.directory, { pseudonyms });
    const hidden = audit.recordedCriterion('192.0.2.7');
    await audit.adminWritten('search', { criterion: hidden });
    await audit.close();
    const [stored] = await at.keys();
    expect(stored?.key).toMatchObject({ id: keyIdOf(hidden), scope: 'month' });
    expect(stored?.key.reveal(hidden.split(':')[2] ?? '')).toBe('192.0.2.7');
  });
});

test('addresses beyond 20,000 share the key of the month, which is logged once an hour', () => {
  const logged: unknown[] = [];
  const warn = (fields: object | string, msg = ''): void => void logged.push([fields, msg]);
  jest.useFakeTimers();
  const writer = new PseudonymWriter('unused', { per: 'address', fields: ['address'] }, { warn });
  const keyIdOf = (index: number): string =>
    writer.address(`10.0.${index >> 8}.${index & 255}`, 'reporting', Date.now()).split(':')[1] ?? '';
  const own = new Set(Array.from({ length: 20_000 }, (_, index) => keyIdOf(index)));
  expect([own.size, logged]).toEqual([20_000, []]);
  const shared = new Set(Array.from({ length: 3 }, (_, index) => keyIdOf(20_000 + index)));
  expect([shared.size, own.has([...shared].join())]).toEqual([1, false]);
  const line = expect.stringMatching(/no pseudonym key of their own/);
  expect(logged).toEqual([[{ per: 'address', keys: 20_000, values: 1 }, line]]);
  jest.advanceTimersByTime(3_600_000);
  keyIdOf(0);
  keyIdOf(30_000);
  expect(logged.slice(1)).toEqual([[{ per: 'address', keys: 20_001, values: 3 }, line]]);
  writer.address('10.9.9.9', '', Date.now());
  expect(logged.length).toBe(2);
});
