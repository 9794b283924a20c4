import { describe, expect, test } from '@jest/globals';
import { BodyReader } from '../../src/http1/body-reader.ts';
import { MalformedMessage } from '../../src/http1/fields.ts';

interface Reading {
  readonly pieces: Buffer[];
  framing: number;
  isWhole: boolean;
}

/** Reads a chunked body, in inputs of this size. */
function read(bytes: string, size = bytes.length): Reading {
  const reader = new BodyReader(1024);
  const reading: Reading = { pieces: [], framing: 0, isWhole: false };
  const receiver = {
    onData: (piece: Buffer, framing: number) => {
      reading.pieces.push(piece);
      reading.framing = framing;
    },
    onEnd: () => {
      reading.isWhole = true;
    },
  };
  reader.begin('chunked');
  let rest = Buffer.alloc(0);
  for (let from = 0; from < bytes.length; from += size) {
    const input = Buffer.concat([rest, Buffer.from(bytes.slice(from, from + size), 'latin1')]);
    const end = reader.read(input, 0, rest.length, receiver);
    rest = input.subarray(end);
  }
  return reading;
}

const textOf = ({ pieces }: Reading): string => Buffer.concat(pieces).toString('latin1');
const chunk = (text: string): string => `${text.length.toString(16)}\r\n${text}\r\n`;
const LAST = '0\r\n\r\n';

describe('chunks', () => {
  test.each([1, 2, 3, 5, 7, 1000])(
    'that come in inputs of %i bytes are one piece for each input at most',
    (size) => {
      const words = ['a', 'bc', 'def', 'ghij'.repeat(20), 'k', 'lm'];
      const bytes = words.map(chunk).join('') + LAST;
      const reading = read(bytes, size);
      expect([textOf(reading), reading.isWhole]).toEqual([words.join(''), true]);
      expect(reading.pieces.length).toBeLessThanOrEqual(Math.ceil(bytes.length / size));
    },
  );

  test('of one byte are allowed in any number, and keep no more memory than their bytes', () => {
    const reading = read(chunk('x').repeat(200_000) + LAST, 64 * 1024);
    expect([textOf(reading).length, reading.isWhole]).toEqual([200_000, true]);
    expect(reading.pieces.length).toBeLessThan(25);
    expect(reading.framing).toBe(5 * (200_000 + 1));
    // Small ones share a buffer.
    const buffers = new Set(reading.pieces.map(({ buffer }) => buffer));
    const kept = Array.from(buffers, ({ byteLength }) => byteLength).reduce((sum, each) => sum + each);
    expect(kept).toBeLessThan(3 * 200_000);
  });

  test('before a malformed one are passed on', () => {
    const reading: string[] = [];
    const reader = new BodyReader(1024);
    reader.begin('chunked');
    const receiver = { onData: (piece: Buffer) => void reading.push(String(piece)), onEnd: () => {} };
    const input = Buffer.from(`${chunk('a')}${chunk('b')}x\r\n`);
    expect(() => reader.read(input, 0, 0, receiver)).toThrow(MalformedMessage);
    expect(reading).toEqual(['ab']);
  });

  test.each([
    ['sizes with eight digits', '00000001\r\nx\r\n'],
    ['short extensions', '1;a=b\r\nx\r\n'],
  ])('with %s are read to their end', (_what, each) => {
    const reading = read(each.repeat(50_000) + LAST);
    expect([textOf(reading).length, reading.isWhole]).toEqual([50_000, true]);
  });

  test.each([
    ['extensions', `1;a=${'b'.repeat(4000)}\r\nx\r\n`],
    ['zeros before the size', `${'0'.repeat(4000)}1\r\nx\r\n`],
    ['small extensions', `1;name=${'b'.repeat(40)}\r\nx\r\n`],
  ])('with many bytes of %s are refused when they add up', (_what, each) => {
    expect(textOf(read(each + LAST))).toBe('x');
    expect(() => read(each.repeat(1000) + LAST)).toThrow(
      expect.objectContaining({ name: 'MalformedMessage', part: 'chunk-framing' }),
    );
  });

  test.each(['', 'g', '-1', '1x', ' 1', '1 ', '1;', '20000000000000', '0x1'])(
    'of the size %j are malformed',
    (size) => {
      expect(() => read(`${size}\r\nx\r\n`)).toThrow(MalformedMessage);
    },
  );
});
