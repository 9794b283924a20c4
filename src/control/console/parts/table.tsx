import type { ComponentChildren } from 'preact';
import { useId, useState } from 'preact/hooks';
import { count, counted } from '../format.ts';

export interface Column<Row> {
  readonly label: string;
  readonly cell: (row: Row) => ComponentChildren;
  /** Makes the column sortable. */
  readonly sortBy?: (row: Row) => string | number;
  /** Numbers are aligned to the right, and sorted from the largest at first. */
  readonly numeric?: boolean;
  readonly class?: string;
}

interface TableProps<Row> {
  /** Names the table for screen readers. */
  readonly label: string;
  /** The first column names its row. */
  readonly columns: readonly Column<Row>[];
  readonly rows: readonly Row[];
  readonly keyOf: (row: Row) => string;
  /** Text that the filter searches; without it there is no filter. */
  readonly textOf?: (row: Row) => string;
  /** Noun for the number of rows. */
  readonly noun?: string;
  /** Maximum number of rows that are shown. */
  readonly limit?: number;
  readonly rowClass?: (row: Row) => string;
  /** Shown instead of the table when there are no rows at all. */
  readonly empty: string;
}

/** Rows that need no sorting on a phone. */
const FEW = 8;

interface Order {
  readonly label: string;
  readonly descending: boolean;
}

/** A table with a filter and with sorting by column. Until a column is chosen, the rows keep their order. */
export function Table<Row>(props: TableProps<Row>) {
  const { label, columns, rows, keyOf, textOf, limit = Number.POSITIVE_INFINITY, noun = 'row' } = props;
  const [order, setOrder] = useState<Order>();
  const [wanted, setWanted] = useState('');
  const filterId = useId();
  if (rows.length === 0) return <p class="muted">{props.empty}</p>;
  const words = wanted.trim().toLowerCase();
  const found =
    textOf === undefined || words === ''
      ? rows
      : rows.filter((row) => textOf(row).toLowerCase().includes(words));
  const shown = sorted(found, columns, order).slice(0, limit);
  return (
    <>
      {textOf !== undefined && (
        <div class="filters">
          <label for={filterId}>Filter</label>
          <input
            id={filterId}
            type="search"
            spellcheck={false}
            value={wanted}
            onInput={({ currentTarget }) => setWanted(currentTarget.value)}
          />
          <span class="muted" role="status">
            {shown.length === rows.length
              ? counted(rows.length, noun)
              : `${count(shown.length)} of ${counted(rows.length, noun)}`}
          </span>
        </div>
      )}
      <table aria-label={label} class={rows.length <= FEW ? 'short' : ''}>
        <thead>
          <tr>
            {columns.map((column) => (
              <Heading key={column.label} column={column} order={order} setOrder={setOrder} />
            ))}
          </tr>
        </thead>
        <tbody>
          {shown.map((row) => (
            <tr key={keyOf(row)} class={props.rowClass?.(row)}>
              {columns.map((column, index) => (
                <Cell key={column.label} column={column} row={row} heads={index === 0} />
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}

interface HeadingProps<Row> {
  readonly column: Column<Row>;
  readonly order: Order | undefined;
  readonly setOrder: (order: Order) => void;
}

function Heading<Row>({ column, order, setOrder }: HeadingProps<Row>) {
  const { label, sortBy, numeric = false } = column;
  if (sortBy === undefined) {
    return (
      <th scope="col" class={classOf(column)}>
        {label}
      </th>
    );
  }
  const current = order?.label === label ? order : undefined;
  const descending = current === undefined ? numeric : !current.descending;
  const sort = current === undefined ? undefined : current.descending ? 'descending' : 'ascending';
  return (
    <th scope="col" class={`${classOf(column)} sortable`} aria-sort={sort}>
      <button type="button" onClick={() => setOrder({ label, descending })}>
        {label}
        <span aria-hidden="true">{current === undefined ? '' : current.descending ? ' ▾' : ' ▴'}</span>
      </button>
    </th>
  );
}

interface CellProps<Row> {
  readonly column: Column<Row>;
  readonly row: Row;
  /** True if the cell names the row. */
  readonly heads: boolean;
}

/** On a phone a row becomes a block, in which the label stands before each value. */
function Cell<Row>({ column, row, heads }: CellProps<Row>) {
  const content = column.cell(row);
  return heads ? (
    <th scope="row" class={classOf(column)}>
      {content}
    </th>
  ) : (
    <td class={classOf(column)} data-label={column.label}>
      {content}
    </td>
  );
}

function classOf<Row>({ numeric = false, class: name = '' }: Column<Row>): string {
  return numeric ? `numeric ${name}` : name;
}

function sorted<Row>(
  rows: readonly Row[],
  columns: readonly Column<Row>[],
  order: Order | undefined,
): readonly Row[] {
  const sortBy = columns.find(({ label }) => label === order?.label)?.sortBy;
  if (order === undefined || sortBy === undefined) return rows;
  const sign = order.descending ? -1 : 1;
  return rows.toSorted((a, b) => sign * compare(sortBy(a), sortBy(b)));
}

function compare(a: string | number, b: string | number): number {
  if (typeof a === 'string' || typeof b === 'string') return String(a).localeCompare(String(b), 'en');
  return a - b;
}

/** A column of numbers, by which the table can be sorted. */
export function numbers<Row>(
  label: string,
  of: (row: Row) => number,
  text: (value: number) => string,
): Column<Row> {
  return { label, cell: (row) => text(of(row)), sortBy: of, numeric: true };
}

export type Fact = readonly [term: string, description: ComponentChildren];

/** A list of terms with their descriptions. `false`: there is nothing to tell. */
export function Facts({ facts }: { readonly facts: readonly (Fact | false)[] }) {
  return (
    <dl>
      {facts
        .filter((fact) => fact !== false)
        .map(([term, description], index) => (
          <div key={`${term} ${index}`}>
            <dt>{term}</dt>
            <dd>{description}</dd>
          </div>
        ))}
    </dl>
  );
}

/** Formats a distinguished name, which has one attribute on each line. */
export function nameText(name: string): string {
  return name.trim().replaceAll('\n', ', ') || 'no name';
}
