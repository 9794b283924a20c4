import { expect, test } from '@jest/globals';
import { SpentBuffers } from '../../src/base/spent-buffers.ts';

test('a collection is asked for each 16 MiB, however they come', () => {
  let collections = 0;
  const spent = new SpentBuffers(() => {
    collections += 1;
  });
  for (let index = 0; index < 255; index += 1) spent.add(65_536);
  expect(collections).toBe(0);
  spent.add(65_536);
  expect(collections).toBe(1);
  spent.add(100 * 2 ** 20);
  expect(collections).toBe(2);
});
