/** Functions that run after each test of every file (`jest/closing.js`), last first: the ends of what it started. */
export const closing: (() => unknown)[] = [];
