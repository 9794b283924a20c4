/** Stands in for `@jest/globals` while mutants are tested: the same parts of jest, without its module system. */
import { jestExpect } from '@jest/expect';
import { ModernFakeTimers } from '@jest/fake-timers';

export { afterAll, afterEach, beforeAll, beforeEach, describe, it, test } from 'jest-circus';

export const expect = jestExpect;

const config = { fakeTimers: {} } as ConstructorParameters<typeof ModernFakeTimers>[0]['config'];
/** The part of `jest` that tests of the mutated folders use. */
export const jest = new ModernFakeTimers({ global: globalThis, config });
