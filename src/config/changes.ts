import type { Config } from './schema.ts';

/** What differs between two configurations, by name: `deployments.submissions`, `anonymous`. Never a value. */
export function changesBetween(before: Config, after: Config): string[] {
  const sections = new Set([...Object.keys(before), ...Object.keys(after)]);
  return [...sections].flatMap((section) => {
    const [old, now] = [sectionOf(before, section), sectionOf(after, section)];
    if (section !== 'deployments' && section !== 'credentials') return same(old, now) ? [] : [section];
    const names = new Set([...Object.keys(old ?? {}), ...Object.keys(now ?? {})]);
    return [...names]
      .filter((name) => !same(sectionOf(old, name), sectionOf(now, name)))
      .map((name) => `${section}.${name}`);
  });
}

function sectionOf(parent: unknown, key: string): object | undefined {
  return (parent as Record<string, object | undefined> | undefined)?.[key];
}

function same(a: unknown, b: unknown): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}
