import { useEffect, useRef } from 'preact/hooks';
import { moment, timeOfDay } from './format.ts';
import { connection, snapshot } from './live.ts';
import { Badge } from './parts/badge.tsx';
import { Banner } from './parts/banner.tsx';
import { ThemeChoice } from './parts/theme.tsx';
import { PAGES, route } from './router.tsx';

/** The frame of every page: header, navigation, banner, heading, footer. */
export function App() {
  const { connected } = connection.value;
  return (
    <div class={connected ? 'frame' : 'frame stale'}>
      <button type="button" class="skip" onClick={() => document.getElementById('main')?.focus()}>
        Skip to the page
      </button>
      <Header />
      <Banner />
      <Main />
      <Footer />
    </div>
  );
}

function Header() {
  const now = snapshot.value;
  return (
    <header>
      <a class="brand" href="#/">
        digest-gateway
      </a>
      <nav aria-label="Pages">
        {PAGES.filter(({ listed }) => listed).map((entry) => (
          <a
            key={entry.path}
            href={`#${entry.path}`}
            aria-current={entry === route.value.entry ? 'page' : undefined}
          >
            {entry.title}
          </a>
        ))}
      </nav>
      <div class="state">
        <span role="status">{now !== undefined && <Badge state={now.gateway.state} />}</span>
        <span role="status" class="muted">
          {connectionText()}
        </span>
      </div>
      <ThemeChoice />
      {now?.tokenAsked && (
        <form method="post" action="/logout">
          <button type="submit">Sign out</button>
        </form>
      )}
    </header>
  );
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
    // Without focus a screen reader would not tell that the page is another one.
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
