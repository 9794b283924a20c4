import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { zstdDecompressSync } from 'node:zlib';
import { afterAll, afterEach } from '@jest/globals';
import { pino } from 'pino';
import type { Audit, AuditOptions } from '../../src/audit/audit.ts';
import { openAudit } from '../../src/audit/journal/file-audit.ts';
import type { AccessFacts } from '../../src/audit/record.ts';
import { Secret } from '../../src/base/secret.ts';

export const AUDIT_KEY = '0123456789abcdef'.repeat(4);
export const REPLICA = 'r1';

/** Folders for one test each, which go at its end. */
export function useFolders(): () => Promise<string> {
  return foldersUntil(afterEach);
}

/** Folders for all tests of a file, which go at their end. */
export function useFoldersOfAll(): () => Promise<string> {
  return foldersUntil(afterAll);
}

function foldersUntil(end: typeof afterEach): () => Promise<string> {
  const folders: string[] = [];
  end(async () => {
    for (const folder of folders.splice(0))
      await rm(folder, { recursive: true, force: true, maxRetries: 10 });
  });
  return async () => {
    const folder = await mkdtemp(join(tmpdir(), 'audit-'));
    folders.push(folder);
    return folder;
  };
}

export function auditOptions(directory: string, change: Partial<AuditOptions> = {}): AuditOptions {
  return {
    directory,
    replica: REPLICA,
    key: new Secret(AUDIT_KEY),
    durability: 'write',
    onFailure: 'refuse',
    parameters: ['ids', 'site_name'],
    segment: { size: 2 ** 28, age: 86_400_000, keep: 86_400_000 },
    ...change,
  };
}

export interface OpenedAudit {
  readonly audit: Audit;
  readonly logged: Record<string, unknown>[];
}

export async function openTestAudit(
  directory: string,
  change: Partial<AuditOptions> = {},
): Promise<OpenedAudit> {
  const logged: Record<string, unknown>[] = [];
  const log = pino({}, { write: (line: string) => logged.push(JSON.parse(line)) });
  return { audit: await openAudit(auditOptions(directory, change), { log }), logged };
}

export function facts(change: Partial<AccessFacts> = {}): AccessFacts {
  return {
    requestId: 'q1',
    client: 'reporting',
    address: '192.0.2.7',
    deployment: 'submissions',
    site: 'journal-a',
    operation: 'authors',
    method: 'GET',
    target: '/api/x?ids=%27A%27&token=hunter2',
    status: 200,
    code: '',
    upstream: {
      status: 200,
      attempts: 1,
      challenged: false,
      durationMs: 1.26,
      queueMs: 0,
      connectMs: 0,
      earlierMs: 0,
      address: 'a.example',
      egress: '',
    },
    credential: { name: 'journal-a', version: '1' },
    key: '',
    credentialRule: '',
    wouldRefuse: '',
    ...change,
  };
}

/** Resolves to whether the record was written. */
export function recordAccess(audit: Audit, change: Partial<AccessFacts> = {}): Promise<boolean> {
  return new Promise((resolve) => {
    audit.access(facts(change), { recorded: () => resolve(true), unrecorded: () => resolve(false) });
  });
}

/** A segment's text, whether it is compressed or not. */
export async function segmentText(directory: string, name: string): Promise<string> {
  const bytes = await readFile(join(directory, REPLICA, name));
  return (name.endsWith('.zst') ? zstdDecompressSync(bytes) : bytes).toString();
}

/** The records of a plain segment, or of all of a replica's. */
export async function recordsIn(directory: string, replica = REPLICA): Promise<Record<string, unknown>[]> {
  const folder = join(directory, replica);
  const names = (await readdir(folder)).filter((name) => name.endsWith('.jsonl')).sort();
  const texts = await Promise.all(names.map((name) => readFile(join(folder, name), 'utf8')));
  return texts
    .flatMap((text) => text.trimEnd().split('\n'))
    .filter((line) => line.startsWith('{"seq":'))
    .map((line) => JSON.parse(line));
}
