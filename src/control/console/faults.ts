import type { FaultView } from '../view.ts';
import { element, List, type Row, setText } from './dom.ts';
import { ago, counted } from './format.ts';

/** What went wrong lately, and what to do about it. */
export class FaultsPanel {
  readonly #list: List<FaultView>;
  readonly #empty = element('p', { class: 'muted' }, 'No errors since the start.');
  #now = 0;

  constructor(parent: HTMLElement) {
    const items = element('ul', { class: 'faults' });
    parent.append(this.#empty, items);
    this.#list = new List(
      items,
      ({ deployment, code }) => `${deployment} ${code}`,
      (fault) => this.#item(fault),
    );
  }

  show(faults: readonly FaultView[], now: number): void {
    this.#now = now;
    this.#empty.hidden = faults.length > 0;
    this.#list.show(faults);
  }

  #item({ title, code, deployment }: FaultView): Row<FaultView> {
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
      update: (fault) => {
        setText(when, `${counted(fault.count, 'time')}, ${ago((this.#now - fault.lastAt) / 1000)}`);
        setText(advice, fault.advice);
        setText(request, `last request ${fault.requestId}`);
      },
    };
  }
}
