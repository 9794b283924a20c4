import { readFileSync } from 'node:fs';
import { Agent } from 'node:https';
import express from 'express';
import { createProxyMiddleware } from 'http-proxy-middleware';

/** express with http-proxy-middleware. Arguments: port, origin of the upstream, file of its authority, most connections. */
const [, , port, target, caFile, connections] = process.argv;
const agent = new Agent({ keepAlive: true, maxSockets: Number(connections), ca: readFileSync(caFile) });
const app = express();
app.use(createProxyMiddleware({ target, changeOrigin: true, agent }));
app.listen(Number(port), '127.0.0.1');
