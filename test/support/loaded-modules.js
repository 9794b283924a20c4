import { registerHooks } from 'node:module';
import { isMainThread } from 'node:worker_threads';

/** Preloaded into a gateway (`--import`). At its end it prints the modules that it has loaded, as a line of JSON. */
if (isMainThread) {
  const loaded = [];
  registerHooks({
    load(url, context, next) {
      loaded.push(url);
      return next(url, context);
    },
  });
  process.on('exit', () => {
    process._rawDebug(JSON.stringify({ loaded, builtin: process.moduleLoadList }));
  });
}
