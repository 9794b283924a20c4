import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { auditKeys } from '../../src/audit/keys.ts';
import { verify } from '../../src/audit/reader/verify.ts';
import { Secret } from '../../src/base/secret.ts';
import { AUDIT_KEY, openTestAudit, REPLICA, recordAccess, useFolders } from '../support/audit-log.ts';
import { verifyByPage } from '../support/page-verifier.ts';
import { repository } from '../support/repository.ts';
import { until } from '../support/until.ts';

const page = await readFile(join(repository, 'docs/audit.md'), 'utf8');
const [, example = ''] = /```jsonl\n([\s\S]*?)```/.exec(page) ?? [];
const [, key = ''] = /key file holds `([0-9a-f]{64})`/.exec(page) ?? [];
const EXAMPLE_REPLICA = 'gateway-1';

const folder = useFolders();

async function writeExample(text: string): Promise<string> {
  const directory = await folder();
  await mkdir(join(directory, EXAMPLE_REPLICA));
  await writeFile(join(directory, EXAMPLE_REPLICA, '000000000001.jsonl'), text);
  return directory;
}

describe('the worked example of docs/audit.md', () => {
  test('verifies by the rules of the page', async () => {
    const directory = await writeExample(example);
    expect(verifyByPage(join(directory, EXAMPLE_REPLICA), EXAMPLE_REPLICA, key)).toBe(3);
  });

  test('verifies with the gateway', async () => {
    const directory = await writeExample(example);
    const keys = [auditKeys(new Secret(key))];
    const result = await verify({ directory, keys, heads: [], onBytes: () => undefined });
    expect(result).toMatchObject({ alterations: [], notes: [], records: 3, seals: 3 });
  });

  test('does not verify if a byte is changed', async () => {
    const directory = await writeExample(example.replace('192.0.2.7', '192.0.2.8'));
    expect(() => verifyByPage(join(directory, EXAMPLE_REPLICA), EXAMPLE_REPLICA, key)).toThrow('wrong seal');
  });
});

describe('a verifier written from docs/audit.md', () => {
  const segment = { size: 1200, age: 1e9, keep: 1e9 };
  const check = (directory: string): number => verifyByPage(join(directory, REPLICA), REPLICA, AUDIT_KEY);

  async function writeLog(): Promise<string> {
    const directory = await folder();
    const { audit } = await openTestAudit(directory, { segment });
    for (let index = 0; index < 9; index += 1) await recordAccess(audit, { requestId: `q${index}` });
    await audit.close();
    return directory;
  }

  test('follows a log of plain and compressed segments', async () => {
    const directory = await writeLog();
    expect((await readdir(join(directory, REPLICA))).some((name) => name.endsWith('.zst'))).toBe(true);
    expect(check(directory)).toBe(9);
  });

  test('finds that a segment was removed', async () => {
    const directory = await writeLog();
    const names = (await readdir(join(directory, REPLICA))).filter((name) => name.includes('.jsonl')).sort();
    await rm(join(directory, REPLICA, names[0] ?? ''));
    expect(() => check(directory)).toThrow('the beginning of the log is missing');
    await rm(join(directory, REPLICA, names[2] ?? ''));
    expect(() => check(directory)).toThrow('gap');
  });

  test('follows a log whose oldest segments were retired', async () => {
    const directory = await writeLog();
    const { audit } = await openTestAudit(directory, { segment: { size: 1e9, age: 1, keep: 1 } });
    await recordAccess(audit);
    await recordAccess(audit);
    await until(async () => !(await readdir(join(directory, REPLICA))).includes('000000000001.jsonl.zst'));
    await audit.close();
    expect(check(directory)).toBeGreaterThan(0);
  });
});
