/*
 * A WebAssembly module that makes SHA-256 of byte 1 and 64 bytes (an inner node) for four pairs at once, one in each lane
 * of a vector. FIPS 180-4 has the names: `a` to `h`, `W`, `K`, `Ch`, `Maj`.
 */

export const DIGEST_BYTES = 32;
/** Pairs that are hashed side by side. */
export const LANES = 4;
const PAIR_BYTES = 2 * DIGEST_BYTES;
const ROUNDS = 64;
const WORDS = 16;
const STATE = 8;
/** Bits of the message: byte 1 and both nodes. */
const MESSAGE_BITS = 8 * (1 + PAIR_BYTES);

type Code = readonly number[];

const I32 = 0x7f;
const V128 = 0x7b;
const LOOP = [0x03, 0x40];
const IF = [0x04, 0x40];
const END = [0x0b];
const IS_ZERO = [0x45];
const ADD_I32 = [0x6a];

const ADD = vector(174);
const OR = vector(80);
const XOR = vector(81);
const SELECT = vector(82);
const SHIFT_LEFT = vector(171);
const SHIFT_RIGHT = vector(173);
/** The bytes of each lane in the other order, of two vectors that are the same. */
const SWAP_BYTES = [...vector(13), 3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12];
const loadWord = (offset: number, lane: number): Code => [...vector(86), 0, ...unsigned(offset), lane];
const loadByte = (offset: number, lane: number): Code => [...vector(84), 0, ...unsigned(offset), lane];
const storeWord = (offset: number, lane: number): Code => [...vector(90), 0, ...unsigned(offset), lane];
const loadVector = [...vector(0), 4, 0];

// Parameters, then locals.
const GROUPS = 0;
const FROM = 1;
const TO = 2;
const IS_LAST_BLOCK = 3;
const W = 4;
const HASH = W + WORDS;
const WORK = HASH + STATE;
const TEMPORARY = WORK + STATE;
const VECTORS = WORDS + 2 * STATE + 1;

function vector(operation: number): Code {
  return [0xfd, ...unsigned(operation)];
}

/** A number as unsigned LEB128. */
function unsigned(value: number): Code {
  return value < 128 ? [value] : [(value % 128) | 128, ...unsigned(Math.floor(value / 128))];
}

/** A number of 32 bits as signed LEB128. */
function signed(value: number): Code {
  const isLast = value >= -64 && value < 64;
  return isLast ? [value & 127] : [(value & 127) | 128, ...signed(value >> 7)];
}

const get = (local: number): Code => [0x20, ...unsigned(local)];
const set = (local: number): Code => [0x21, ...unsigned(local)];
const constant = (value: number): Code => [0x41, ...signed(value | 0)];
const inAllLanes = (value: number): Code => [...constant(value), ...vector(17)];
const shiftRight = (word: Code, bits: number): Code => [...word, ...constant(bits), ...SHIFT_RIGHT];
const rotateRight = (word: Code, bits: number): Code => [
  ...shiftRight(word, bits),
  ...[...word, ...constant(32 - bits), ...SHIFT_LEFT, ...OR],
];
const rotations = (word: Code, [first, second, third]: readonly [number, number, number]): Code => [
  ...[...rotateRight(word, first), ...rotateRight(word, second), ...XOR],
  ...[...rotateRight(word, third), ...XOR],
];
/** Two rotations and a shift: the lower-case sigmas. */
const sigma = (word: Code, [first, second, shift]: readonly [number, number, number]): Code => [
  ...[...rotateRight(word, first), ...rotateRight(word, second), ...XOR],
  ...[...shiftRight(word, shift), ...XOR],
];

function firstPrimes(count: number): number[] {
  const primes: number[] = [];
  for (let number = 2; primes.length < count; number += 1) {
    if (primes.every((prime) => number % prime !== 0)) primes.push(number);
  }
  return primes;
}

/** The first 32 bits after the point. */
const fraction = (value: number): number => Math.floor((value % 1) * 2 ** 32) | 0;

/** The constants of the rounds, each in all lanes: the memory has to begin with them. */
export function roundConstants(): Uint8Array {
  const lanes = firstPrimes(ROUNDS).flatMap((prime) => Array(LANES).fill(fraction(Math.cbrt(prime))));
  return new Uint8Array(Int32Array.from(lanes).buffer);
}

/** The first block: byte 1 and the first 63 bytes of the pair. */
function firstBlock(): Code[] {
  const code: Code[] = [];
  for (let word = 0; word < WORDS; word += 1) {
    code.push(inAllLanes(0), set(TEMPORARY));
    for (let lane = 0; lane < LANES; lane += 1) {
      const offset = lane * PAIR_BYTES + Math.max(0, 4 * word - 1);
      code.push(get(FROM), get(TEMPORARY), loadWord(offset, lane), set(TEMPORARY));
    }
    code.push(get(TEMPORARY), get(TEMPORARY), SWAP_BYTES);
    if (word === 0) code.push(constant(8), SHIFT_RIGHT, inAllLanes(0x01000000), OR);
    code.push(set(W + word));
  }
  return code;
}

/** The second block: the last byte of the pair, the padding, and the length. */
function lastBlock(): Code[] {
  const code: Code[] = [inAllLanes(0x00800000), set(W)];
  for (let lane = 0; lane < LANES; lane += 1) {
    code.push(get(FROM), get(W), loadByte((lane + 1) * PAIR_BYTES - 1, 4 * lane + 3), set(W));
  }
  for (let word = 1; word < WORDS - 1; word += 1) code.push(inAllLanes(0), set(W + word));
  code.push(inAllLanes(MESSAGE_BITS), set(W + WORDS - 1));
  return code;
}

/** The next word of the message schedule takes the place of the word 16 rounds before. */
function schedule(round: number): Code[] {
  const word = (back: number): Code => get(W + ((round - back) % WORDS));
  return [
    ...[word(16), sigma(word(15), [7, 18, 3]), ADD, word(7), ADD],
    ...[sigma(word(2), [17, 19, 10]), ADD, set(W + (round % WORDS))],
  ];
}

function rounds(): Code[] {
  const code: Code[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    // The variables stay where they are; their names move on.
    const local = (name: number): number => WORK + ((name - round + ROUNDS) % STATE);
    const [a, b, c, d, e, f, g, h] = [0, 1, 2, 3, 4, 5, 6, 7].map((name) => get(local(name))) as [
      ...[Code, Code, Code, Code, Code, Code, Code, Code],
    ];
    if (round >= WORDS) code.push(...schedule(round));
    code.push(h, get(W + (round % WORDS)), ADD, constant(16 * round), loadVector, ADD);
    code.push(rotations(e, [6, 11, 25]), ADD);
    const choice = [f, g, e, SELECT];
    code.push(...choice, ADD, set(TEMPORARY));
    code.push(d, get(TEMPORARY), ADD, set(local(3)));
    const majority = [c, a, a, b, XOR, SELECT];
    code.push(get(TEMPORARY), rotations(a, [2, 13, 22]), ADD, ...majority, ADD, set(local(7)));
  }
  return code;
}

function hashedGroup(): Code[] {
  const code: Code[] = [];
  const eachOf = (count: number, made: (index: number) => Code[]): void => {
    for (let index = 0; index < count; index += 1) code.push(...made(index));
  };
  const start = firstPrimes(STATE).map((prime) => fraction(Math.sqrt(prime)));
  eachOf(STATE, (index) => [inAllLanes(start[index] ?? 0), set(HASH + index)]);
  code.push(...firstBlock(), constant(0), set(IS_LAST_BLOCK), LOOP);
  eachOf(STATE, (index) => [get(HASH + index), set(WORK + index)]);
  code.push(...rounds());
  eachOf(STATE, (index) => [get(HASH + index), get(WORK + index), ADD, set(HASH + index)]);
  code.push(get(IS_LAST_BLOCK), IS_ZERO, IF, constant(1), set(IS_LAST_BLOCK), ...lastBlock());
  code.push(branch(1), END, END);
  for (let index = 0; index < STATE; index += 1) {
    code.push(get(HASH + index), get(HASH + index), SWAP_BYTES, set(TEMPORARY));
    for (let lane = 0; lane < LANES; lane += 1) {
      code.push(get(TO), get(TEMPORARY), storeWord(lane * DIGEST_BYTES + 4 * index, lane));
    }
  }
  return code;
}

const branch = (depth: number): Code => [0x0c, depth];
const branchIf = (depth: number): Code => [0x0d, depth];
const advance = (local: number, by: number): Code => [
  ...[...get(local), ...constant(by), ...ADD_I32, ...set(local)],
];

/** The module: it imports `env.memory` and exports `hashGroups(groups, from, to)`, which takes at least one group. */
export function pairHashModule(): Uint8Array<ArrayBuffer> {
  const code = [
    ...[LOOP, ...hashedGroup(), advance(FROM, LANES * PAIR_BYTES), advance(TO, LANES * DIGEST_BYTES)],
    ...[advance(GROUPS, -1), get(GROUPS), branchIf(0), END, END],
  ];
  const locals = [2, 1, I32, VECTORS, V128];
  const body = [...locals, ...code.flat()];
  return Uint8Array.from([
    ...[0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
    ...section(1, [1, 0x60, 3, I32, I32, I32, 0]),
    ...section(2, [1, ...text('env'), ...text('memory'), 2, 1, 1, 1]),
    ...section(3, [1, 0]),
    ...section(7, [1, ...text('hashGroups'), 0, 0]),
    ...section(10, [1, ...unsigned(body.length), ...body]),
  ]);
}

function section(id: number, content: Code): Code {
  return [id, ...unsigned(content.length), ...content];
}

function text(value: string): Code {
  return [value.length, ...Buffer.from(value)];
}
