import type { ClientView } from '../view.ts';
import { element, List, type Row, setText } from './dom.ts';
import { count, rate } from './format.ts';

const COLUMNS = ['Client', 'Requests per second', 'Total', 'Refused per minute', 'Refusals'];

/** Shows the request rate and the refusals of each client. */
export class ClientsPanel {
  readonly #list: List<ClientView>;
  readonly #empty = element('p', { class: 'muted' }, 'No requests yet.');
  readonly #table: HTMLElement;

  constructor(parent: HTMLElement) {
    const body = element('tbody');
    const head = element('tr', {}, ...COLUMNS.map((column) => element('th', { scope: 'col' }, column)));
    this.#table = element('table', { class: 'clients' }, element('thead', {}, head), body);
    parent.append(this.#empty, this.#table);
    this.#list = new List(body, ({ name }) => name, row);
  }

  show(clients: readonly ClientView[]): void {
    this.#empty.hidden = clients.length > 0;
    this.#table.hidden = clients.length === 0;
    this.#list.show(clients);
  }
}

function row({ name }: ClientView): Row<ClientView> {
  const title = element('th', { scope: 'row' }, name === '' ? 'unknown' : name);
  const cells = [element('td'), element('td'), element('td'), element('td', { class: 'text' })] as const;
  return {
    element: element('tr', {}, title, ...cells),
    update: ({ perSecond, requests, refusedLastMinute, refusals }) => {
      const [perSecondCell, requestsCell, refusedCell, refusalsCell] = cells;
      setText(perSecondCell, rate(perSecond));
      setText(requestsCell, count(requests));
      setText(refusedCell, count(refusedLastMinute));
      refusedCell.className = refusedLastMinute > 0 ? 'degraded' : '';
      const codes = refusals.map((refusal) => `${refusal.code} ${count(refusal.count)}`);
      setText(refusalsCell, codes.length === 0 ? 'none' : codes.join(', '));
    },
  };
}
