import { useId } from 'preact/hooks';
import { snapshot } from '../live.ts';

/** A criterion of the search: its name in the address, its label, and an example of a value. */
type Field = readonly [name: string, label: string, example?: string];

const FIRST: readonly Field[] = [
  ['identifier', 'Identifier', 'MS-2026-0042'],
  ['requestId', 'Request id'],
  ['client', 'Client'],
  ['from', 'From', '2d ago, 2026-03-01'],
  ['to', 'To', '2026-03-01T08:00Z'],
];

const MORE: readonly Field[] = [
  ['deployment', 'Deployment'],
  ['site', 'Site'],
  ['operation', 'Operation'],
  ['address', 'Client address', '192.0.2.7'],
  ['status', 'Status', '404, 4xx, 400-499'],
  ['code', 'Error code', 'rate-limited'],
  ['outcome', 'Outcome'],
  ['replica', 'Replica', 'gateway-1'],
  ['text', 'Any text'],
];

const KINDS = [
  ['requests', 'requests'],
  ['events', 'events of the gateway'],
  ['all', 'both'],
] as const;

/** The names of all criteria. */
export const CRITERIA: readonly string[] = [...FIRST, ...MORE].map(([name]) => name).concat('kind');

export interface AuditFormProps {
  readonly query: URLSearchParams;
  /** Called when the same search is submitted again, since the address does not change then. */
  readonly onRepeat: () => void;
}

/** The form of the search. Its state is the address of the page, so a search can be sent to others. */
export function AuditForm({ query, onRepeat }: AuditFormProps) {
  const lists = useId();
  const isOpen = MORE.some(([name]) => query.has(name));
  const now = snapshot.value;
  const known: Readonly<Record<string, readonly string[]>> = {
    client: now?.clients.map(({ name }) => name).filter((name) => name !== '') ?? [],
    deployment: now?.deployments.map(({ name }) => name) ?? [],
  };
  const field = ([name, label, example = '']: Field) => (
    <label key={name}>
      {label}
      <input
        name={name}
        type="search"
        spellcheck={false}
        autocapitalize="off"
        placeholder={example}
        defaultValue={query.get(name) ?? ''}
        list={name in known ? `${lists}${name}` : undefined}
      />
    </label>
  );
  return (
    <form
      class="panel search"
      aria-label="Search"
      onSubmit={(event) => {
        event.preventDefault();
        const wanted = queryOf(new FormData(event.currentTarget));
        if (String(wanted) === String(query)) onRepeat();
        else location.hash = `/audit?${wanted}`;
      }}
    >
      <div class="fields">{FIRST.map(field)}</div>
      <details open={isOpen}>
        <summary>More criteria</summary>
        <div class="fields">{MORE.map(field)}</div>
      </details>
      <div class="filters">
        <label>
          Find{' '}
          <select name="kind" defaultValue={query.get('kind') ?? 'requests'}>
            {KINDS.map(([value, label]) => (
              <option key={value} value={value} selected={value === query.get('kind')}>
                {label}
              </option>
            ))}
          </select>
        </label>
        <button type="submit" class="primary">
          Search
        </button>
        {query.size > 0 && <a href="#/audit">New lines as they come</a>}
      </div>
      {Object.entries(known).map(([name, values]) => (
        <datalist key={name} id={`${lists}${name}`}>
          {values.map((value) => (
            <option key={value} value={value} />
          ))}
        </datalist>
      ))}
    </form>
  );
}

function queryOf(form: FormData): URLSearchParams {
  const query = new URLSearchParams();
  for (const name of CRITERIA) {
    const value = String(form.get(name) ?? '').trim();
    if (value !== '') query.set(name, value);
  }
  return query;
}
