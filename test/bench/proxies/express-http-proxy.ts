import { Agent } from 'node:https';
import type { AddressInfo } from 'node:net';
import express from 'express';
import httpProxy from 'http-proxy';
import { reportCpu } from './report-cpu.ts';

/** The baseline: bare express and http-proxy, which forward and know nothing of Digest. */
const [, , target = '', ca = ''] = process.argv;
const proxy = httpProxy.createProxyServer({
  target,
  changeOrigin: true,
  agent: new Agent({ keepAlive: true, ca }),
});
const app = express();
app.use((req, res) => proxy.web(req, res));
const server = app.listen(0, '127.0.0.1', () => reportCpu((server.address() as AddressInfo).port));
