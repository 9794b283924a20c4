import dns, { type LookupAddress, type LookupOptions } from 'node:dns';
import { syncBuiltinESMExports } from 'node:module';
import { putBounded } from './maps.ts';

/** Time after which the addresses of the lookup before are used, in milliseconds. */
const PATIENCE_MS = 250;
/** Age up to which these addresses are used, in milliseconds. */
const MAX_AGE_MS = 86_400_000;
const MAX_NAMES = 10_000;
/** Addresses of each family that are used: Node.js tries each one, and a name server could name thousands. */
const MAX_ADDRESSES = 8;
/** The name servers cannot be reached, fail or refuse: none has said that the name has no address. */
const UNANSWERED: ReadonlySet<string | undefined> = new Set(['EAI_AGAIN', 'EAI_FAIL']);

type Answer = (error: NodeJS.ErrnoException | null, ...found: unknown[]) => void;
type Lookup = (name: string, options: LookupOptions, answer: Answer) => void;

/**
 * Shares the lookups of names in this process, those of libraries among them. A lookup is a call of the system that
 * nothing ends, and few threads make them: connections to one name whose name servers do not answer would take all of
 * these, and no connection by another name could be opened.
 */
export function shareLookups(): void {
  const { lookup } = dns;
  const shared = sharedLookup(lookup as Lookup);
  // With the marks by which `promisify` knows what it returns.
  dns.lookup = Object.defineProperties(shared, Object.getOwnPropertyDescriptors(lookup)) as typeof lookup;
  syncBuiltinESMExports();
}

/**
 * Returns a lookup that asks once at a time for each name, and uses the addresses that it knows of the last time if that
 * takes long or fails.
 */
export function sharedLookup(lookup: Lookup): Lookup {
  const waiting = new Map<string, Set<Answer>>();
  const known = new Map<string, { readonly found: readonly unknown[]; readonly at: number }>();
  return (name, options, answer) => {
    if (typeof options !== 'object') return lookup(name, options, answer);
    const key = JSON.stringify([name, options]);
    const asked = waiting.get(key);
    const waiters = asked ?? new Set();
    const last = known.get(key);
    const isRecent = last !== undefined && performance.now() - last.at < MAX_AGE_MS;
    const timer = isRecent ? setTimeout(() => finish(null, ...last.found), PATIENCE_MS) : undefined;
    const finish: Answer = (error, ...found) => {
      clearTimeout(timer);
      waiters.delete(finish);
      if (isRecent && UNANSWERED.has(error?.code)) answer(null, ...last.found);
      else answer(error, ...found);
    };
    waiters.add(finish);
    if (asked !== undefined) return;
    waiting.set(key, waiters);
    lookup(name, options, (error, ...all) => {
      waiting.delete(key);
      const found = all.map((each) => (Array.isArray(each) ? firstOfFamilies(each) : each));
      if (error === null) putBounded(known, key, { found, at: performance.now() }, MAX_NAMES);
      for (const each of [...waiters]) each(error, ...found);
    });
  };
}

/** In the order in which they were found. */
function firstOfFamilies(addresses: readonly LookupAddress[]): LookupAddress[] {
  const families = Map.groupBy(addresses, ({ family }) => family);
  const kept = new Set(Array.from(families.values(), (each) => each.slice(0, MAX_ADDRESSES)).flat());
  return addresses.filter((each) => kept.has(each));
}
