import { computed } from '@preact/signals';
import { type ComponentType, render } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import type { OperatorView } from '../action-view.ts';
import { useFetch } from './api.ts';
import { moment, timeOfDay } from './format.ts';
import { connection, follow, snapshot } from './live.ts';
import { ActionsPage } from './pages/actions.tsx';
import { AuditPage } from './pages/audit.tsx';
import { CertificatesPage } from './pages/certificates.tsx';
import { ClientPage } from './pages/client.tsx';
import { ClientsPage } from './pages/clients.tsx';
import { ConfigurationPage } from './pages/configuration.tsx';
import { DeploymentPage } from './pages/deployment.tsx';
import { ErrorPage, ErrorsPage } from './pages/errors.tsx';
import { MapPage } from './pages/map.tsx';
import { OverviewPage } from './pages/overview.tsx';
import { PolicyPage } from './pages/policy.tsx';
import { RequestPage } from './pages/request.tsx';
import { UsagePage } from './pages/usage.tsx';
import { WorkersPage } from './pages/workers.tsx';
import { address, type PageProps } from './parts/links.tsx';
import { Badge, Banner } from './parts/state.tsx';
import { ThemeMenu } from './parts/theme.tsx';

interface PageEntry {
  /** Path behind `#`; a segment with a colon is a parameter. */
  readonly path: string;
  /** Heading of the page; without one, its first parameter. */
  readonly title?: string;
  /** Where the navigation lists it; without one, only pages link to it. */
  readonly group?: (typeof GROUPS)[number];
  readonly page: ComponentType<PageProps>;
}

/** Parts of the navigation, in their order. */
const GROUPS = ['Traffic', 'Access', 'Log', 'Gateway'] as const;

/**
 * All pages, in the order of the navigation. To add one: a file in `pages/` that exports a component with
 * `PageProps`, and a line here. The frame below shows heading, banner and navigation.
 */
const PAGES: readonly PageEntry[] = [
  { path: '/', title: 'Overview', group: 'Traffic', page: OverviewPage },
  { path: '/deployments/:name', page: DeploymentPage },
  { path: '/map', title: 'Map', group: 'Traffic', page: MapPage },
  { path: '/errors', title: 'Errors', group: 'Traffic', page: ErrorsPage },
  { path: '/errors/:code', page: ErrorPage },
  { path: '/clients', title: 'Clients', group: 'Access', page: ClientsPage },
  { path: '/clients/:name', page: ClientPage },
  { path: '/policy', title: 'Policy', group: 'Access', page: PolicyPage },
  { path: '/audit', title: 'Audit', group: 'Log', page: AuditPage },
  { path: '/usage', title: 'Usage', group: 'Log', page: UsagePage },
  { path: '/requests/:id', page: RequestPage },
  { path: '/workers', title: 'Workers', group: 'Gateway', page: WorkersPage },
  { path: '/certificates', title: 'Certificates', group: 'Gateway', page: CertificatesPage },
  { path: '/configuration', title: 'Configuration', group: 'Gateway', page: ConfigurationPage },
  { path: '/actions', title: 'Actions', group: 'Gateway', page: ActionsPage },
];

interface Route extends PageProps {
  /** Undefined if there is no such page. */
  readonly entry: PageEntry | undefined;
  readonly title: string;
}

/** The page that the address names. */
const route = computed<Route>(() => routeOf(address.value));

/** The frame of every page: navigation, header, banner, heading, footer. */
function App() {
  const { connected } = connection.value;
  return (
    <div class={connected ? 'frame' : 'frame stale'}>
      <button type="button" class="skip" onClick={() => document.getElementById('main')?.focus()}>
        Skip to the page
      </button>
      <Header />
      <Navigation />
      <div class="content">
        <Banner />
        <Main />
        <Footer />
      </div>
    </div>
  );
}

/** The name of the popover that the navigation is on a narrow screen. */
const NAVIGATION = 'pages';

function Header() {
  const now = snapshot.value;
  return (
    <header>
      <button type="button" class="pages" popovertarget={NAVIGATION}>
        <span aria-hidden="true">☰</span> Pages
      </button>
      <a class="brand" href="#/">
        digest-gateway
      </a>
      <div class="state">
        <span role="status">{now !== undefined && <Badge state={now.gateway.state} />}</span>
        <span role="status" class={connection.value.connected ? 'muted pulse' : 'muted'}>
          {connectionText()}
        </span>
      </div>
      <ThemeMenu />
      {now?.tokenAsked && (
        <form method="post" action="/logout">
          <OperatorName />
          <button type="submit">Sign out</button>
        </form>
      )}
    </header>
  );
}

/** The person who signed in; nothing in a session of a token. */
function OperatorName() {
  const { data } = useFetch<OperatorView>('/api/operator');
  if (!data?.name) return null;
  return (
    <span class="operator" title={data.roles.join(', ')}>
      {data.name}{' '}
    </span>
  );
}

/** A column on a wide screen; on a narrow one a popover, which ends with the choice of a page. */
function Navigation() {
  const nav = useRef<HTMLElement>(null);
  const { entry } = route.value;
  useEffect(() => {
    if (nav.current?.matches(':popover-open')) nav.current.hidePopover();
  }, [entry]);
  return (
    <nav ref={nav} id={NAVIGATION} popover="auto" aria-label="Pages">
      {GROUPS.map((group) => (
        <div key={group}>
          <span class="group">{group}</span>
          {PAGES.filter((page) => page.group === group).map((page) => (
            <a key={page.path} href={`#${page.path}`} aria-current={currency(page, entry)}>
              {page.title}
            </a>
          ))}
        </div>
      ))}
    </nav>
  );
}

/** Whether a link of the navigation is to the page that is shown, or to the list that it belongs to. */
function currency(page: PageEntry, shown: PageEntry | undefined): 'page' | 'true' | undefined {
  if (page === shown) return 'page';
  return shown?.path.startsWith(`${page.path}/`) ? 'true' : undefined;
}

function connectionText(): string {
  const { connected, lostAt } = connection.value;
  if (connected) return 'live';
  return lostAt === undefined ? 'connecting …' : `No connection since ${timeOfDay(lostAt)}. Trying again.`;
}

function Main() {
  const { entry, title, params, query } = route.value;
  const main = useRef<HTMLElement>(null);
  const path = `${entry?.path} ${title}`;
  const shown = useRef(path);
  const state = snapshot.value?.gateway.state;
  useEffect(() => {
    document.title = [state, title, 'digest-gateway'].filter(Boolean).join(' · ');
  }, [state, title]);
  useEffect(() => {
    if (shown.current === path) return;
    shown.current = path;
    // Without focus a screen reader would not announce the new page.
    main.current?.focus();
    scrollTo(0, 0);
  }, [path]);
  return (
    <main id="main" ref={main} tabIndex={-1} aria-labelledby="title">
      <h1 id="title">{title}</h1>
      {entry === undefined ? (
        <p>
          There is no such page. <a href="#/">Overview</a>
        </p>
      ) : (
        <entry.page key={path} params={params} query={query} />
      )}
    </main>
  );
}

function Footer() {
  const now = snapshot.value;
  if (now === undefined) return <footer />;
  const { version, node, startedAt, configuredAt, storeUp } = now.gateway;
  const redis = storeUp === null ? 'without Redis' : storeUp ? 'Redis reachable' : 'Redis unreachable';
  return (
    <footer>
      digest-gateway {version} on Node.js {node}; up since {moment(startedAt)}; configured{' '}
      {moment(configuredAt)}; {redis}
    </footer>
  );
}

function routeOf({ path, query }: typeof address.value): Route {
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

const place = document.getElementById('app');
if (place === null) throw new Error('index.html has no #app');
place.replaceChildren();
render(<App />, place);
follow();
