import { createRequire, registerHooks } from 'node:module';
import { pathToFileURL } from 'node:url';
import JestRuntime from 'jest-runtime';
import './built-threads.js';
import { setGlobals } from './globals.js';

const require = createRequire(import.meta.url);
const GLOBALS = new URL('globals.js', import.meta.url).href;
/** Where jest-circus keeps what listens to the tests of a file. */
const EVENT_HANDLERS = Symbol.for('EVENT_HANDLERS');

registerHooks({
  resolve: (specifier, context, next) =>
    specifier === '@jest/globals' ? { url: GLOBALS, shortCircuit: true } : next(specifier, context),
});

let files = 0;

/**
 * Loads test files as Node itself does, and not in a context of their own: each process loads the modules of the program
 * once and not once for each file, and its globals are as quick as those of the program.
 */
class Runtime extends JestRuntime {
  /** jest-circus keeps the tests of a file in its module. */
  requireInternalModule(file) {
    delete require.cache[file];
    delete globalThis[EVENT_HANDLERS];
    return require(file);
  }

  unstable_shouldLoadAsEsm() {
    return true;
  }

  async unstable_importModule(file) {
    setGlobals(this.requireModuleOrMock(file, '@jest/globals'));
    files += 1;
    await import(`${pathToFileURL(file)}?file=${files}`);
  }
}

export { Runtime as 'module.exports' };
