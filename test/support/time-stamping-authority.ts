import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { promisify } from 'node:util';
import { needPackages } from './system-packages.ts';

const run = promisify(execFile);
const CURVE = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2'];

/** The policy of the authority's time stamps without another wish, and another one that it has. */
export const POLICIES = ['1.2.3.4', '1.2.3.5'] as const;

/** What the authority does with a request. */
type Answer = (query: Buffer, response: ServerResponse) => Promise<Buffer | undefined>;

/** A time-stamping authority: `openssl ts` behind HTTP. */
export interface TestTsa extends AsyncDisposable {
  readonly url: string;
  /** PEM. */
  readonly ca: string;
  /** The file with `ca`. */
  readonly caFile: string;
  /** How many requests it got. */
  readonly requests: number;
  /** Replaces what it does; undefined of that: the response is ended otherwise. */
  answer: Answer;
  /** TimeStampResp as `openssl ts -reply` makes it. */
  reply(query: Buffer): Promise<Buffer>;
  /** The same, in which the certificate of the signature is named by this hash. */
  replyNamedBy(hash: string, query: Buffer): Promise<Buffer>;
  /**
   * The same, signed by a certificate of the same authority with this extended key usage. `isNamed`: the token names that
   * certificate.
   */
  replyAs(usage: string, query: Buffer, isNamed?: boolean): Promise<Buffer>;
  /**
   * The same, signed by a certificate that leads to the authority through others: `extensions` has those of each, from the
   * uppermost down.
   */
  replyThrough(extensions: readonly (readonly string[])[], query: Buffer): Promise<Buffer>;
  /** Another certificate (DER) of the authority with the key, the name and the serial number of its certificate. */
  twin(): Promise<Buffer>;
}

export async function startTsa(): Promise<TestTsa> {
  needPackages('openssl');
  const folder = await mkdtemp(join(tmpdir(), 'tsa-'));
  const file = (name: string): string => join(folder, name);
  const openssl = (args: readonly string[]) => run('openssl', args, { cwd: folder });
  await openssl(['req', '-x509', ...CURVE, '-subj', '/CN=TSA Root', '-keyout', 'ca.key', '-out', 'ca.pem']);
  const certify = (name: string, extensions: readonly string[], by = 'ca') =>
    openssl([
      ...['req', '-x509', '-CA', `${by}.pem`, '-CAkey', `${by}.key`, ...CURVE, '-subj', `/CN=${name}`],
      ...extensions.flatMap((each) => ['-addext', each]),
      ...['-keyout', `${name}.key`, '-out', `${name}.pem`],
    ]);
  const issue = (name: string, usage: string, by?: string) =>
    certify(name, ['basicConstraints=critical,CA:FALSE', `extendedKeyUsage=${usage}`], by);
  await issue('tsa', 'critical,timeStamping');
  const configuration = (named: string): string =>
    [
      '[tsa]\ndefault_tsa = own\n[own]',
      `serial = ${file('serial')}`,
      `default_policy = ${POLICIES[0]}\nother_policies = ${POLICIES[1]}`,
      `digests = sha256\nsigner_digest = sha256\ness_cert_id_alg = ${named}\n`,
    ].join('\n');
  let last: Promise<unknown> = Promise.resolve();
  const make = async (
    query: Buffer,
    named: string,
    signer = ['-signer', 'tsa.pem', '-inkey', 'tsa.key'],
  ): Promise<Buffer> => {
    await writeFile(file('tsa.cnf'), configuration(named));
    await writeFile(file('query'), query);
    await openssl(['ts', '-reply', '-config', 'tsa.cnf', '-queryfile', 'query', ...signer, '-out', 'reply']);
    return readFile(file('reply'));
  };
  // The serial number is in a file, so one request follows the other.
  const replyNamedBy = (named: string, query: Buffer): Promise<Buffer> => {
    const made = last.then(() => make(query, named));
    last = made.catch(() => undefined);
    return made;
  };
  const reply = (query: Buffer): Promise<Buffer> => replyNamedBy('sha256', query);
  let requests = 0;
  const server = createServer(async (request, response) => {
    requests += 1;
    const body = await tsa.answer(await buffer(request), response);
    if (body !== undefined) response.setHeader('content-type', 'application/timestamp-reply').end(body);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const tsa: TestTsa = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/tsr`,
    ca: await readFile(file('ca.pem'), 'utf8'),
    caFile: file('ca.pem'),
    get requests() {
      return requests;
    },
    answer: reply,
    reply,
    replyNamedBy,
    async replyThrough(extensions, query) {
      const names = extensions.map((_, at) => `authority-${at}`);
      for (const [at, name] of names.entries()) await certify(name, extensions[at] ?? [], names[at - 1]);
      await issue('below', 'critical,timeStamping', names.at(-1));
      const chain = await Promise.all(names.map((name) => readFile(file(`${name}.pem`), 'utf8')));
      await writeFile(file('chain.pem'), chain.join(''));
      const signer = ['-signer', 'below.pem', '-inkey', 'below.key', '-chain', 'chain.pem'];
      return make(query, 'sha256', signer);
    },
    async twin() {
      const { stdout } = await openssl(['x509', '-in', 'tsa.pem', '-noout', '-serial']);
      await openssl([
        ...['req', '-x509', '-CA', 'ca.pem', '-CAkey', 'ca.key', '-key', 'tsa.key', '-days', '1'],
        ...['-subj', '/CN=tsa', '-set_serial', `0x${stdout.trim().split('=').at(-1)}`],
        ...['-addext', 'basicConstraints=critical,CA:FALSE'],
        ...['-addext', 'extendedKeyUsage=critical,timeStamping', '-outform', 'DER', '-out', 'twin.der'],
      ]);
      return readFile(file('twin.der'));
    },
    async replyAs(usage, query, isNamed = false) {
      await issue('other', usage);
      await writeFile(file('reply.right'), await reply(query));
      await openssl(['ts', '-reply', '-in', 'reply.right', '-token_out', '-out', 'token']);
      await openssl([
        'cms',
        '-verify',
        '-noverify',
        '-binary',
        '-inform',
        'DER',
        '-in',
        'token',
        '-out',
        'info',
      ]);
      const content = ['-binary', '-nodetach', '-econtent_type', '1.2.840.113549.1.9.16.1.4', '-in', 'info'];
      const signer = [
        '-signer',
        'other.pem',
        '-inkey',
        'other.key',
        '-outform',
        'DER',
        '-out',
        'token.other',
      ];
      await openssl(['cms', '-sign', ...(isNamed ? ['-cades'] : []), ...content, ...signer]);
      const granted = Buffer.from('3003020100', 'hex');
      return derSequence(Buffer.concat([granted, await readFile(file('token.other'))]));
    },
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
      await last;
      await rm(folder, { recursive: true });
    },
  };
  return tsa;
}

function derSequence(content: Buffer): Buffer {
  return Buffer.concat([Buffer.of(0x30, 0x82, content.length >> 8, content.length & 255), content]);
}
