import { printable } from '../base/printable.ts';
import { signatureFindings, timestampFindings, witnessFindings } from './head-findings.ts';

/**
 * Everything that `audit verify`, a search and the writer find in a log: its stable kind, the cause and remedy for
 * docs/audit/findings.md, and its sentence, which continues one that begins with the place. A kind with `note` is no
 * integrity error. Kinds that come from a record have the name of its event.
 */
const table = {
  'line-invalid': {
    cause: 'A line is neither a record nor a seal: it was changed or inserted.',
    message: () => 'is neither a record nor a seal: it was changed or inserted',
  },
  'header-invalid': {
    cause: 'The first line of a segment is not a header: it was changed or removed.',
    message: () => 'is not the header of a segment: it was changed or removed',
  },
  'replica-mismatch': {
    cause: 'The header names another replica or worker than the folder.',
    remedy: 'Move the file to the folder that its header names, if it was copied to the wrong one.',
    message: ({ replica }: { replica: string }) => `is the log of another replica (${replica})`,
  },
  'segment-renamed': {
    cause: 'The header has another first record than the name of the file.',
    message: ({ first }: { first: number }) => `begins with record ${first}: the file was renamed`,
  },
  'key-unknown': {
    cause: 'None of the given keys sealed the segment.',
    remedy: 'Give the key that sealed it with `--key`. If there never was such a key, the segment is forged.',
    message: ({ key }: { key: string }) => `is sealed with another key (${key}): give that one`,
  },
  'chain-broken': {
    cause: 'The segment does not continue the one before: something between them is missing, or was changed.',
    message: () => 'does not continue the segment before: something between them is missing or was changed',
  },
  'segment-out-of-order': {
    cause: 'The first record of a segment is not the one that follows the segment before.',
    message: ({ first, expected }: { first: number; expected: number }) =>
      `begins with record ${first} where ${expected} belongs`,
  },
  'records-missing': {
    cause: 'Records before this one were removed.',
    message: ({ seq, expected }: { seq: number; expected: number }) =>
      `has number ${seq} where ${expected} belongs: ${seq - expected} records before it are missing`,
  },
  'record-misplaced': {
    cause: 'A record was inserted or moved.',
    message: ({ seq, expected }: { seq: number; expected: number }) =>
      `has number ${seq} where ${expected} belongs: it was inserted or moved`,
  },
  'batch-altered': {
    cause: 'Lines under one seal were changed, inserted, moved or removed.',
    message: (lines: Lines) => `${changedText(lines)}: it does not fit its seal`,
  },
  'seal-malformed': {
    cause: 'A seal does not have the form of one.',
    message: () => 'is a seal that was changed',
  },
  'seal-range-invalid': {
    cause: 'A seal names other records than those before it.',
    message: () => 'is a seal of other records than those before it',
  },
  'seal-invalid': {
    cause: 'The key did not make the seal, or not as a continuation of the one before.',
    message: () =>
      'is a seal that was changed, or does not continue the one before: lines between are missing',
  },
  'batch-too-large': {
    cause: 'More bytes follow without a seal than a gateway puts under one.',
    message: () => 'and what follows have no seal, and are more than one seal covers',
  },
  'errors-omitted': {
    cause:
      'The segment has more integrity errors than are listed, or more seals over no record than a gateway writes; the rest of it was not read.',
    message: () => 'is wrong, too: what follows was not looked at',
  },
  'segment-unreadable': {
    cause: 'The file cannot be read or decompressed to its end, or is not a regular file.',
    remedy: 'Check the owner of the file and the disk. Then restore it from a copy.',
    message: ({ reason }: { reason: string }) => `cannot be read to its end: ${reason}`,
  },
  'line-torn': {
    cause: 'A closed segment ends in the middle of a line.',
    message: ({ bytes }: { bytes: number }) => `ends in the middle of a line (${bytes} bytes)`,
  },
  'lines-unsealed': {
    cause: 'A closed segment ends with lines under no seal.',
    message: ({ lines }: { lines: number }) => `and what follows (${lines} lines) have no seal`,
  },
  'segment-unsealed': {
    cause: 'A segment that is not the newest has no valid seal, or is empty.',
    message: () => 'has no valid seal, and a newer segment follows',
  },
  'appended-after-stop': {
    cause: 'Records follow after the process had stopped: no gateway wrote them.',
    message: ({ records }: { records: number }) =>
      `and what follows (${records} records) were added after the process stopped`,
  },
  'recovered-after-stop': {
    cause: 'A start set lines aside that had been added after the process before had stopped.',
    message: ({ segment, line, file }: { segment: string; line: number; file: string }) =>
      `says that line ${line} of ${segment} and what followed were added after the process stopped; now in ${file}`,
  },
  'segment-missing': {
    cause: 'The oldest segments are missing, and no seal says that they were retired.',
    message: ({ last }: { last: number }) =>
      `is not the first: the segments before it, up to record ${last}, are missing, and no seal says that they were retired`,
  },
  'retired-altered': {
    cause: 'A segment had an integrity error when it was removed for its age.',
    message: ({ segment, altered }: { segment: string; altered: string }) =>
      `says that ${segment} was altered before it was retired: ${altered}`,
  },
  'retired-missing': {
    cause: 'Records were gone, without having been retired, when the segment after them was removed.',
    message: ({ from, to }: { from: number | string; to: number }) =>
      `says that records ${from} to ${to} had gone without having been retired`,
  },
  'retired-unchecked': {
    note: true,
    cause: 'A segment was removed for its age, and the gateway no longer had its key to check it.',
    remedy: 'If there never was such a key, somebody had changed the segment, as for every integrity error.',
    message: ({ segment, key }: { segment: string; key: string }) =>
      `${segment}, sealed with key ${key}, was retired unchecked`,
  },
  'records-lost': {
    cause: 'The stream in Redis had records that the log lacked when the process started.',
    remedy:
      'Get them from the stream or its collector. `--known-loss` makes it a note, once the cause is known, such as a power failure, or another gateway that had the same `audit.replica`.',
    message: ({ from, to, log, ...loss }: { from?: number; to: number; log?: string } & Loss) => {
      const of = log === undefined ? '' : ` of ${log}`;
      const lost =
        from === undefined ? `record ${to}${of}, or some before it,` : `records ${from} to ${to}${of}`;
      return `says that ${lost} had been lost before the process started: the stream in Redis had them${lossText(loss)}`;
    },
  },
  'tree-mismatch': {
    cause: 'Lines before a signed head were changed, inserted, moved or removed, together with their seals.',
    message: (lines: Lines) => `${changedText(lines)}: the signed head after it has another tree`,
  },
  'tree-broken': {
    cause: 'The tree in the header of a segment does not continue that of the segment before.',
    message: () =>
      'has another tree than the records before it: something between them is missing or was changed',
  },
  'tree-restarted': {
    cause:
      'A tree of signed heads ends and another one begins: the gateway found the log altered at its start, or could not check it.',
    remedy:
      'If that start had another key of the seals, and another signing key or a killed process before it, check the log with all keys of the seals (`--config`, `--key`). Otherwise as for every integrity error.',
    message: ({ first, unsigned }: { first: number; unsigned: number }) =>
      `begins a new tree with record ${first}; ${unsigned} records before it are under no signed head`,
  },
  ...signatureFindings,
  ...witnessFindings,
  ...timestampFindings,
  'log-begun-anew': {
    cause: 'The primary process found logs of its workers and none of its own when it started.',
    message: () => 'says that the log before it was missing when the primary process started',
  },
  'log-missing': {
    cause: 'A head, or the log of the primary process, names a replica or worker whose folder is missing.',
    remedy: 'As for every integrity error. For a copy such as that in S3, give `--copy`.',
    message: ({ process }: { process: 'replica' | 'worker' }) =>
      `the whole log of this ${process} is missing`,
  },
  'primary-missing': {
    cause: 'The log of the primary process is missing, and there are logs of its workers.',
    remedy: 'In a copy such as that in S3, wait until the primary process has closed its first segment.',
    message: () => 'the log of its primary process is missing, and there are logs of its workers',
  },
  'head-missing': {
    cause: 'The record of a head is missing from the beginning of the log, and was not retired.',
    message: ({ seq, source, ...loss }: HeadFacts) =>
      `record ${seq} of ${source} is missing, and no seal says that it was retired${lossText(loss)}`,
  },
  'head-retired': {
    note: true,
    cause: 'The record of a head given with `--head` was removed for its age.',
    remedy:
      'If the gateway wrote that record less than `audit.segment.keep` ago, the log was written anew: it removes none then.',
    message: ({ seq }: { seq: number }) => `record ${seq} of --head was removed for its age`,
  },
  'head-ahead': {
    note: true,
    cause: 'With `--copy`, a head is of a segment that is not copied yet.',
    message: ({ seq, source }: HeadFacts) => `ends before record ${seq}, which ${source} names`,
  },
  'log-truncated': {
    cause: 'The log ends before the record of a head: its end was cut off.',
    remedy:
      'See `records-lost`: a power failure with `durability: write` has this effect, too, as has another gateway with the same `audit.replica` that sends to the stream. For a copy such as that in S3, give `--copy`.',
    message: ({ seq, end, source, ...loss }: HeadFacts & { end: number }) =>
      `the end is cut off: record ${seq} was there, as ${source} says, and the log ends with ${end}${lossText(loss)}`,
  },
  'end-altered': {
    cause:
      'The log ends with the record of a head, and with another seal: cut off after it, or written anew.',
    remedy:
      'As for every integrity error, unless another gateway with the same `audit.replica` sends to the stream.',
    message: ({ seq, source: _source, ...loss }: HeadFacts) =>
      `the end is cut off after record ${seq}, or was written anew${lossText(loss)}`,
  },
  'log-rewritten': {
    cause: 'The record of a head has another seal: the log was written anew, or an old copy continued.',
    remedy:
      'As for every integrity error, unless another gateway with the same `audit.replica` sends to the stream.',
    message: ({ seq, source, ...loss }: HeadFacts) =>
      `record ${seq} is sealed otherwise than ${source} says: the log was written anew${lossText(loss)}`,
  },
  'file-name-invalid': {
    cause: 'A file is named like a segment, and not as the gateway names one.',
    message: () => 'is named like a segment, and not as the gateway names one',
  },
  'set-aside': {
    note: true,
    cause: 'A start moved lines without a seal to this file, as after a crash. It is not part of the log.',
    message: ({ bytes, lines, line, segment }: Partial<SetAsideFacts>) => {
      const counts = bytes === undefined ? '' : `${bytes} bytes in ${lines} lines, `;
      const from = segment === undefined ? '' : ` from line ${line} of ${segment} on`;
      return `${counts}set aside at a start${from}; it is not part of the log`;
    },
  },
  'set-aside-altered': {
    cause: 'A file was changed after a start had set it aside.',
    message: () => 'was changed since it was set aside',
  },
  'set-aside-missing': {
    cause: 'A file that a start had set aside is gone, while its segment is still there.',
    message: () => 'is missing: it was set aside at a start, as a seal says',
  },
  'end-unsealed': {
    note: true,
    cause: 'The newest segment ends with lines under no seal: the gateway is writing, or was killed.',
    message: ({ lines, bytes }: { lines: number; bytes: number }) =>
      `ends with ${lines} lines under no seal and ${bytes} bytes of a line: the gateway is writing, or was killed; they count for nothing`,
  },
  'records-retired': {
    note: true,
    cause: 'A search reaches back to before the log begins: earlier records were removed for their age.',
    remedy: 'Search in the copies of the log that you keep.',
    message: ({ first, opened }: { first: number; opened: string }) =>
      `the log begins with record ${first}, at ${opened}: earlier records were removed for their age`,
  },
  'records-altered': {
    cause: 'A search left records out, since no seal covers them as they are.',
    remedy: 'Run `audit verify`.',
    message: ({ records }: { records: number }) =>
      `${records} records are not as a seal covers them, and left out: run audit verify`,
  },
  'record-altered': {
    cause: 'A search found a record that cannot be read as JSON.',
    remedy: 'Run `audit verify`.',
    message: ({ seq }: { seq: number }) => `record ${seq} was changed: run audit verify`,
  },
  'segment-unchecked': {
    cause: 'A search did not check the seals of a segment, since it lacks the key.',
    remedy: 'Give the key with `--key`.',
    message: ({ key }: { key: string }) => `is sealed with key ${key}, and not checked: give it as --key`,
  },
  'bytes-unsealed': {
    cause: 'A search left bytes out at the end of a segment, since no seal covers them.',
    remedy: 'Run `audit verify`. In the newest segment it is a note: the gateway is writing, or was killed.',
    message: ({ bytes }: { bytes: number }) => `${bytes} bytes at its end are under no seal, and left out`,
  },
  'segment-gone': {
    cause: 'The segment that a running gateway writes was removed or renamed, alone or with its folder.',
    message: () => 'is gone',
  },
  'segment-replaced': {
    cause: 'The segment that a running gateway writes was replaced by another file.',
    message: () => 'was replaced by another file',
  },
  'segment-truncated': {
    cause: 'The segment that a running gateway writes became shorter.',
    message: () => 'became shorter than what was written',
  },
  'segment-appended': {
    cause: 'Somebody else appended to the segment that a running gateway writes.',
    message: () => 'holds more than what was written',
  },
} as const satisfies Record<string, KindOfFinding>;

/** The fixed properties of a kind. */
interface KindOfFinding {
  readonly note?: true;
  readonly cause: string;
  /** Undefined: that of every integrity error. */
  readonly remedy?: string;
  readonly message: (facts: never) => string;
}

/** A loss that `--known-loss` with that head makes a note. */
interface Loss {
  readonly loss?: string;
  readonly known?: boolean;
}

interface HeadFacts extends Loss {
  readonly seq: number;
  /** Where the head is from. */
  readonly source: string;
}

interface SetAsideFacts {
  readonly bytes: number;
  readonly lines: number;
  readonly line: number;
  readonly segment: string;
}

interface Lines {
  readonly from: number;
  readonly to: number;
}

function changedText({ from, to }: Lines): string {
  const lines = from >= to ? `line ${to} was` : `one of the lines ${from} to ${to} was`;
  return `${lines} changed, inserted, moved or removed`;
}

function lossText({ loss, known }: Loss): string {
  if (loss === undefined) return '';
  return known === true ? '; this loss is known' : ` (--known-loss ${loss} once the cause is known)`;
}

export type FindingKind = keyof typeof table;

export interface Finding {
  readonly kind: FindingKind;
  readonly facts: Readonly<Record<string, unknown>>;
  readonly message: string;
}

/** A finding and its place. */
export interface PlacedFinding extends Finding {
  /** Name of the folder: a replica, or a worker of it. */
  readonly replica: string;
  /** Name of the file; empty: the finding is about the replica's log as a whole. */
  readonly segment: string;
  /** From 1; 0: the finding is about the file as a whole. */
  readonly line: number;
}

/** Makes a finding of that kind. */
export function finding<K extends FindingKind>(
  kind: K,
  ...[facts = {}]: Parameters<(typeof table)[K]['message']>
): Finding {
  const message = table[kind].message as (facts: object) => string;
  return { kind, facts: { ...facts }, message: message(facts) };
}

/** True if the finding is not an integrity error. */
export function isNote({ kind, facts }: Finding): boolean {
  return 'note' in table[kind] || facts['known'] === true;
}

/** The finding as a line for people. Names of folders can be in it, which somebody else chose. */
export function findingText({ replica, segment, line, kind, message }: PlacedFinding): string {
  const place = segment === '' ? replica : `${replica}/${segment}${line > 0 ? `:${line}` : ''}`;
  return printable(`${place}: ${message} [${kind}]`);
}

/** Returns every kind with its properties. */
export function findingKinds(): [FindingKind, KindOfFinding][] {
  return Object.entries(table) as [FindingKind, KindOfFinding][];
}
