import { createPrivateKey, type KeyObject } from 'node:crypto';
import { CERTIFICATES, readPem } from '../base/guarded-file.ts';
import { getOrInsert } from '../base/maps.ts';
import { shellWord } from '../base/printable.ts';
import { Secret } from '../base/secret.ts';
import type { RedisStoreOptions } from '../challenges/store/redis.ts';
import { type StoreKey, storeKeys } from '../challenges/store/value-signer.ts';
import type { Issue, Path } from '../config/issues.ts';
import type { Config } from '../config/schema.ts';
import type { SecretSource } from '../config/secret-source.ts';
import { issueOf, type SourceReader } from '../credentials/sources.ts';
import type { ClientCertificate } from '../transport/upstream-tls.ts';

type TlsSection = { readonly caFile?: string } & Partial<
  Pick<Config['deployments'][string]['tls'], 'certFile' | 'keyFile' | 'keyPassphrase'>
>;

/** Reads the secrets, certificates and keys that a configuration names, and collects the issues with them. */
export class ContentReading {
  readonly #reader: SourceReader;
  readonly #uid: number | undefined;
  /** By file: thousands of deployments may name the same one. */
  readonly #authorities = new Map<string, Promise<string>>();
  readonly issues: Issue[] = [];

  /** `uid`: the user of this process; undefined: owners of files are not checked. */
  constructor(reader: SourceReader, uid: number | undefined) {
    this.#reader = reader;
    this.#uid = uid;
  }

  /** Undefined: there is no source, or it cannot be read. */
  secret(source: SecretSource | undefined, path: Path): Promise<Secret | undefined> {
    return this.value(path, async (reader) => source && (await reader.read(source)).secret);
  }

  /** Reads the `caFile` of a section, so that an invalid one is reported before the first handshake fails. */
  authority(caFile: string | undefined, section: Path): Promise<string | undefined> {
    return this.value([...section, 'caFile'], async () =>
      caFile === undefined
        ? undefined
        : await getOrInsert(this.#authorities, caFile, async () => (await this.#certificates(caFile)).text),
    );
  }

  /** Reads the files of a section. Those that cannot be read are left out. */
  async tls(
    section: TlsSection,
    path: Path,
  ): Promise<{ readonly ca: string | undefined; readonly client: ClientCertificate | undefined }> {
    const ca = await this.authority(section.caFile, path);
    return { ca, client: await this.#clientCertificate(section, path) };
  }

  #certificates(file: string) {
    return readPem(file, CERTIFICATES, { uid: this.#uid, readableByOthers: true });
  }

  /** Reads a client certificate, which must belong to its private key. */
  async #clientCertificate(
    { certFile, keyFile, keyPassphrase }: TlsSection,
    path: Path,
  ): Promise<ClientCertificate | undefined> {
    if (certFile === undefined || keyFile === undefined) return undefined;
    const cert = await this.value([...path, 'certFile'], () => this.#certificates(certFile));
    const passphrase = await this.secret(keyPassphrase, [...path, 'keyPassphrase']);
    if (cert === undefined || (keyPassphrase !== undefined && passphrase === undefined)) return undefined;
    // Guarded like the file of a password.
    return this.value([...path, 'keyFile'], async (reader) => {
      const key = openKey(keyFile.file, (await reader.read(keyFile)).secret, passphrase);
      if (!cert.value[0].checkPrivateKey(key)) {
        const pair = `${keyFile.file} is not the key of the first certificate in ${certFile}`;
        throw new Error(`${pair}: name the two that belong together`);
      }
      return {
        chain: cert.text,
        key: new Secret(key.export({ type: 'pkcs8', format: 'pem' }).toString()),
      };
    });
  }

  /** Undefined: `read` has thrown, which is an issue at `path`. */
  async value<T>(path: Path, read: (reader: SourceReader) => Promise<T>): Promise<T | undefined> {
    try {
      return await read(this.#reader);
    } catch (error) {
      this.issues.push(issueOf(path, error));
      return undefined;
    }
  }
}

/** OpenSSL's messages are replaced: they say neither which file is meant nor what to do. */
function openKey(file: string, pem: Secret, passphrase: Secret | undefined): KeyObject {
  try {
    return createPrivateKey({
      key: pem.reveal(),
      ...(passphrase !== undefined && { passphrase: passphrase.reveal() }),
    });
  } catch {
    throw new Error(`${file} ${whyNoKey(pem, passphrase !== undefined)}`);
  }
}

function whyNoKey(pem: Secret, withPassphrase: boolean): string {
  // Both formats of an encrypted key contain this word in plain text.
  if (!pem.reveal().includes('ENCRYPTED')) return 'holds no private key in PEM form: name a file that does';
  return withPassphrase
    ? 'is not opened by keyPassphrase: correct that, or name another file'
    : 'is encrypted: give its passphrase in keyPassphrase';
}

/**
 * Reads the authorities and passwords of Redis and its Sentinels, and the keys for values; undefined without Redis.
 */
export async function readRedis(
  section: Config['redis'],
  reading: ContentReading,
): Promise<RedisStoreOptions | undefined> {
  if (section === undefined) return undefined;
  const { servers, username, sentinelUsername, keyFile, keyPrefix, timeout, tls } = section;
  const ca = await reading.authority(tls?.caFile, ['redis', 'tls']);
  const password = await reading.secret(section.password, ['redis', 'password']);
  const sentinelPassword = await reading.secret(section.sentinelPassword, ['redis', 'sentinelPassword']);
  const keys = keyFile && (await reading.value(['redis', 'keyFile'], (reader) => readKeys(keyFile, reader)));
  return {
    servers,
    username,
    password,
    sentinelUsername,
    sentinelPassword,
    keyPrefix,
    timeoutMs: timeout,
    keys: keys || [],
    tls: tls && { ca },
  };
}

/** @throws Error with the reason */
async function readKeys(file: string, reader: SourceReader): Promise<StoreKey[]> {
  const { secret } = await reader.read({ file, readableByOthers: 'never' });
  try {
    return storeKeys(secret);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    const command = `(umask 077; openssl rand -hex 32 > ${shellWord(file)})`;
    throw new Error(`${file} ${error.message}: correct it, or move it away and make one with ${command}`);
  }
}

/** The values that sign-in with OpenID Connect reads from outside the configuration. */
export interface OidcContent {
  /** Undefined: the console is a public client. */
  readonly clientSecret: Secret | undefined;
  /** PEM; undefined: the authorities that Node.js has. */
  readonly ca: string | undefined;
}

/** Reads secret and authorities of `control.oidc`; undefined without that section. */
export async function readOidc(
  section: Config['control']['oidc'],
  reading: ContentReading,
): Promise<OidcContent | undefined> {
  if (section === undefined) return undefined;
  const path = ['control', 'oidc'];
  return {
    clientSecret: await reading.secret(section.clientSecret, [...path, 'clientSecret']),
    ca: await reading.authority(section.caFile, path),
  };
}
