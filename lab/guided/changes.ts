import type { Random } from '../simulation/random.ts';

/** Bytes that parsers treat in their own way. */
const SPECIAL = Buffer.from('\0\t\n\r !"#$%&\'()*+,-./0189:;<=>?@AZ[\\]^_az{|}~\x7f\x80\xa0\xff', 'latin1');
/** Numbers at bounds. */
const NUMBERS = [
  '0',
  '1',
  '2',
  '7',
  '12',
  '-1',
  '1.5',
  '1e9',
  '4294967295',
  '4294967296',
  '9007199254740993',
];
const COMMON = [...NUMBERS, 'null', 'true', '""', '{}', '[]'];
const MOST_CHANGES = 6;
const LONGEST_REPEAT = 64;

/** Makes inputs from inputs. */
export class InputChanges {
  readonly #random: Random;
  readonly #tokens: readonly Buffer[];
  readonly #longest: number;

  /** `tokens`: texts that mean something to the target. `longest`: the most bytes of an input. */
  constructor(random: Random, tokens: readonly string[], longest: number) {
    this.#random = random;
    this.#tokens = [...COMMON, ...tokens].map((token) => Buffer.from(token, 'latin1'));
    this.#longest = longest;
  }

  /** An input that differs from the first one in a few places, perhaps with a part of the other. */
  of(input: Buffer, other: Buffer): Buffer {
    let changed = input;
    for (let left = this.#random.whole(1, MOST_CHANGES); left > 0; left -= 1) {
      changed = this.#once(changed, other);
    }
    return changed.subarray(0, this.#longest);
  }

  #once(input: Buffer, other: Buffer): Buffer {
    const random = this.#random;
    const at = random.whole(0, input.length);
    switch (random.whole(0, 10)) {
      case 0:
        return replaced(input, at, 1, Buffer.of((input[at] ?? 0) ^ (1 << random.whole(0, 7))));
      case 1:
        return replaced(input, at, 1, Buffer.of(random.whole(0, 255)));
      case 2:
        return replaced(input, at, random.whole(0, 1), this.#special());
      case 3:
        return replaced(input, at, random.whole(1, 16), Buffer.alloc(0));
      case 4:
        return replaced(input, at, 0, this.#token());
      case 5: {
        const token = this.#token();
        return replaced(input, at, token.length, token);
      }
      case 6:
        return replaced(input, random.whole(0, input.length), 0, this.#partOf(input));
      case 7:
        return replaced(input, at, random.whole(0, 16), this.#partOf(other));
      case 8:
        return replaced(input, at, 0, this.#repeated(input));
      case 9:
        return input.subarray(0, at);
      default:
        return this.#number(input);
    }
  }

  #special(): Buffer {
    return Buffer.of(SPECIAL[this.#random.whole(0, SPECIAL.length - 1)] ?? 0);
  }

  #token(): Buffer {
    return this.#random.pick(this.#tokens);
  }

  #partOf(bytes: Buffer): Buffer {
    const from = this.#random.whole(0, bytes.length);
    return bytes.subarray(from, from + this.#random.whole(1, 32));
  }

  /** A part many times: bounds of count and length are reached by nothing else. */
  #repeated(input: Buffer): Buffer {
    const part = this.#random.chance(0.5) ? this.#token() : this.#partOf(input);
    const times = this.#random.whole(2, LONGEST_REPEAT);
    return Buffer.concat(Array.from({ length: times }, () => part)).subarray(0, this.#longest);
  }

  /** Puts another number in the place of one, if there is one. */
  #number(input: Buffer): Buffer {
    const start = this.#random.whole(0, input.length);
    const [number = ''] = /\d+/.exec(input.toString('latin1', start)) ?? [];
    const at = number === '' ? start : input.indexOf(number, start, 'latin1');
    return replaced(input, at, number.length, Buffer.from(this.#random.pick(NUMBERS)));
  }
}

/** The input with other bytes in the place of some. */
function replaced(input: Buffer, at: number, count: number, by: Buffer): Buffer {
  return Buffer.concat([input.subarray(0, at), by, input.subarray(at + count)]);
}
