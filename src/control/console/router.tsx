import { signal } from '@preact/signals';
import type { ComponentType } from 'preact';
import { ActionsPage } from './pages/actions.tsx';
import { AuditPage } from './pages/audit.tsx';
import { ClientPage } from './pages/client.tsx';
import { ClientsPage } from './pages/clients.tsx';
import { DeploymentPage } from './pages/deployment.tsx';
import { OverviewPage } from './pages/overview.tsx';
import { PolicyPage } from './pages/policy.tsx';
import { RequestPage } from './pages/request.tsx';

/** The properties of a page: the parts of the address that its path names, and the query behind it. */
export interface PageProps {
  readonly params: Readonly<Record<string, string>>;
  readonly query: URLSearchParams;
}

interface PageEntry {
  /** Path behind `#`; a segment with a colon is a parameter. */
  readonly path: string;
  /** Heading of the page; without one, its first parameter. */
  readonly title?: string;
  /** True if the navigation bar links to it. */
  readonly listed?: boolean;
  readonly page: ComponentType<PageProps>;
}

/**
 * All pages, in the order of the navigation bar. To add one: a file in `pages/` that exports a component with
 * `PageProps`, and a line here. The frame in `app.tsx` shows heading, banner and navigation.
 */
export const PAGES: readonly PageEntry[] = [
  { path: '/', title: 'Overview', listed: true, page: OverviewPage },
  { path: '/deployments/:name', page: DeploymentPage },
  { path: '/clients', title: 'Clients', listed: true, page: ClientsPage },
  { path: '/clients/:name', page: ClientPage },
  { path: '/policy', title: 'Policy', listed: true, page: PolicyPage },
  { path: '/audit', title: 'Audit', listed: true, page: AuditPage },
  { path: '/requests/:id', page: RequestPage },
  { path: '/actions', title: 'Actions', listed: true, page: ActionsPage },
];

export interface Route extends PageProps {
  /** Undefined if there is no such page. */
  readonly entry: PageEntry | undefined;
  readonly title: string;
}

/** The page that the address names. */
export const route = signal<Route>(readRoute());

addEventListener('hashchange', () => {
  route.value = readRoute();
});

/** Changes the query of the current page without an entry in the history; an empty value removes its name. */
export function changeQuery(changes: Readonly<Record<string, string>>): void {
  const [path = '', text = ''] = hash().split('?');
  const query = new URLSearchParams(text);
  for (const [name, value] of Object.entries(changes)) {
    if (value === '') query.delete(name);
    else query.set(name, value);
  }
  const suffix = query.size === 0 ? '' : `?${query}`;
  history.replaceState(null, '', `#${path}${suffix}`);
  route.value = readRoute();
}

function hash(): string {
  return location.hash.slice(1) || '/';
}

function readRoute(): Route {
  const [path = '', text] = hash().split('?');
  const query = new URLSearchParams(text);
  for (const entry of PAGES) {
    const params = match(entry.path, path);
    if (params === undefined) continue;
    return { entry, params, query, title: entry.title ?? Object.values(params)[0] ?? '' };
  }
  return { entry: undefined, params: {}, query, title: 'No such page' };
}

function match(pattern: string, path: string): Record<string, string> | undefined {
  const wanted = pattern.split('/');
  const given = path.split('/');
  if (wanted.length !== given.length) return undefined;
  const params: Record<string, string> = {};
  for (const [index, segment] of wanted.entries()) {
    const value = decoded(given[index] ?? '');
    if (value === undefined) return undefined;
    if (segment.startsWith(':')) params[segment.slice(1)] = value;
    else if (segment !== value) return undefined;
  }
  return params;
}

function decoded(segment: string): string | undefined {
  try {
    return decodeURIComponent(segment);
  } catch {
    return undefined;
  }
}
