import { readFile, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import type { KeyPair } from '../../src/simulator/certificates.ts';
import { type Place, type ServerProcess, speaksTls, startServer } from './server-process.ts';
import { needPackages } from './system-packages.ts';

/** A message as rsyslog parsed it. */
export interface ReceivedMessage {
  readonly priority: string;
  readonly time: string;
  readonly host: string;
  readonly app: string;
  readonly id: string;
  readonly data: string;
  readonly text: string;
}

export interface SyslogServer {
  readonly port: number;
  readonly process: ServerProcess;
  /** Everything that was received and stored. */
  received(): Promise<ReceivedMessage[]>;
  stop(): Promise<void>;
  close(): Promise<void>;
}

interface SyslogTls {
  readonly pair: KeyPair;
  /** PEM: who signs the server, and its clients. */
  readonly ca: string;
  /** True: a client needs a certificate of `ca`. */
  readonly clients?: boolean;
  /** A client for the test whether it listens. */
  readonly client?: { readonly key: string; readonly certificate: string };
}

export interface SyslogOptions {
  readonly port?: number;
  readonly tls?: SyslogTls;
  /** The file with what is received; without it, one in the server's own folder. */
  readonly file?: string;
}

const FIELDS = [
  ['priority', 'pri'],
  ['time', 'timereported'],
  ['host', 'hostname'],
  ['app', 'app-name'],
  ['id', 'msgid'],
  ['data', 'structured-data'],
  ['text', 'msg'],
] as const;

/** Starts Debian's rsyslog; each message is in the file before the next is read. */
export async function startSyslog({ port, tls, file }: SyslogOptions = {}): Promise<SyslogServer> {
  needPackages('rsyslog', 'rsyslog-openssl');
  const process = await startServer(
    {
      answers: (place) =>
        tls === undefined ? listens(place.port) : speaksTls(place.port, tls.ca, tls.client),
      async prepare(place) {
        await writeFile(join(place.folder, 'ca.pem'), tls?.ca ?? '');
        await writeFile(join(place.folder, 'cert.pem'), tls?.pair.cert ?? '');
        await writeFile(join(place.folder, 'key.pem'), tls?.pair.key ?? '');
        const configuration = join(place.folder, 'rsyslog.conf');
        await writeFile(configuration, configurationOf(place, tls, file));
        return ['rsyslogd', '-n', '-iNONE', '-f', configuration];
      },
    },
    port,
  );
  const { folder } = process.place;
  return {
    port: process.place.port,
    process,
    received: () => receivedIn(file ?? join(folder, 'received')),
    stop: () => process.stop(),
    close: () => process.close(),
  };
}

/** The messages in a file of a server; none without a file. */
export async function receivedIn(file: string): Promise<ReceivedMessage[]> {
  const text = await readFile(file, 'utf8').catch(() => '');
  // rsyslog may be writing the last line.
  return text
    .slice(0, text.lastIndexOf('\n') + 1)
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line));
}

function configurationOf({ folder, port }: Place, tls: SyslogTls | undefined, file?: string): string {
  const mode = tls?.clients === true ? 'x509/certvalid' : 'anon';
  const driver = tls && `StreamDriver.Name="ossl" StreamDriver.Mode="1" StreamDriver.AuthMode="${mode}"`;
  const files =
    tls &&
    `DefaultNetstreamDriverCAFile="${folder}/ca.pem" DefaultNetstreamDriverCertFile="${folder}/cert.pem" DefaultNetstreamDriverKeyFile="${folder}/key.pem"`;
  const fields = FIELDS.map(([name, property]) => {
    const format = property === 'timereported' ? ' dateFormat="rfc3339"' : '';
    return `property(outname="${name}" name="${property}"${format} format="jsonf")`;
  });
  return `global(workDirectory="${folder}" maxMessageSize="1m" parser.escapeControlCharactersOnReceive="off" ${files ?? ''})
main_queue(queue.type="Direct")
module(load="imtcp" MaxSessions="1000" ${driver ?? ''})
input(type="imtcp" port="${port}" address="127.0.0.1")
template(name="parsed" type="list" option.jsonf="on") { ${fields.join(' ')} }
action(type="omfile" file="${file ?? join(folder, 'received')}" template="parsed" asyncWriting="off" flushOnTXEnd="on")
`;
}

function listens(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host: '127.0.0.1', port });
    const tell = (result: boolean) => () => {
      socket.destroy();
      resolve(result);
    };
    socket.once('connect', tell(true)).once('error', tell(false));
  });
}
