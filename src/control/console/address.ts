import { signal } from '@preact/signals';

/** The address behind `#`. */
interface Address {
  readonly path: string;
  readonly query: URLSearchParams;
}

export const address = signal<Address>(readAddress());

addEventListener('hashchange', () => {
  address.value = readAddress();
});

/** Changes the query of the current page without an entry in the history; an empty value removes its name. */
export function changeQuery(changes: Readonly<Record<string, string>>): void {
  const { path, query } = readAddress();
  for (const [name, value] of Object.entries(changes)) {
    if (value === '') query.delete(name);
    else query.set(name, value);
  }
  const suffix = query.size === 0 ? '' : `?${query}`;
  history.replaceState(null, '', `#${path}${suffix}`);
  address.value = readAddress();
}

function readAddress(): Address {
  const [path = '', text] = (location.hash.slice(1) || '/').split('?');
  return { path, query: new URLSearchParams(text) };
}

/** The properties of a page: the parts of the address that its path names, and the query behind it. */
export interface PageProps {
  readonly params: Readonly<Record<string, string>>;
  readonly query: URLSearchParams;
}
