/** Those of the test file that runs now: modules of `test/support/` are loaded once, for all files. */
let current = {};

export function setGlobals(globals) {
  current = globals;
}

const global = (name) =>
  new Proxy(() => {}, {
    apply: (_target, self, args) => Reflect.apply(current[name], self, args),
    get: (_target, key) => current[name][key],
  });

export const [afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test] = [
  'afterAll',
  'afterEach',
  'beforeAll',
  'beforeEach',
  'describe',
  'expect',
  'jest',
  'test',
].map(global);
