import { ConfigError } from '../config/issues.ts';
import { loadLocated } from '../config/load.ts';
import { type Credential, CredentialVersions } from '../credentials/credentials.ts';
import {
  CredentialError,
  type CredentialSources,
  type PartSources,
  proofSources,
  readCredentials,
} from '../credentials/reading.ts';
import { describeSource, SourceReader } from '../credentials/sources.ts';
import { secretUses } from '../setup/secret-uses.ts';
import { type Io, print, processContext } from './io.ts';
import { alignColumns } from './table.ts';

interface Row {
  readonly name: string;
  readonly state: 'current' | 'next' | 'unused';
  readonly from: readonly string[];
  readonly version: string;
  /** Undefined if unknown. */
  readonly changedAt: Date | undefined;
}

const UNITS = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['m', 60_000],
  ['s', 1000],
] as const;

/** `credential list`: one row for each credential, next version, and unused sealed entry. */
export async function listCredentials(
  io: Io,
  { config: file, json = false }: { config: string; json?: boolean },
): Promise<void> {
  const rows = await readRows(io, file);
  const text = json ? JSON.stringify(rows, undefined, 2) : listLines(rows, Date.now()).join('\n');
  await print(io, `${text}\n`);
}

async function readRows(io: Io, file: string): Promise<Row[]> {
  const { config, locate } = await loadLocated(file);
  const reader = new SourceReader(processContext(io), config.sealed);
  const { byName } = await readCredentials(config.credentials, reader, new CredentialVersions()).catch(
    (error) => {
      throw error instanceof CredentialError ? new ConfigError(error.issues.map(locate)) : error;
    },
  );
  const uses = [...secretUses(config)].map(({ source }) => source);
  const used = new Set(uses.flatMap((source) => ('sealed' in source ? source.sealed : [])));
  const rows = Object.entries(config.credentials).flatMap(([name, sources]): Row[] => {
    const set = byName.get(name);
    return [...rowOf('current', sources, set?.current), ...rowOf('next', nextOf(sources), set?.next)];
  });
  for (const [name, { version, sealedAt }] of await reader.sealed()) {
    if (used.has(name)) continue;
    const from = [`sealed ${name}`];
    rows.push({ name: '-', state: 'unused', from, version: String(version), changedAt: sealedAt });
  }
  return rows;
}

function rowOf(state: Row['state'], sources: PartSources, credential: Credential | undefined): Row[] {
  if (credential === undefined) return [];
  const { name, version, changedAt } = credential;
  return [{ name, state, from: proofSources(sources).map(describeSource), version, changedAt }];
}

/** Without a password of its own, `next` has the source of the current password. */
function nextOf({ next, ...current }: CredentialSources): PartSources {
  return next?.password !== undefined || next?.ha1 !== undefined ? next : current;
}

function listLines(rows: readonly Row[], now: number): string[] {
  const lines = rows.map(({ name, state, from, version, changedAt }) => {
    const age = changedAt === undefined ? '-' : ageText(now - changedAt.getTime());
    return [name, state, version, age, from.join(', ')];
  });
  return alignColumns([['NAME', 'STATE', 'VERSION', 'AGE', 'FROM'], ...lines]);
}

/** Formats an age in the largest unit that fits, rounded down. */
function ageText(milliseconds: number): string {
  const [name, size] = UNITS.find(([, unit]) => milliseconds >= unit) ?? ['s', 1000];
  return `${Math.max(0, Math.floor(milliseconds / size))}${name}`;
}
