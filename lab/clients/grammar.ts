import { PARSER_BYTES, REQUEST_PARTS } from '../../test/support/fuzz.ts';
import { SMUGGLING_SHAPES } from '../../test/support/smuggling-shapes.ts';
import { Random } from '../simulation/random.ts';
import { type Message, message, tagOf } from './message.ts';
import { HIDDEN_PREFIX, OPEN_PREFIX } from './rules.ts';

/** Everything that a client does on one connection. */
export interface ConnectionPlan {
  readonly seed: number;
  readonly messages: readonly Message[];
  /** Places in the bytes where a piece ends, ascending. */
  readonly cuts: readonly number[];
  /** `at-once`: piece after piece. `turns`: with pauses. `lockstep`: each message after the response to the last. */
  readonly pace: 'at-once' | 'turns' | 'lockstep';
  /** When `sent` bytes have been sent, responses are awaited, or the client ends its side, or resets. */
  readonly ending: 'await' | 'end' | 'reset' | 'silence';
  /** Bytes that are sent. */
  readonly sent: number;
}

const MOST_MESSAGES = 9;
/** Of 1,000 connections: how many are reset, ended early, and left without a word in the middle of a message. */
const RESETS = 60;
const ENDS = 50;
const SILENCES = 1;

/** @param host value of Host for absolute targets: the upstream's */
export function planOf(seed: number, host: string): ConnectionPlan {
  const random = new Random(`client ${seed}`);
  const messages: Message[] = [];
  const count = random.whole(1, MOST_MESSAGES);
  for (let index = 0; index < count; index += 1) messages.push(messageOf(random, seed, index, host));
  // A valid request at the end: its response is its own, or the connection has ended.
  messages.push(probe(seed, count, host));
  const { length } = bytesOf(messages);
  const ending = endingOf(random);
  return {
    seed,
    messages,
    cuts: cutsOf(random, length),
    pace: random.pick(['at-once', 'at-once', 'turns', 'lockstep']),
    ending,
    sent: ending === 'await' ? length : random.whole(0, length - 1),
  };
}

export function bytesOf(messages: readonly Message[]): string {
  return messages.map(({ bytes }) => bytes).join('');
}

function endingOf(random: Random): ConnectionPlan['ending'] {
  const value = random.whole(0, 999);
  if (value < RESETS) return 'reset';
  if (value < RESETS + ENDS) return 'end';
  return value < RESETS + ENDS + SILENCES ? 'silence' : 'await';
}

function cutsOf(random: Random, length: number): number[] {
  const kind = random.next();
  if (kind < 0.4) return [];
  // Byte by byte, where that does not take long.
  if (kind < 0.45 && length < 1_200) return Array.from({ length: length - 1 }, (_, at) => at + 1);
  const cuts = Array.from({ length: random.whole(1, 12) }, () => random.whole(1, length - 1));
  return [...new Set(cuts)].sort((one, other) => one - other);
}

function messageOf(random: Random, seed: number, index: number, host: string): Message {
  const kind = random.next();
  if (kind < 0.62) return message(random, tagOf(seed, index), host);
  if (kind < 0.8) return shaped(random, tagOf(seed, index), host);
  return mutated(random, message(random, tagOf(seed, index), host));
}

function probe(seed: number, index: number, host: string): Message {
  const tag = tagOf(seed, index);
  return {
    bytes: `GET ${OPEN_PREFIX}${tag} HTTP/1.1\r\nHost: ${host}\r\nX-Request-Id: ${tag}\r\n\r\n`,
    expects: 'served',
  };
}

/** A known way to smuggle a request. */
function shaped(random: Random, tag: string, host: string): Message {
  const shape = random.pick(SMUGGLING_SHAPES);
  const hidden = `GET ${HIDDEN_PREFIX}${tag} HTTP/1.1\r\nHost: ${host}\r\n\r\n`;
  const bytes = shape.bytes({ path: `${OPEN_PREFIX}${tag}`, host, hidden });
  return { bytes, expects: shape.reading === 'refused' ? 'refused' : 'anything' };
}

const SPICE: readonly string[] = [...PARSER_BYTES, ...REQUEST_PARTS];

function mutated(random: Random, { bytes }: Message): Message {
  let text = bytes;
  for (let left = random.whole(1, 3); left > 0; left -= 1) text = mutate(random, text);
  return { bytes: text, expects: 'anything' };
}

function mutate(random: Random, text: string): string {
  // Heads are where it matters, and bodies are longer.
  const end = random.next() < 0.7 ? Math.min(text.length, 400) : text.length;
  const at = random.whole(0, end);
  const lines = text.split('\r\n');
  const line = random.whole(0, Math.min(lines.length - 1, 12));
  switch (random.whole(0, 6)) {
    case 0:
      return text.slice(0, at) + random.pick(SPICE) + text.slice(at);
    case 1: {
      const spice = random.pick(SPICE);
      return text.slice(0, at) + spice + text.slice(at + spice.length);
    }
    case 2:
      return text.slice(0, at) + text.slice(at + random.whole(1, 8));
    case 3:
      return text.slice(0, at) + String.fromCharCode(random.whole(0, 255)) + text.slice(at + 1);
    case 4:
      return text.slice(0, at);
    case 5:
      return lines.toSpliced(line, 0, lines[line] ?? '').join('\r\n');
    default:
      return lines.toSpliced(line, 1).join('\r\n');
  }
}
