import { once } from 'node:events';
import { rm, writeFile } from 'node:fs/promises';
import { request as clientRequest } from 'node:http';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createCertificates } from '../../src/simulator/certificates.ts';
import { builtGateway } from '../../test/bench/compare/built-gateway.ts';
import { CONTENDERS, type Contender, startContender } from '../../test/bench/compare/contenders.ts';
import { divideCores } from '../../test/bench/compare/cores.ts';
import { DOCUMENTS } from '../../test/bench/compare/documents.ts';
import { cpuBetween, cpuOf, memoryOf } from '../../test/bench/compare/process-tree.ts';
import type { BenchUpstream } from '../../test/bench/compare/upstream.ts';
import { writeConfig } from '../../test/support/gateway.ts';
import { account } from '../../test/support/real-server.ts';

/**
 * Memory and CPU time of one upload, with Content-Length and chunked, of the gateway and of Go. The upstream sends a
 * challenge, and takes every answer. Argument: MiB (1024).
 */
const MIB = 2 ** 20;
const size = Number(process.argv[2] ?? 1024) * MIB;
const CHUNK = Buffer.alloc(64 * 1024, 'x');
/** An upload before, so that a connection to the upstream and a nonce exist. */
const FIRST = CHUNK.length;

const pinned = await divideCores();
const upstream = await startSink();
try {
  for (const contender of [
    uploadGateway(),
    ...CONTENDERS.filter(({ name }) => name === 'go-reverse-proxy'),
  ]) {
    if ((await contender.version()) === undefined) console.log(`${contender.name} is not installed`);
    else for (const framing of ['content-length', 'chunked'] as const) await measure(contender, framing);
  }
} finally {
  await upstream.close();
}

type Framing = 'content-length' | 'chunked';

async function measure(contender: Contender, framing: Framing): Promise<void> {
  const running = await startContender(contender, upstream, pinned);
  try {
    const { origin, path } = running.question('2KB');
    const url = `${origin}${path}`;
    await upload(url, framing, FIRST);
    const idle = memoryOf(running.pid).now;
    // Forgets the highest resident memory so far (proc(5)).
    await writeFile(`/proc/${running.pid}/clear_refs`, '5');
    const before = cpuOf(running.pid);
    const begun = performance.now();
    await upload(url, framing, size);
    const seconds = (performance.now() - begun) / 1000;
    const cpuMs = cpuBetween(before, cpuOf(running.pid)) / 1e6;
    const over = (memoryOf(running.pid).peak - idle) / MIB;
    console.log(
      `${contender.name}, ${framing}: ${over.toFixed(1)} MiB over ${(idle / MIB).toFixed(0)} MiB; ` +
        `${(cpuMs / (size / MIB)).toFixed(2)} ms of CPU time per MiB; ${seconds.toFixed(1)} s`,
    );
  } finally {
    await running.close();
  }
}

async function upload(url: string, framing: Framing, bytes: number): Promise<void> {
  const request = clientRequest(url, { method: 'POST' });
  if (framing === 'content-length') request.setHeader('content-length', bytes);
  const responded = once(request, 'response');
  await pipeline(Readable.from(Array.from({ length: bytes / CHUNK.length }, () => CHUNK)), request);
  const [response] = await responded;
  const received = Number(await new Response(response).text());
  if (response.statusCode !== 200 || received !== bytes) {
    throw new Error(`${url} answered ${response.statusCode}, and ${received} of ${bytes} bytes arrived.`);
  }
}

function uploadGateway(): Contender {
  return {
    name: 'gateway',
    upstream: 'digest',
    version: async () => process.version,
    async prepare({ folder, port }, { origin, ca, username, password }) {
      const settings = { body: { max: '64GiB' } };
      const deployment = { documents: { origin, ca, username, password, settings } };
      return [
        ...(await builtGateway()),
        ...['serve', '--config', await writeConfig(folder, deployment, { listen: { port } })],
      ];
    },
  };
}

/** An upstream that reads what it is sent and answers with the number of bytes; to GET, with the small document. */
async function startSink(): Promise<BenchUpstream> {
  const { ca, server } = await createCertificates();
  const sink = createServer(server.good, (req, res) => {
    if (req.headers.authorization === undefined) {
      const challenge = `Digest realm="${account.realm}", nonce="1", algorithm=SHA-256, qop="auth"`;
      req.resume();
      res.writeHead(401, { 'www-authenticate': challenge, 'content-length': 0 }).end();
      return;
    }
    let bytes = 0;
    req.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
    });
    req.on('end', () => res.end(req.method === 'GET' ? Buffer.alloc(DOCUMENTS['2KB'], 'x') : `${bytes}`));
  });
  sink.listen(0, '127.0.0.1');
  await once(sink, 'listening');
  const { port } = sink.address() as AddressInfo;
  const caFile = join(tmpdir(), `upload-ca-${port}.pem`);
  await writeFile(caFile, ca);
  return {
    ...{ origin: `https://127.0.0.1:${port}`, port, ca, caFile },
    ...{ username: account.username, password: account.password },
    async close() {
      sink.close();
      sink.closeAllConnections();
      await rm(caFile);
    },
  };
}
