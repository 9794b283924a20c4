/*
 * The page that a reader wanted before the sign-in. It is behind `#`, which neither the form nor the way over the provider
 * brings back, so the tab keeps it meanwhile.
 */

const KEY = 'page';

/** Keeps the page that the address names, if it names one. */
export function keepPage(): void {
  if (location.hash !== '') sessionStorage.setItem(KEY, location.hash);
}

/** Opens the page that was kept, once, unless the address names another one. */
export function openKeptPage(): void {
  const kept = sessionStorage.getItem(KEY);
  sessionStorage.removeItem(KEY);
  if (kept !== null && location.hash === '') history.replaceState(null, '', kept);
}
