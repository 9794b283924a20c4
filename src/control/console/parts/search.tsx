import { useEffect, useState } from 'preact/hooks';
import type { SearchView } from '../../audit-view.ts';
import { ApiError, callApi, messageOf } from '../api.ts';
import { count, counted, momentWithSeconds } from '../format.ts';
import { Alert, Notes } from './panel.tsx';

/** Results after which a search pauses until more are asked for. */
const PAGE = 50;
/** Time after which the server reports its progress, in seconds: doubled with each step, since each has a cost. */
const STEP_SECONDS = { first: 2, most: 20 } as const;
/** Pause before a search is sent again that found no free place, in milliseconds. */
const AGAIN_MS = 1_000;
const TOO_MANY = 429;

interface Progress {
  readonly path: string;
  /** Of the next page; null before the first one, and at the end. */
  readonly cursor: string | null;
  readonly rows: SearchView['rows'];
  /** Everything newer than this was searched; null: the whole time range. */
  readonly searchedTo: string | null;
  readonly recordsRead: number;
  readonly notes: readonly string[];
  /** `paused`: a page is full; `stopped`: by the reader. */
  readonly stage: 'searching' | 'paused' | 'stopped' | 'done' | 'failed';
  /** A sentence if it failed. */
  readonly error?: string;
  /** Names of the criteria that are wrong; absent: none is. */
  readonly wrong?: readonly string[];
}

interface Search extends Progress {
  /** Goes on where the search paused or was stopped. */
  more(): void;
  stop(): void;
}

/**
 * Searches the audit log step by step, until a page is full or the whole log was searched. The search ends when the
 * component goes or the path changes. `path`: with the criteria as its query.
 */
export function useSearch(path: string): Search {
  const [progress, setProgress] = useState<Progress>(() => begin(path));
  const [round, setRound] = useState(0);
  const current = progress.path === path ? progress : begin(path);
  useEffect(() => {
    if (current.stage === 'stopped') return;
    const aborting = new AbortController();
    void run(current, aborting.signal, setProgress);
    return () => aborting.abort();
  }, [path, round]);
  const again = (stage: 'searching' | 'stopped'): void => {
    setProgress({ ...current, stage });
    setRound(round + 1);
  };
  return { ...current, more: () => again('searching'), stop: () => again('stopped') };
}

function begin(path: string): Progress {
  const nothing = { rows: [], searchedTo: null, recordsRead: 0, notes: [], cursor: null };
  return { path, ...nothing, stage: 'searching' };
}

async function run(from: Progress, signal: AbortSignal, show: (progress: Progress) => void): Promise<void> {
  const full = from.rows.length + PAGE;
  let progress = from;
  let seconds: number = STEP_SECONDS.first;
  try {
    while (progress.stage === 'searching') {
      const query = `limit=${full - progress.rows.length}&seconds=${seconds}`;
      const step = await nextStep(progress, query, signal);
      seconds = Math.min(2 * seconds, STEP_SECONDS.most);
      if (signal.aborted) return;
      progress = added(progress, step, full);
      show(progress);
    }
  } catch (error) {
    if (signal.aborted) return;
    const wrong = error instanceof ApiError ? error.parameters : [];
    show({ ...progress, stage: 'failed', error: messageOf(error), wrong });
  }
}

async function nextStep({ path, cursor }: Progress, query: string, signal: AbortSignal): Promise<SearchView> {
  const separator = path.includes('?') ? '&' : '?';
  const after = cursor === null ? '' : `&cursor=${cursor}`;
  const url = `${path}${separator}${query}${after}`;
  for (;;) {
    try {
      return await callApi<SearchView>(url, { signal });
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== TOO_MANY) throw error;
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
      signal.throwIfAborted();
    }
  }
}

function added(
  before: Progress,
  { rows, cursor, searchedTo, recordsRead, notes }: SearchView,
  full: number,
): Progress {
  const all = [...before.rows, ...rows];
  return {
    path: before.path,
    rows: all,
    cursor,
    searchedTo,
    recordsRead: before.recordsRead + recordsRead,
    notes: [...new Set([...before.notes, ...notes])],
    stage: cursor === null ? 'done' : all.length >= full ? 'paused' : 'searching',
  };
}

interface SearchProgressProps {
  readonly search: Search;
  /** Noun for what is found. */
  readonly noun: string;
  /** Start of the sentence that names the searched range. */
  readonly range: string;
}

/** The progress of a search in a sentence, with buttons to stop and to continue. */
export function SearchProgress({ search, noun, range }: SearchProgressProps) {
  const { stage, error, notes, wrong = [] } = search;
  return (
    <>
      <div class="filters">
        <span role="status">{sentence(search, noun, range)}</span>
        {stage === 'searching' && (
          <button type="button" onClick={search.stop}>
            Stop
          </button>
        )}
        {stage === 'stopped' && (
          <button type="button" onClick={search.more}>
            Continue
          </button>
        )}
        {stage === 'failed' && wrong.length === 0 && (
          <button type="button" onClick={search.more}>
            Try again
          </button>
        )}
      </div>
      {stage === 'failed' && wrong.length === 0 && <Alert error={error} />}
      <Notes label="Parts of the log that were not searched" notes={notes} />
    </>
  );
}

/** The button below the results that loads the next page. */
export function MoreButton({ search }: { readonly search: Search }) {
  if (search.stage !== 'paused') return null;
  return (
    <button type="button" class="more" onClick={search.more}>
      Show older ones
    </button>
  );
}

function sentence({ stage, rows, recordsRead, searchedTo }: Search, noun: string, range: string): string {
  const found = rows.length === 0 ? `No ${noun}` : counted(rows.length, noun);
  const back = searchedTo === null ? '' : ` back to ${momentWithSeconds(Date.parse(searchedTo))}`;
  if (stage === 'failed' && recordsRead === 0) return 'Nothing was searched.';
  const read = `${count(recordsRead)} records read`;
  if (stage === 'searching')
    return recordsRead === 0 ? 'Searching …' : `Searching${back}: ${found} yet, ${read} …`;
  if (stage === 'done') return `${found}. ${range} was searched, ${read}.`;
  return `${found}${back}, ${read}.`;
}

/** In place of a page that reads the audit log. `done`: to the records, such as shown. */
export function WithoutAudit({ done }: { readonly done: string }) {
  return (
    <p class="muted">
      No audit is configured. With an audit section in the configuration, every request is recorded and {done}{' '}
      here.
    </p>
  );
}
