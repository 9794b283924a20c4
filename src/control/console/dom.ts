type Child = Node | string;

/** Creates an element with attributes and children. A string becomes text, never HTML. */
export function element<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  attributes: Readonly<Record<string, string>> = {},
  ...children: Child[]
): HTMLElementTagNameMap[Tag] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Returns the element of `index.html` with this id. */
export function byId(id: string): HTMLElement {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`The page has no #${id}`);
  return found;
}

/** Sets a text if it differs: an equal text would end a selection, and a screen reader would read it again. */
export function setText(node: Node, text: string): void {
  if (node.textContent !== text) node.textContent = text;
}

/** The element of one item, with a function that updates it. */
export interface Row<Item> {
  readonly element: HTMLElement;
  update(item: Item): void;
}

/**
 * Shows one element for each item, in order. The elements of items that stay are kept, and with them focus and
 * scroll position.
 */
export class List<Item> {
  readonly #parent: Element;
  readonly #keyOf: (item: Item) => string;
  readonly #make: (item: Item) => Row<Item>;
  readonly #onRemove: (key: string) => void;
  #rows = new Map<string, Row<Item>>();

  constructor(
    parent: Element,
    keyOf: (item: Item) => string,
    make: (item: Item) => Row<Item>,
    onRemove: (key: string) => void = () => {},
  ) {
    this.#parent = parent;
    this.#keyOf = keyOf;
    this.#make = make;
    this.#onRemove = onRemove;
  }

  show(items: readonly Item[]): void {
    const before = this.#rows;
    this.#rows = new Map();
    items.forEach((item, index) => {
      const key = this.#keyOf(item);
      const row = before.get(key) ?? this.#make(item);
      before.delete(key);
      row.update(item);
      this.#rows.set(key, row);
      const there = this.#parent.children[index];
      if (there !== row.element) this.#parent.insertBefore(row.element, there ?? null);
    });
    for (const [key, row] of before) {
      row.element.remove();
      this.#onRemove(key);
    }
  }
}
