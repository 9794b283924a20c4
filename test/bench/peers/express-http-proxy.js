import { readFileSync } from 'node:fs';
import { Agent } from 'node:https';
import express from 'express';
import httpProxy from 'http-proxy';

/** express with http-proxy. Arguments: port, origin of the upstream, file of its authority, most connections to it. */
const [, , port, target, caFile, connections] = process.argv;
const agent = new Agent({ keepAlive: true, maxSockets: Number(connections), ca: readFileSync(caFile) });
const proxy = httpProxy.createProxyServer({ target, changeOrigin: true, agent });
const app = express();
app.use((req, res) => proxy.web(req, res));
app.listen(Number(port), '127.0.0.1');
