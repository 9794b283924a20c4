import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { CredentialActions } from '../../src/app/credential-actions.ts';
import { Secret } from '../../src/base/secret.ts';
import type { SealedSection } from '../../src/credentials/sealed-file.ts';
import {
  changeEntries,
  type EntryChange,
  makeIdentity,
  setNext,
  setTo,
} from '../../src/credentials/sealing.ts';
import { SourceReader } from '../../src/credentials/sources.ts';
import { useFolders } from '../support/audit-log.ts';

const folderOf = useFolders();
const context = { environment: {} };

/**
 * Actions on the credential `c`, whose version 2 is next in the sealed file. `whileAsked`: runs while the workers are
 * asked for their states.
 */
async function sealedNext(whileAsked: (change: (by: EntryChange) => Promise<unknown>) => Promise<unknown>) {
  const folder = await folderOf();
  const section: SealedSection = { file: join(folder, 's.age'), identity: { file: join(folder, 'id') } };
  await makeIdentity(section, new Date());
  const change = (by: EntryChange) => changeEntries(section, new SourceReader(context, section), ['c'], by);
  await change(setTo(new Secret('one'), new Date()));
  await change(setNext(new Secret('two'), new Date()));
  const inFile = async () => (await new SourceReader(context, section).sealed()).get('c')?.next?.version;
  let next = await inFile();
  const active = () => ({
    config: { credentials: { c: { username: { value: 'u' }, password: { sealed: 'c' } } }, sealed: section },
    credentials: new Map([['c', { next: next && { version: String(next) } }]]),
  });
  const actions = new CredentialActions({
    workers: {},
    source: { context },
    reloads: {
      get active() {
        return active();
      },
      readCredentials: async () => {
        next = await inFile();
      },
    },
    state: async () => {
      await whileAsked(change);
      return { deployments: [] };
    },
  } as never);
  return { actions, change, inFile };
}

const REPLACED = 'Version 2 of c is not its next version any more';

test('a next version that takes the place of the one to be withdrawn stays, whenever it does', async () => {
  const other = setNext(new Secret('three'), new Date());
  const whileAsked = await sealedNext((change) => change(other));
  const next = await whileAsked.actions.withdrawable('c', '2');
  await expect(whileAsked.actions.withdraw('c', next)).rejects.toThrow(REPLACED);
  expect(await whileAsked.inFile()).toBe(3);

  for (const described of ['2', undefined]) {
    const before = await sealedNext(async () => {});
    await before.change(other);
    await expect(before.actions.withdrawable('c', described)).rejects.toThrow(REPLACED);
    expect(await before.inFile()).toBe(3);
  }
});

test('the next version that was described is withdrawn', async () => {
  const { actions, inFile } = await sealedNext(async () => {});
  const next = await actions.withdrawable('c', '2');
  expect(await actions.withdraw('c', next)).toEqual([]);
  expect(await inFile()).toBeUndefined();
});
