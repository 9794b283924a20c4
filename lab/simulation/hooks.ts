import { registerHooks } from 'node:module';
import { pathToFileURL } from 'node:url';
import { repository } from '../../test/support/repository.ts';
import type { Mutation } from './mutations.ts';

/** Puts the simulated client of Redis in the place of ioredis, for everything that is loaded from now on. */
export function simulateRedis(): void {
  const library = new URL('redis/client-library.ts', import.meta.url).href;
  registerHooks({
    resolve: (specifier, context, next) =>
      specifier === 'ioredis' ? { url: library, shortCircuit: true } : next(specifier, context),
  });
}

/** Puts the simulated upstream in the place of the connector, for everything that is loaded from now on. */
export function simulateUpstream(): void {
  const connector = new URL('upstream/connector.ts', import.meta.url).href;
  const replaced = pathToFileURL(`${repository}/src/transport/connector.ts`).href;
  registerHooks({
    resolve: (specifier, context, next) => {
      const found = next(specifier, context);
      return found.url === replaced ? { ...found, url: connector } : found;
    },
  });
}

/** Changes the source of the mutated file while it is loaded. Loading fails if the text to change is not there once. */
export function mutate({ file, find, replace }: Mutation): void {
  const mutated = pathToFileURL(`${repository}/${file}`).href;
  registerHooks({
    load: (url, context, next) => {
      const loaded = next(url, context);
      if (url !== mutated) return loaded;
      const source = String(loaded.source);
      if (source.split(find).length !== 2) throw new Error(`${file} does not have this text once: ${find}`);
      return { ...loaded, source: source.replace(find, () => replace) };
    },
  });
}
