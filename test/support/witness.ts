import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Agent, request } from 'undici';
import { parseCheckpoint, signCheckpoint } from '../../src/audit/checkpoint.ts';
import { consistencyProof, digestText, LeafRange, leafHash, MerkleTree } from '../../src/audit/merkle.ts';
import type { KeyPair } from '../../src/simulator/certificates.ts';
import { type RunningWitness, startWitness } from '../../src/witness/start.ts';
import { newSigningKey, type TestSigningKey } from './signing-key.ts';

export const WITNESS_NAME = 'witness.example.org';

/** A witness of a test, with its folder and what it has logged. */
export interface TestWitness extends AsyncDisposable {
  readonly url: string;
  readonly key: TestSigningKey;
  readonly publicKey: string;
  readonly directory: string;
  readonly logged: readonly Readonly<Record<string, unknown>>[];
  /** Sends a body to `add-checkpoint`. */
  add(body: string): Promise<WitnessResponse>;
  /** What `GET /checkpoints` returns. */
  checkpoints(): Promise<string>;
  /** Ends it and starts another one on the same folder and port. */
  restart(): Promise<void>;
  /** Reads the metrics. */
  metrics(headers?: Readonly<Record<string, string>>): Promise<WitnessResponse>;
  stop(): Promise<void>;
}

export interface WitnessResponse {
  readonly status: number;
  readonly type: string;
  readonly text: string;
}

/** Starts a witness of these logs: the public key of each replica, PEM. `tls`: a pair for HTTPS. */
export async function startTestWitness(
  logs: Readonly<Record<string, string>>,
  tls?: KeyPair & { readonly ca: string },
  metricsSettings = '',
): Promise<TestWitness> {
  const directory = await mkdtemp(join(tmpdir(), 'witness-'));
  const key = newSigningKey();
  await writeFile(join(directory, 'key'), key.privatePem, { mode: 0o600 });
  for (const [replica, pem] of Object.entries(logs)) await writeFile(join(directory, `${replica}.pub`), pem);
  const names = Object.keys(logs).map((replica) => `{ replica: ${replica}, publicKeyFile: ${replica}.pub }`);
  await writeFile(join(directory, 'cert.pem'), tls?.cert ?? '');
  await writeFile(join(directory, 'cert.key'), tls?.key ?? '', { mode: 0o600 });
  const agent = new Agent({ connect: { ca: tls?.ca } });
  const logged: Record<string, unknown>[] = [];
  const write = (fields: object | string, msg = ''): void => void logged.push({ ...Object(fields), msg });
  const log = { level: 'info', debug() {}, info: write, warn: write, error: write };
  const file = join(directory, 'witness.yaml');
  const start = async (port: number): Promise<RunningWitness> => {
    const secure = tls === undefined ? '' : ', tls: { certFile: cert.pem, keyFile: cert.key }';
    const lines = [
      `name: ${WITNESS_NAME}`,
      'keyFile: key',
      'directory: state',
      `logs: [${names.join(', ')}]`,
      `listen: { port: ${port}${secure} }`,
      `metrics: { port: 0${metricsSettings} }`,
    ];
    await writeFile(file, `${lines.join('\n')}\n`);
    return startWitness(file, { environment: {}, uid: process.geteuid?.() ?? 0 }, log);
  };
  let running: RunningWitness | undefined = await start(0);
  const { port } = running.address;
  const url = `${running.isTls ? 'https' : 'http'}://127.0.0.1:${port}`;
  const stop = async (): Promise<void> => {
    await running?.close();
    running = undefined;
  };
  return {
    url,
    key,
    publicKey: running.publicKey,
    directory,
    logged,
    async add(body) {
      const target = `${url}/add-checkpoint`;
      const {
        statusCode,
        headers,
        body: answer,
      } = await request(target, { method: 'POST', body, dispatcher: agent });
      return { status: statusCode, type: String(headers['content-type']), text: await answer.text() };
    },
    checkpoints: async () => (await request(`${url}/checkpoints`, { dispatcher: agent })).body.text(),
    async metrics(sent = {}) {
      const target = `http://127.0.0.1:${running?.metricsAddress?.port}/metrics`;
      const { statusCode, headers, body } = await request(target, { headers: sent });
      return { status: statusCode, type: String(headers['content-type']), text: await body.text() };
    },
    async restart() {
      await stop();
      running = await start(port);
    },
    stop,
    async [Symbol.asyncDispose]() {
      await stop();
      await agent.destroy();
      await rm(directory, { recursive: true });
    },
  };
}

/** A log in memory that can be forked. */
export class MemoryLog {
  readonly #key: TestSigningKey;
  readonly #replica: string;
  readonly #lines: readonly string[];

  constructor(key: TestSigningKey, lines: readonly string[], replica = 'gateway-1') {
    this.#key = key;
    this.#lines = lines;
    this.#replica = replica;
  }

  /** The log with other lines from `at` on. */
  forkedAt(at: number): MemoryLog {
    return new MemoryLog(
      this.#key,
      this.#lines.map((line, index) => (index < at ? line : `${line}, forged`)),
      this.#replica,
    );
  }

  note(size: number): string {
    const { root } = this.#tree(size);
    return signCheckpoint(this.#key, { replica: this.#replica, first: 1, size, root });
  }

  /** The request for a head. */
  request(old: number, size: number): string {
    const range = new LeafRange(old);
    for (const leaf of this.#leaves(old, size)) range.add(leaf);
    const proof = old > size ? [] : consistencyProof(this.#tree(old), range);
    return [`old ${old}`, ...proof.map(digestText), '', this.note(size)].join('\n');
  }

  /** The head with the cosignature of a response, as a checkpoint. */
  cosigned(size: number, lines: string) {
    const checkpoint = parseCheckpoint(`${this.note(size)}${lines}`);
    if (checkpoint === undefined) throw new Error('the response is no signature');
    return checkpoint;
  }

  #tree(size: number): MerkleTree {
    const tree = MerkleTree.empty();
    for (const leaf of this.#leaves(0, size)) tree.add(leaf);
    return tree;
  }

  #leaves(from: number, to: number): string[] {
    return this.#lines.slice(from, to).map((line) => leafHash(Buffer.from(line), 0, Buffer.byteLength(line)));
  }
}
