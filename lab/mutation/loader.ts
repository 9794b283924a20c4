import { registerHooks } from 'node:module';
import { pathToFileURL } from 'node:url';

const globals = new URL('globals.ts', import.meta.url).href;

let version = 0;

/**
 * Makes the modules of the working folder loadable more than once, for code that runs while a module is loaded.
 * Everything in `node_modules` is loaded once, and `@jest/globals` is replaced.
 */
export function installLoader(): void {
  const folder = pathToFileURL(`${process.cwd()}/`).href;
  registerHooks({
    resolve(specifier, context, next) {
      if (specifier === '@jest/globals') return { url: globals, shortCircuit: true };
      const resolved = next(specifier, context);
      const isOurs = resolved.url.startsWith(folder) && !resolved.url.includes('/node_modules/');
      return isOurs ? { ...resolved, url: `${resolved.url}?v=${version}` } : resolved;
    },
  });
}

/** Modules are loaded anew from now on. */
export function nextVersion(): void {
  version += 1;
}
