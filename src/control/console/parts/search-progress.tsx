import { count, counted, momentWithSeconds } from '../format.ts';
import type { Search } from '../search.ts';

export interface SearchProgressProps {
  readonly search: Search;
  /** Noun for what is found. */
  readonly noun: string;
  /** Start of the sentence that names the searched range. */
  readonly range: string;
}

/** The progress of a search in a sentence, with buttons to stop and to continue. */
export function SearchProgress({ search, noun, range }: SearchProgressProps) {
  const { stage, error, notes } = search;
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
            Go on
          </button>
        )}
        {stage === 'failed' && (
          <button type="button" onClick={search.more}>
            Try again
          </button>
        )}
      </div>
      {error !== undefined && stage === 'failed' && (
        <p class="broken" role="alert">
          {error}
        </p>
      )}
      {notes.length > 0 && (
        <ul class="notes degraded" aria-label="Parts of the log that were not searched">
          {notes.map((note) => (
            <li key={note}>{note}</li>
          ))}
        </ul>
      )}
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
  const read = `${count(recordsRead)} records read`;
  if (stage === 'searching')
    return recordsRead === 0 ? 'Searching …' : `Searching${back}: ${found} yet, ${read} …`;
  if (stage === 'done') return `${found}. ${range} was searched, ${read}.`;
  return `${found}${back}, ${read}.`;
}
