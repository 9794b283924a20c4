import { isNativeError } from 'node:util/types';
import { parseDocument, stringify } from 'yaml';
import { z } from 'zod';
import { errorCode, messageOf } from '../base/error-code.ts';
import { decodeUtf8, readGuardedFile } from '../base/guarded-file.ts';
import { Secret } from '../base/secret.ts';

/** The largest file that is read, in bytes. */
export const LARGEST = 2 ** 20;
const ARMOR = '-----BEGIN AGE ENCRYPTED FILE-----';
/** Message of the library for a wrong identity; its other messages are about damaged files. */
const WRONG_IDENTITY = /no identity matched/;

/** The sealed file and the source of its identity. */
export interface SealedSection {
  readonly file: string;
  readonly identity: IdentitySource;
}

export interface FileSource {
  readonly file: string;
  /** Docker and Kubernetes set modes that let others read secrets. */
  readonly readableByOthers?: boolean | 'never';
}

export type IdentitySource = { readonly env: string } | FileSource;

type ReadIdentity = (source: IdentitySource) => Promise<{ readonly secret: Secret }>;

/** The sealed file or its identity cannot be used. The message never quotes either. */
export class SealedError extends Error {
  override readonly name = 'SealedError';
  readonly part: 'file' | 'identity';

  constructor(part: 'file' | 'identity', message: string) {
    super(message);
    this.part = part;
  }
}

/**
 * Reads the entries of the sealed file. `read` reads the identity.
 * @throws SealedError
 */
export async function readSealed(
  { file, identity }: SealedSection,
  read: ReadIdentity,
): Promise<SealedEntries> {
  // One after the other: if both are missing, the error is always that of the file.
  const bytes = await readCipher(file);
  return open(bytes, await readIdentities(identity, read), file);
}

/**
 * Reads the identities of a source, at least one.
 * @throws SealedError
 */
export async function readIdentities(source: IdentitySource, read: ReadIdentity): Promise<readonly Secret[]> {
  const { secret } = await read(source).catch((error: unknown) => {
    if ('file' in source && isMissing(error)) {
      throw new SealedError(
        'identity',
        `${source.file} does not exist: put the identity there, or have credential seal --new-identity make one`,
      );
    }
    throw new SealedError('identity', messageOf(error));
  });
  const identities = await parseIdentities(secret);
  if (identities !== undefined) return identities;
  const place = 'env' in source ? `the environment variable ${source.env}` : source.file;
  throw new SealedError(
    'identity',
    `${place} contains no age identity: write the line of age-keygen that begins with AGE-SECRET-KEY-1`,
  );
}

/** Encrypts entries for `age` and for `readSealed`. Each of the identities can decrypt the result. */
export async function seal(entries: SealedEntries, identities: readonly Secret[]): Promise<string> {
  const { armor, Encrypter, identityToRecipient } = await ageLibrary();
  const encrypter = new Encrypter();
  for (const identity of identities) encrypter.addRecipient(await identityToRecipient(identity.reveal()));
  return armor.encode(await encrypter.encrypt(formatEntries(entries).reveal()));
}

/**
 * True if the file has recipients other than these identities; rewriting it would lock the others out.
 * @throws SealedError
 */
export async function isForOthers(file: string, identities: readonly Secret[]): Promise<boolean> {
  const { identityToRecipient } = await ageLibrary();
  const sealed = await unarmored(await readCipher(file), file);
  // An identity counts once, and only if it opens the file: another one in its place would hide a recipient.
  const own = new Set<string>();
  for (const identity of identities) {
    if (await opens(identity, sealed)) own.add(await identityToRecipient(identity.reveal()));
  }
  return (headerOf(sealed).match(RECIPIENT) ?? []).length > own.size;
}

/** The line of a recipient of any type, such as that of an SSH key or a plugin. Stanzas of grease are for nobody. */
const RECIPIENT = /^-> (?!\S*-grease(?: |$))/gm;

async function opens(identity: Secret, sealed: Uint8Array): Promise<boolean> {
  const { Decrypter } = await ageLibrary();
  const decrypter = new Decrypter();
  decrypter.addIdentity(identity.reveal());
  return decrypter.decryptHeader(sealed).then(
    () => true,
    () => false,
  );
}

async function readCipher(file: string): Promise<Buffer> {
  try {
    // The content is encrypted, so others may read the file.
    return (await readGuardedFile(file, { readableByOthers: true, largest: LARGEST })).bytes;
  } catch (error) {
    const message = isMissing(error)
      ? `${file} does not exist: run credential seal NAME, or with --new-identity if there is no identity yet`
      : messageOf(error);
    throw new SealedError('file', message);
  }
}

async function open(bytes: Buffer, identities: readonly Secret[], file: string): Promise<SealedEntries> {
  const sealed = await unarmored(bytes, file);
  if (/^-> scrypt /m.test(headerOf(sealed))) {
    throw new SealedError(
      'file',
      `${file} is sealed with a passphrase: seal it for an identity, with age -r`,
    );
  }
  const entries = parseEntries(await decrypt(sealed, identities, file));
  if (entries !== undefined) return entries;
  throw new SealedError(
    'file',
    `${file} holds something else than sealed credentials: for each name a mapping with value (in quotes) and version`,
  );
}

async function decrypt(sealed: Uint8Array, identities: readonly Secret[], file: string): Promise<string> {
  const { Decrypter } = await ageLibrary();
  const decrypter = new Decrypter();
  for (const identity of identities) decrypter.addIdentity(identity.reveal());
  try {
    return decodeUtf8(await decrypter.decrypt(sealed), file);
  } catch (error) {
    // Without the cause, because messages of the library may quote the content.
    if (!WRONG_IDENTITY.test(messageOf(error))) throw damaged(file);
    throw new SealedError(
      'identity',
      `does not open ${file}, which was sealed for another one: give that one`,
    );
  }
}

async function unarmored(bytes: Buffer, file: string): Promise<Uint8Array> {
  const text = bytes.toString('latin1').trimStart();
  if (!text.startsWith(ARMOR)) return bytes;
  const { armor } = await ageLibrary();
  try {
    return armor.decode(text);
  } catch {
    throw damaged(file);
  }
}

function damaged(file: string): SealedError {
  return new SealedError(
    'file',
    `${file} is not a file of age, or is damaged: take it from a backup, or seal anew`,
  );
}

/** Returns the recipients' lines of the header, which ends with its MAC. */
function headerOf(sealed: Uint8Array): string {
  const text = Buffer.from(sealed).toString('latin1');
  return text.slice(0, text.indexOf('\n---') + 1);
}

function isMissing(error: unknown): boolean {
  return isNativeError(error) && errorCode(error.cause) === 'ENOENT';
}

/** Valid entry names: they need no quotes on a command line. */
export const ENTRY_NAME = /^[A-Za-z0-9][\w.-]{0,63}$/;

const sealedValue = z.strictObject({
  value: z.codec(z.string().min(1), z.instanceof(Secret), {
    decode: (text) => new Secret(text),
    encode: (secret) => secret.reveal(),
  }),
  /** Counts up from 1 within one entry; reveals nothing about the value. */
  version: z.int().min(1).default(1),
  /** Undefined for an entry that was written by hand, without a date. */
  sealedAt: z
    .codec(z.iso.datetime({ offset: true }), z.date(), {
      decode: (text) => new Date(text),
      encode: (date) => date.toISOString(),
    })
    .optional(),
});

const sealedEntry = sealedValue.extend({
  /** The next version. */
  next: sealedValue.optional(),
  /** The version of a next value that was withdrawn, which is not given again; undefined: none was. */
  withdrawn: z.int().min(1).optional(),
});

const sealedEntries = z.record(z.string().regex(ENTRY_NAME), sealedEntry);

export type SealedValue = z.output<typeof sealedValue>;
export type SealedEntry = z.output<typeof sealedEntry>;
export type SealedEntries = ReadonlyMap<string, SealedEntry>;

/** Parses the plain text of a sealed file, YAML or JSON; undefined if it is invalid. */
export function parseEntries(text: string): SealedEntries | undefined {
  const { data } = sealedEntries.safeParse(treeOf(text));
  return data && new Map(Object.entries(data));
}

/** Text in quotes on one line: a block of lines, as the library chooses otherwise, loses spaces beside line ends. */
const EXACT = { defaultStringType: 'QUOTE_DOUBLE', defaultKeyType: 'PLAIN', lineWidth: 0 } as const;

/** Formats the plain text of a sealed file as YAML, which operators may edit with `age`. */
export function formatEntries(entries: SealedEntries): Secret {
  return new Secret(stringify(sealedEntries.encode(Object.fromEntries(entries)), EXACT));
}

function treeOf(text: string): unknown {
  // Without `stringKeys`, a key that is not a string is quoted in a warning on stderr.
  const document = parseDocument(text, { stringKeys: true });
  // Warnings count, too: the parser drops an unknown tag, which may be the start of an unquoted secret.
  if (document.errors.length + document.warnings.length > 0) return undefined;
  try {
    return document.toJS() ?? {};
  } catch {
    // The parser limits the expansion of aliases.
    return undefined;
  }
}

type Age = typeof import('age-encryption');

/** Loads the library with the first sealed file, because few gateways need it. */
function ageLibrary(): Promise<Age> {
  return import('age-encryption');
}

/**
 * Parses an identity file, as `age-keygen` writes it; undefined if there is no identity, or an invalid one.
 */
async function parseIdentities(text: Secret): Promise<readonly Secret[] | undefined> {
  const { Decrypter } = await ageLibrary();
  const lines = text
    .reveal()
    .split(/\r?\n/)
    .map((line) => line.trim())
    .filter((line) => line !== '' && !line.startsWith('#'));
  const isIdentity = (line: string): boolean => {
    try {
      new Decrypter().addIdentity(line);
      return true;
    } catch {
      return false;
    }
  };
  return lines.length > 0 && lines.every(isIdentity) ? lines.map((line) => new Secret(line)) : undefined;
}

/** Creates the text of a new identity file, as `age-keygen` writes it. */
export async function newIdentity(now: Date): Promise<Secret> {
  const { generateX25519Identity, identityToRecipient } = await ageLibrary();
  const identity = await generateX25519Identity();
  const recipient = await identityToRecipient(identity);
  return new Secret(`# created: ${now.toISOString()}\n# public key: ${recipient}\n${identity}\n`);
}
