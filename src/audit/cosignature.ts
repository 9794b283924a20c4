import { createPublicKey, type KeyObject, sign, verify } from 'node:crypto';
import {
  type Checkpoint,
  KEY_ID_BYTES,
  keyId,
  type NoteSignature,
  rawPublicKey,
  SIGNATURE_BYTES,
  type SigningKey,
  signatureLine,
  verificationKey,
} from './checkpoint.ts';

/*
 * Cosignatures of witnesses: `cosignature/v1` of C2SP's tlog-cosignature, with Ed25519. A witness states by one that the
 * head is the largest of the log that it has seen, and continues all that it has cosigned before.
 */

/** The type of a cosignature in the id of a key. */
const COSIGNATURE = 4;
const TIME_BYTES = 8;
const RAW_KEY_BYTES = 32;
/** The first bytes of a public key of Ed25519 in SPKI. */
const SPKI_START = Buffer.from('302a300506032b6570032100', 'hex');
const VERIFIER_KEY = /^([^\s+]+)\+([0-9a-f]{8})\+([A-Za-z0-9+/]+={0,2})$/;

/** A witness whose cosignatures count. */
export interface WitnessKey {
  readonly publicKey: KeyObject;
  /** The name in its cosignatures; undefined: any. */
  readonly name: string | undefined;
}

/** A cosignature that one of the witnesses made. */
export interface Cosignature extends NoteSignature {
  /** When the witness made it, by its clock, in Unix milliseconds. */
  readonly time: number;
}

/**
 * Reads the public key of a witness: the key of a verifier as signed-note has it (`NAME+ID+BASE64`), or Ed25519 in PEM.
 * @throws RangeError if the text is neither
 */
export function witnessKey(text: string): WitnessKey {
  const [, name = '', id = '', base64 = ''] = VERIFIER_KEY.exec(text.trim()) ?? [];
  if (name === '') return { publicKey: verificationKey(text), name: undefined };
  const bytes = Buffer.from(base64, 'base64');
  if (bytes[0] === COSIGNATURE && bytes.length === 1 + RAW_KEY_BYTES) {
    const der = Buffer.concat([SPKI_START, bytes.subarray(1)]);
    const publicKey = createPublicKey({ key: der, format: 'der', type: 'spki' });
    if (keyId(publicKey, name, COSIGNATURE).toString('hex') === id) return { publicKey, name };
  }
  throw new RangeError('does not hold a key for Ed25519 cosignatures (NAME+ID+BASE64)');
}

/** The public key of a witness as others take it: `NAME+ID+BASE64`. */
export function witnessKeyText(name: string, publicKey: KeyObject): string {
  const key = Buffer.concat([Buffer.of(COSIGNATURE), rawPublicKey(publicKey)]);
  return `${name}+${keyId(publicKey, name, COSIGNATURE).toString('hex')}+${key.toString('base64')}`;
}

/** Cosigns the text of a checkpoint at a time (Unix milliseconds); returns the line of the signature. */
export function cosign(key: SigningKey, name: string, text: string, at: number): string {
  const seconds = Math.floor(at / 1000);
  const time = Buffer.alloc(TIME_BYTES);
  time.writeBigUInt64BE(BigInt(seconds));
  const signature = sign(null, Buffer.from(cosignedText(text, seconds)), key.privateKey);
  return signatureLine({
    name,
    bytes: Buffer.concat([keyId(key.publicKey, name, COSIGNATURE), time, signature]),
  });
}

function cosignedText(text: string, seconds: number): string {
  return `cosignature/v1\ntime ${seconds}\n${text}`;
}

/** The first cosignature that one of the witnesses made for a text; undefined: there is none. */
export function cosignatureOf(
  { text, signatures }: Pick<Checkpoint, 'text' | 'signatures'>,
  witnesses: readonly WitnessKey[],
): Cosignature | undefined {
  for (const { name, bytes } of signatures) {
    const seconds = secondsOf(bytes);
    if (seconds === undefined) continue;
    const isMade = witnesses.some(
      (witness) => (witness.name ?? name) === name && isCosignature(text, seconds, { name, bytes }, witness),
    );
    if (isMade) return { name, bytes, time: seconds * 1000 };
  }
  return undefined;
}

/** Undefined: these are not the bytes of a cosignature. */
function secondsOf(bytes: Buffer): number | undefined {
  if (bytes.length !== KEY_ID_BYTES + TIME_BYTES + SIGNATURE_BYTES) return undefined;
  const seconds = Number(bytes.readBigUInt64BE(KEY_ID_BYTES));
  // The latest time that a Date has.
  return seconds <= 8.64e12 ? seconds : undefined;
}

function isCosignature(
  text: string,
  seconds: number,
  { name, bytes }: NoteSignature,
  { publicKey }: WitnessKey,
): boolean {
  const signature = bytes.subarray(KEY_ID_BYTES + TIME_BYTES);
  return (
    keyId(publicKey, name, COSIGNATURE).equals(bytes.subarray(0, KEY_ID_BYTES)) &&
    verify(null, Buffer.from(cosignedText(text, seconds)), publicKey, signature)
  );
}
