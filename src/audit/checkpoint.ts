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
export const KEY_ID_BYTES = 4;
export const SIGNATURE_BYTES = 64;
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
export interface NoteSignature {
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
export function keyId(key: KeyObject, name: string, type: number): Buffer {
  const digest = createHash('sha256')
    .update(`${name}\n`)
    .update(Buffer.of(type))
    .update(rawPublicKey(key))
    .digest();
  return digest.subarray(0, KEY_ID_BYTES);
}

/** The 32 bytes of a public key of Ed25519. */
export function rawPublicKey(key: KeyObject): Buffer {
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
  const own = checkpoint.signatures.filter(({ name }) => name === origin);
  return own.some(({ bytes }) => keys.some((key) => isSignature(checkpoint.text, bytes, key, origin)));
}

function isSignature(text: string, bytes: Buffer, key: KeyObject, name: string): boolean {
  return (
    bytes.length === KEY_ID_BYTES + SIGNATURE_BYTES &&
    keyId(key, name, ED25519).equals(bytes.subarray(0, KEY_ID_BYTES)) &&
    verify(null, Buffer.from(text), key, bytes.subarray(KEY_ID_BYTES))
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
