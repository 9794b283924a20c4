import { createHmac, createSecretKey, hkdfSync, type KeyObject } from 'node:crypto';
import { equalInConstantTime, type Secret } from '../../base/secret.ts';

/** One key that gateways share. */
export interface StoreKey {
  /** Tells keys apart and says nothing of them. */
  readonly id: string;
  readonly key: KeyObject;
}

/** Kind of a signed value; one kind never passes for another. */
export type ValueKind = 'challenge' | 'parked' | 'learned' | 'accepted' | 'leader' | 'change';

/** Where and what a value is, for its signature. */
export interface SignedPlace {
  readonly kind: ValueKind;
  /** The key or channel in Redis, which stands for deployment, origin and credential version. */
  readonly place: string;
}

/** Why a value is not believed: it has no valid signature, or its time has passed. */
export type SignatureFault = 'forged' | 'expired';

/** A value whose signature is valid. `ageMs`: by the wall clocks of writer and reader; undefined: not signed. */
export interface OpenedValue {
  readonly text: string;
  readonly ageMs: number | undefined;
}

/** By so much the wall clocks of gateways may differ, in milliseconds. */
export const CLOCK_DIFFERENCE_MS = 60_000;
/** The most keys in a file: one in use, one before it, one after it. */
const MOST_KEYS = 3;
const SIGNED = /^([0-9a-f]{16})\.([\w-]{43})\.(\d{1,15})\.(\d{1,15})\.(.*)$/s;

/**
 * The keys of a key file: 256 bits in hex each, one a line, the one that signs first.
 * @throws RangeError whose message says what would be right, and does not quote the file
 */
export function storeKeys(file: Secret): StoreKey[] {
  const lines = file
    .reveal()
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '');
  if (
    lines.length === 0 ||
    lines.length > MOST_KEYS ||
    !lines.every((line) => /^[0-9a-fA-F]{64}$/.test(line))
  ) {
    throw new RangeError(`does not hold 1 to ${MOST_KEYS} keys of 64 hex digits, one a line`);
  }
  return lines.map((line) => {
    const bytes = Buffer.from(line, 'hex');
    const derive = (use: string): Buffer => Buffer.from(hkdfSync('sha256', bytes, '', use, 32));
    return {
      id: derive('digest-gateway store key id').toString('hex', 0, 8),
      key: createSecretKey(derive('digest-gateway store signature')),
    };
  });
}

/**
 * Signs what gateways leave for each other (HMAC-SHA-256), and believes only what one of them signed. Without keys
 * it signs nothing and believes everything.
 */
export class ValueSigner {
  readonly #keys: readonly StoreKey[];

  /** The first key signs; any of them verifies. */
  constructor(keys: readonly StoreKey[]) {
    this.#keys = keys;
  }

  get signs(): boolean {
    return this.#keys.length > 0;
  }

  /** `ageMs`: of the value already; it counts as expired when it is `lifeMs` old. */
  sign(place: SignedPlace, text: string, ageMs: number, lifeMs: number): string {
    return this.signAsOf(place, text, Math.max(0, Math.floor(Date.now() - ageMs)), lifeMs);
  }

  /** Signs as of this Unix time in milliseconds, a whole number, so that what is signed again is the same text. */
  signAsOf(place: SignedPlace, text: string, issuedAt: number, lifeMs: number): string {
    const [current] = this.#keys;
    if (current === undefined) return text;
    const life = Math.ceil(lifeMs);
    const mac = macOf(current, place, issuedAt, life, text);
    return `${current.id}.${mac}.${issuedAt}.${life}.${text}`;
  }

  open(place: SignedPlace, value: string): OpenedValue | SignatureFault {
    if (!this.signs) return { text: value, ageMs: undefined };
    const [, id, mac = '', issuedText, lifeText, text = ''] = SIGNED.exec(value) ?? [];
    const key = this.#keys.find((each) => each.id === id);
    const issuedAt = Number(issuedText);
    const life = Number(lifeText);
    if (key === undefined || !equalInConstantTime(mac, macOf(key, place, issuedAt, life, text))) {
      return 'forged';
    }
    const ageMs = Date.now() - issuedAt;
    const isOver = ageMs > life + CLOCK_DIFFERENCE_MS || ageMs < -CLOCK_DIFFERENCE_MS;
    return isOver ? 'expired' : { text, ageMs: Math.max(0, ageMs) };
  }
}

/** No part before the text can hold a line break, so no two values have the same bytes. */
function macOf(
  { key }: StoreKey,
  { kind, place }: SignedPlace,
  issuedAt: number,
  life: number,
  text: string,
): string {
  return createHmac('sha256', key)
    .update(`${kind}\n${place}\n${issuedAt}\n${life}\n${text}`)
    .digest('base64url');
}
