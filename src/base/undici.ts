import { createRequire } from 'node:module';

const require = createRequire(import.meta.url);

/** Loads undici when it is first needed: as a whole it takes 15 MiB of memory. */
export function loadUndici(): typeof import('undici') {
  return require('undici');
}
