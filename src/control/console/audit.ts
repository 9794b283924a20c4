import type { AuditLine, AuditView, ChainView } from '../view.ts';
import { element, List, type Row, setText } from './dom.ts';
import { count, counted, moment, timeOfDay } from './format.ts';

/** Maximum number of lines that are kept for the filter, and of lines that are shown. */
const KEPT = 1000;
const SHOWN = 100;

const CHAIN: Readonly<Record<ChainView['state'], string>> = {
  intact: 'ok',
  altered: 'broken',
  unchecked: 'muted',
  checking: 'muted',
};

/** Shows new lines of the audit log that match the filter, and the state of its chain. */
export class AuditPanel {
  readonly #none = element(
    'p',
    { class: 'muted' },
    'No audit is configured. With an audit section in the configuration, every request is recorded and shown here.',
  );
  readonly #log = element('div', { hidden: '' });
  readonly #chain = element('p');
  readonly #summary = element('p', { class: 'muted' });
  readonly #found = element('span', { class: 'muted', role: 'status' });
  readonly #text = element('input', { id: 'audit-text', type: 'search', spellcheck: 'false' });
  readonly #kind = element('select', { id: 'audit-kind' });
  readonly #list: List<AuditLine>;
  #lines: AuditLine[] = [];

  constructor(parent: HTMLElement) {
    for (const [value, label] of [
      ['', 'responses and events'],
      ['refused', 'refused or failed'],
      ['admin', 'the gateway itself'],
      ['all', 'everything, outcomes too'],
    ] as const) {
      this.#kind.append(element('option', { value }, label));
    }
    const filters = element(
      'div',
      { class: 'filters' },
      element('label', { for: 'audit-kind' }, 'Show'),
      this.#kind,
      element('label', { for: 'audit-text' }, 'with'),
      this.#text,
      this.#found,
    );
    const body = element('tbody');
    const columns = ['Time', 'Client', 'Deployment', 'Request', 'Status', 'Request id'];
    const head = element('tr', {}, ...columns.map((column) => element('th', { scope: 'col' }, column)));
    const table = element('table', { class: 'audit' }, element('thead', {}, head), body);
    // A list that scrolls must be reachable by keyboard.
    const scroller = element(
      'div',
      { class: 'scroller', tabindex: '0', role: 'region', 'aria-label': 'Audit lines' },
      table,
    );
    this.#log.append(this.#chain, this.#summary, filters, scroller);
    parent.append(this.#none, this.#log);
    this.#list = new List(body, ({ seq, time }) => `${seq} ${time}`, row);
    this.#text.addEventListener('input', () => this.#showLines());
    this.#kind.addEventListener('change', () => this.#showLines());
  }

  /** Replaces all lines. */
  fill(lines: readonly AuditLine[]): void {
    this.#lines = [...lines];
    this.#showLines();
  }

  show(audit: AuditView | null, lines: readonly AuditLine[]): void {
    this.#none.hidden = audit !== null;
    this.#log.hidden = audit === null;
    if (audit === null) return;
    const { chain, records, failures, failing } = audit;
    const checked = chain.checkedAt === undefined ? '' : ` Checked ${moment(chain.checkedAt)}.`;
    setText(this.#chain, `Chain ${chain.state}: ${chain.detail}${checked}`);
    this.#chain.className = CHAIN[chain.state];
    const trouble = failing === undefined ? '' : ` Records cannot be written: ${failing}.`;
    setText(
      this.#summary,
      `${counted(records, 'record')} since the start, ${count(failures)} not written.${trouble}`,
    );
    if (lines.length === 0) return;
    this.#lines = [...this.#lines, ...lines].slice(-KEPT);
    this.#showLines();
  }

  #showLines(): void {
    const wanted = this.#text.value.trim().toLowerCase();
    const found = this.#lines.filter((line) => isKind(line, this.#kind.value) && holds(line, wanted));
    this.#list.show(found.slice(-SHOWN).reverse());
    setText(
      this.#found,
      `${count(Math.min(found.length, SHOWN))} of the last ${counted(this.#lines.length, 'line')}`,
    );
  }
}

function isKind({ kind, code, status }: AuditLine, wanted: string): boolean {
  if (wanted === 'refused') return code !== '' || status >= 400;
  return wanted === 'all' || kind === wanted || (wanted === '' && kind !== 'outcome');
}

function holds(line: AuditLine, wanted: string): boolean {
  return wanted === '' || Object.values(line).some((value) => String(value).toLowerCase().includes(wanted));
}

function row(line: AuditLine): Row<AuditLine> {
  const { time, client, deployment, site, operation, method, path, status, code, requestId, kind } = line;
  const request = operation === '' ? `${method} ${path}` : `${operation} (${method} ${path})`;
  const cells = [
    timeOfDay(Date.parse(time)),
    client,
    site === '' ? deployment : `${deployment}, ${site}`,
    kind === 'admin' ? operation : request,
    `${status === 0 ? '' : status} ${code}`.trim(),
    requestId,
  ];
  const failed = code !== '' || status >= 400;
  const made = element(
    'tr',
    failed ? { class: 'failed' } : {},
    ...cells.map((cell) => element('td', {}, cell)),
  );
  // A line of the log never changes.
  return { element: made, update() {} };
}
