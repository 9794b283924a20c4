import { createHash, createPrivateKey, createPublicKey, type KeyObject, sign, verify } from 'node:crypto';
import { parseJson } from '../base/json.ts';
import type { Secret } from '../base/secret.ts';
import { type Digest, digestText, parseDigest } from './merkle.ts';
import { parseProcessName } from './replica-name.ts';

/*
 * Signed heads: checkpoints as C2SP's tlog-checkpoint and signed-note describe them, signed with Ed25519. The name of
 * the key is the origin, so the public key alone is enough to check the checkpoints of every log.
 */

/** The type of Ed25519 in the id of a key. */
const ED25519 = 1;
const KEY_ID_BYTES = 4;
const SIGNATURE_BYTES = 64;
const ORIGIN_START = 'digest-gateway/';
export const CHECKPOINT_START = '{"checkpoint":';

/** A tree: the log of a process from its record `first` on. Leaf 0 is that record. */
interface TreeName {
  readonly replica: string;
  readonly first: number;
}

/** The content of a checkpoint. */
interface TreeHead extends TreeName {
  /** Number of leaves, which are records. */
  readonly size: number;
  readonly root: Digest;
}

/** A checkpoint as it was read; nothing of it is to be believed before `isSignedBy`. */
export interface Checkpoint extends TreeHead {
  /** All of it: the text and the lines of signatures. */
  readonly note: string;
  /** The signed text. */
  readonly text: string;
  readonly signatures: readonly NoteSignature[];
}

/** A signature of a note. */
interface NoteSignature {
  /** Name of the key. */
  readonly name: string;
  /** Key id and signature. */
  readonly bytes: Buffer;
}

/** The two halves of `audit.signingKeyFile`. */
export interface SigningKey {
  readonly privateKey: KeyObject;
  readonly publicKey: KeyObject;
}

/**
 * Reads a private key: Ed25519 in PKCS #8, PEM.
 * @throws RangeError if the text is not such a key; the message does not quote it
 */
export function signingKey(pem: Secret): SigningKey {
  try {
    const privateKey = createPrivateKey(pem.reveal());
    if (privateKey.asymmetricKeyType === 'ed25519') {
      return { privateKey, publicKey: createPublicKey(privateKey) };
    }
  } catch {
    // The message of OpenSSL says neither which key is meant nor what to do.
  }
  throw new RangeError('does not hold an Ed25519 private key in PEM form');
}

/**
 * Reads a public key: Ed25519 in SPKI, PEM.
 * @throws RangeError if the text is not such a key
 */
export function verificationKey(pem: string): KeyObject {
  try {
    const key = createPublicKey(pem);
    if (key.asymmetricKeyType === 'ed25519' && !pem.includes('PRIVATE')) return key;
  } catch {
    // As above.
  }
  throw new RangeError('does not hold an Ed25519 public key in PEM form');
}

/** Signs a head; returns the checkpoint. */
export function signCheckpoint(key: SigningKey, head: TreeHead): string {
  const origin = originOf(head);
  const text = `${origin}\n${head.size}\n${digestText(head.root)}\n`;
  const signature = sign(null, Buffer.from(text), key.privateKey);
  const bytes = Buffer.concat([keyId(key.publicKey, origin, ED25519), signature]);
  return `${text}\n${signatureLine({ name: origin, bytes })}`;
}

/** The name of a tree in its checkpoints, such as `digest-gateway/gateway-1@2/1`. */
export function originOf({ replica, first }: TreeName): string {
  return `${ORIGIN_START}${replica}/${first}`;
}

/** The first four bytes of SHA-256 of name, line feed, type and key, as signed-note has it. */
function keyId(key: KeyObject, name: string, type: number): Buffer {
  const digest = createHash('sha256')
    .update(`${name}\n`)
    .update(Buffer.of(type))
    .update(rawPublicKey(key))
    .digest();
  return digest.subarray(0, KEY_ID_BYTES);
}

/** The 32 bytes of a public key of Ed25519. */
function rawPublicKey(key: KeyObject): Buffer {
  const { x = '' } = key.export({ format: 'jwk' });
  return Buffer.from(x, 'base64url');
}

/** The line of a signature in a note, with its line end. */
export function signatureLine({ name, bytes }: NoteSignature): string {
  return `— ${name} ${bytes.toString('base64')}\n`;
}

const NOTE = /^(([^\n]+)\n(0|[1-9]\d{0,14})\n([^\n]{44})\n)\n((?:— [^\n]+\n)+)$/;
const ORIGIN = /^digest-gateway\/([^/]+)\/([1-9]\d{0,14})$/;
const SIGNATURE = /^— ([^\s+]+) ([A-Za-z0-9+/]+={0,2})$/;

/** Reads a checkpoint; undefined: the text is none of a gateway. It has no extension lines. */
export function parseCheckpoint(note: string): Checkpoint | undefined {
  const [, text = '', origin = '', size = '', rootText = '', lines = ''] = NOTE.exec(note) ?? [];
  const [, replica = '', first = ''] = ORIGIN.exec(origin) ?? [];
  const root = parseDigest(rootText);
  const signatures = parseSignatures(lines);
  if (root === undefined || parseProcessName(replica) === undefined) return undefined;
  if (signatures === undefined) return undefined;
  return { note, replica, first: Number(first), size: Number(size), root, text, signatures };
}

/** Reads the lines of signatures, each with its line end; undefined: one is none. */
export function parseSignatures(lines: string): NoteSignature[] | undefined {
  const signatures = lines.split('\n').slice(0, -1).map(parseSignature);
  return signatures.every((each) => each !== undefined) ? signatures : undefined;
}

function parseSignature(line: string): NoteSignature | undefined {
  const [, name = '', base64 = ''] = SIGNATURE.exec(line) ?? [];
  const bytes = Buffer.from(base64, 'base64');
  return bytes.length > KEY_ID_BYTES && bytes.toString('base64') === base64 ? { name, bytes } : undefined;
}

/** True if one of the keys signed it. Signatures of other keys, such as those of witnesses, say nothing. */
export function isSignedBy(checkpoint: Checkpoint, keys: readonly KeyObject[]): boolean {
  const origin = originOf(checkpoint);
  const own = checkpoint.signatures.filter(
    ({ name, bytes }) => name === origin && bytes.length === KEY_ID_BYTES + SIGNATURE_BYTES,
  );
  return own.some((each) => keys.some((key) => isMadeBy(each, key, ED25519, checkpoint.text)));
}

/** True if the key made the signature, whose last bytes are of that text. */
function isMadeBy({ name, bytes }: NoteSignature, key: KeyObject, type: number, text: string): boolean {
  return (
    keyId(key, name, type).equals(bytes.subarray(0, KEY_ID_BYTES)) &&
    verify(null, Buffer.from(text), key, bytes.subarray(-SIGNATURE_BYTES))
  );
}

/** The line of a checkpoint in a segment, with its line end. */
export function checkpointLine(note: string): string {
  return `${CHECKPOINT_START}${JSON.stringify(note)}}\n`;
}

/** The checkpoint of a line, without its line end; undefined: it is none, or has another spelling than the gateway's. */
export function checkpointIn(line: string): Checkpoint | undefined {
  const { checkpoint } = Object(parseJson(line)) as { readonly checkpoint?: unknown };
  const isOwn = typeof checkpoint === 'string' && checkpointLine(checkpoint) === `${line}\n`;
  return isOwn ? parseCheckpoint(checkpoint) : undefined;
}

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
  for (const each of signatures) {
    const seconds = secondsOf(each.bytes);
    if (seconds === undefined) continue;
    const signed = cosignedText(text, seconds);
    const isMade = witnesses.some(
      ({ name = each.name, publicKey }) =>
        name === each.name && isMadeBy(each, publicKey, COSIGNATURE, signed),
    );
    if (isMade) return { ...each, time: seconds * 1000 };
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
