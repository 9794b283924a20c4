import { readFileSync } from 'node:fs';
import proxy from '@fastify/http-proxy';
import fastify from 'fastify';

/** @fastify/http-proxy. Arguments: port, origin of the upstream, file of its authority, most connections to it. */
const [, , port, upstream, caFile, connections] = process.argv;
const app = fastify();
app.register(proxy, {
  upstream,
  undici: {
    connections: Number(connections),
    pipelining: 1,
    keepAliveTimeout: 600_000,
    tls: { ca: readFileSync(caFile), rejectUnauthorized: true },
  },
});
await app.listen({ port: Number(port), host: '127.0.0.1' });
