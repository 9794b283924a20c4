import { signal } from '@preact/signals';
import { printable } from '../../../base/printable.ts';
import { date } from '../format.ts';
import { openKeptPage } from '../return.ts';

/*
 * Every name and id on a page is a link to what is known about it.
 */

/** The address of a request's page. `time`: of its record, so that the whole log need not be searched for it. */
export function requestHref(id: string, time?: string): string {
  const at = time === undefined ? '' : `?at=${encodeURIComponent(time)}`;
  return `#/requests/${encodeURIComponent(id)}${at}`;
}

/** A link to a request's page: `requestHref`. */
export function requestLink(id: string, time?: string) {
  return id === '' ? null : <a href={requestHref(id, time)}>{id}</a>;
}

/** A link to the requests in the audit log that have this value, which a client may have chosen. */
export function searchLink(criterion: string, value: string) {
  if (value === '') return null;
  return <a href={`#/audit?${criterion}=${encodeURIComponent(value)}`}>{printable(value)}</a>;
}

/** The address of a client's page; unidentified clients have no page of their own. */
export function clientHref(name: string): string {
  return name === '' ? '#/clients' : `#/clients/${encodeURIComponent(name)}`;
}

/** A link to a client's page: `clientHref`. */
export function clientLink(name: string) {
  return <a href={clientHref(name)}>{name || 'unknown'}</a>;
}

/** The address of a deployment's page. */
export function deploymentHref(name: string): string {
  return `#/deployments/${encodeURIComponent(name)}`;
}

/** A link to a deployment's page: `deploymentHref`. */
export function deploymentLink(name: string) {
  return name === '' ? null : <a href={deploymentHref(name)}>{name}</a>;
}

/** A link to what an error code means. */
export function codeLink(code: string) {
  return (
    <a href={`#/errors/${encodeURIComponent(code)}`}>
      <code>{code}</code>
    </a>
  );
}

/** A link to all certificates, by the end of one in Unix milliseconds. */
export function certificateLink(expiresAt: number) {
  return <a href="#/certificates">{date(expiresAt)}</a>;
}

/** The address behind `#`. */
interface Address {
  readonly path: string;
  readonly query: URLSearchParams;
}

openKeptPage();

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
