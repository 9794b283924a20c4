import { once } from 'node:events';
import { platform, setPriority } from 'node:os';
import { type MessagePort, parentPort, workerData } from 'node:worker_threads';
import { BufferGc } from '../../base/buffer-gc.ts';
import { ignoreSystemError } from '../../base/expected-errors.ts';
import { capitalized } from '../../base/units.ts';
import { findingText } from '../findings.ts';
import { type Page, searchPage } from './newest-first.ts';
import { PseudonymReader } from './pseudonym-reader.ts';
import { csvHeader, csvLine, foundCsv, foundJson, timeOf } from './query.ts';
import { type SearchOptions, search } from './search.ts';
import type {
  ExportTask,
  PageTask,
  SearchTask,
  ThreadMessage,
  ThreadScope,
  UsageTask,
} from './search-thread.ts';
import { NOT_RECORDED, type Undecided, UndecidedRequests } from './undecided.ts';
import { countUsage } from './usage.ts';

/** Messages of one kind that are kept at most. */
const MOST_NOTES = 20;
/** Pages overlap in what is read for them, so what they count cannot be added up. */
const PAGE_PART = 'in what was read for one page, ';
/** Characters of an export that are sent at once, about. */
const PIECE = 64 * 1024;
/** Priority of this thread on Linux ("nice"), so that requests go first. */
const NICENESS = 10;

class ExportTimeout extends Error {}

/**
 * Subject of a sentence: an integrity error, another reason for which results may be missing, or neither. Those of one
 * kind leave room for those of the others.
 */
type NoteKind = 'error' | 'issue' | 'note';

/** Sentences about parts of the log that could not be read or trusted, and about requests that may match. */
class Notes {
  readonly #parts: Readonly<Record<NoteKind, Set<string>>> = {
    error: new Set(),
    issue: new Set(),
    note: new Set(),
  };
  readonly undecided = new UndecidedRequests();

  add(kind: NoteKind, note: string): void {
    const part = this.#parts[kind];
    if (part.size < MOST_NOTES) part.add(note);
  }

  /** For a file that is kept without the rest: what it lacks of the log as that is. */
  get errors(): string[] {
    return [...this.#parts.error, ...this.#parts.issue];
  }

  /** `where`: as `UndecidedRequests.sentences` has it. */
  all(where?: string): string[] {
    return [...this.errors, ...this.#parts.note, ...this.undecided.sentences(where)];
  }
}

// This module runs in the thread of search-thread.ts.
if (parentPort !== null) {
  yieldToRequests();
  const { scope, task } = workerData as { scope: ThreadScope; task: SearchTask };
  const notes = new Notes();
  const options = await optionsOf(scope, notes);
  if (task.kind === 'export') await sendExport(parentPort, task, options, notes);
  else {
    const result = await resultOf(task, options);
    const all = notes.all(isOneOfMany(task, result) ? PAGE_PART : undefined);
    post(parentPort, { result: { ...result, notes: all, errors: notes.errors } });
  }
}

function yieldToRequests(): void {
  try {
    // Elsewhere this would set the priority of the whole process.
    if (platform() === 'linux') setPriority(NICENESS);
  } catch (error) {
    // A sandbox can forbid it, as the unit of systemd does.
    ignoreSystemError(error);
  }
}

async function resultOf(task: PageTask | UsageTask, options: SearchOptions) {
  return task.kind === 'page'
    ? { page: await searchPage({ ...options, ...task, now: () => performance.now() }) }
    : { usage: await countUsage({ ...options, ...task }) };
}

/** True for a page that others follow or precede. */
function isOneOfMany(task: PageTask | UsageTask, result: { readonly page?: Page }): boolean {
  return task.kind === 'page' && (task.after !== undefined || result.page?.next !== undefined);
}

async function sendExport(
  port: MessagePort,
  { format, most, timeMs }: ExportTask,
  options: SearchOptions,
  notes: Notes,
): Promise<void> {
  const begun = performance.now();
  const onBytes = (count: number, stored: number): void => {
    options.onBytes(count, stored);
    if (performance.now() - begun > timeMs) throw new ExportTimeout();
  };
  // An export is complete without the refusals of which the log never had a record.
  const onUndecided = (reason: Undecided, requests: number): void => {
    if (reason !== 'leftOut') notes.undecided.add(reason, requests);
  };
  let text = format === 'csv' ? csvHeader() : '';
  let rows = 0;
  let last = 'the beginning';
  let cut: string | undefined;
  try {
    for await (const found of search({ ...options, onBytes, onUndecided })) {
      if (rows === most) {
        cut = `the limit of ${most} results`;
        break;
      }
      text += format === 'csv' ? foundCsv(found) : foundJson(found);
      rows += 1;
      last = timeOf(found);
      if (text.length < PIECE) continue;
      await sendPiece(port, text);
      text = '';
    }
  } catch (error) {
    if (!(error instanceof ExportTimeout)) throw error;
    cut = `the limit of ${timeMs / 60_000} minutes`;
  }
  for (const note of [...notes.errors, ...notes.undecided.sentences()]) text += trailer(format, note);
  if (cut !== undefined) {
    text += trailer(format, `This export was cut at ${cut}: results after ${last} are missing.`);
  }
  await sendPiece(port, text);
  post(port, { result: undefined });
}

/** A line behind the results of an export that may not be complete. */
function trailer(format: ExportTask['format'], sentence: string): string {
  return format === 'csv' ? csvLine([sentence]) : `${JSON.stringify({ cut: true, detail: sentence })}\n`;
}

/** Sends a piece and waits until the receiver asks for the next one. */
async function sendPiece(port: MessagePort, text: string): Promise<void> {
  const asked = once(port, 'message');
  post(port, { text });
  await asked;
}

async function optionsOf(
  { directory, keys, keysDirectory, parameters, query }: ThreadScope,
  notes: Notes,
): Promise<SearchOptions> {
  const onIssue = (issue: string): void => notes.add('issue', `Pseudonyms stay as they are: ${issue}.`);
  const pseudonyms = await PseudonymReader.open(keysDirectory, onIssue);
  if (query.id !== undefined && parameters.length === 0) notes.add('issue', `${capitalized(NOT_RECORDED)}.`);
  const gc = new BufferGc();
  return {
    directory,
    keys,
    query,
    pseudonyms,
    onBytes: (count) => gc.add(count),
    parameters,
    onUndecided: notes.undecided.add,
    onUnreadable: (finding) => notes.add('error', findingText(finding)),
    onNote: (finding) => {
      // The end of a log that is being written says nothing about it.
      if (finding.kind !== 'bytes-unsealed') notes.add('note', findingText(finding));
    },
  };
}

function post(port: MessagePort, message: ThreadMessage): void {
  port.postMessage(message);
}
