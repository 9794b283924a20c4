import type { ErrorView } from '../view.ts';
import { element, List, type Row, setText } from './dom.ts';
import { ago, counted } from './format.ts';

/** Shows the recent errors with advice. */
export class ErrorsPanel {
  readonly #list: List<ErrorView>;
  readonly #empty = element('p', { class: 'muted' }, 'No errors since the start.');
  #now = 0;

  constructor(parent: HTMLElement) {
    const items = element('ul', { class: 'errors' });
    parent.append(this.#empty, items);
    this.#list = new List(
      items,
      ({ deployment, code }) => `${deployment} ${code}`,
      (error) => this.#item(error),
    );
  }

  show(errors: readonly ErrorView[], now: number): void {
    this.#now = now;
    this.#empty.hidden = errors.length > 0;
    this.#list.show(errors);
  }

  #item({ title, code, deployment }: ErrorView): Row<ErrorView> {
    const when = element('span', { class: 'when muted' });
    const advice = element('p');
    const request = element('p', { class: 'muted small' });
    const heading = element(
      'h3',
      {},
      deployment === '' ? title : `${deployment}: ${title}`,
      ' ',
      element('code', {}, code),
    );
    return {
      element: element('li', {}, element('div', {}, heading, when), advice, request),
      update: (error) => {
        setText(when, `${counted(error.count, 'time')}, ${ago((this.#now - error.lastAt) / 1000)}`);
        setText(advice, error.advice);
        setText(request, `last request ${error.requestId}`);
      },
    };
  }
}
