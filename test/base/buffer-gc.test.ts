import { expect, test } from '@jest/globals';
import { BufferGc } from '../../src/base/buffer-gc.ts';

test('a collection is asked for each 16 MiB, however they come', () => {
  let collections = 0;
  const gc = new BufferGc(() => {
    collections += 1;
  });
  for (let index = 0; index < 255; index += 1) gc.add(65_536);
  expect(collections).toBe(0);
  gc.add(65_536);
  expect(collections).toBe(1);
  gc.add(100 * 2 ** 20);
  expect(collections).toBe(2);
});

test('the bytes of a body above 1 MiB count fourfold', () => {
  let collections = 0;
  const gc = new BufferGc(() => {
    collections += 1;
  });
  for (let size = 65_536; size <= 2 ** 20; size += 65_536) gc.add(65_536, size);
  for (let count = 0; count < 59; count += 1) gc.add(65_536, 2 ** 21);
  expect(collections).toBe(0);
  gc.add(65_536, 2 ** 21);
  expect(collections).toBe(1);
});
