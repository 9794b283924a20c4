import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { createCertificates } from '../../../src/simulator/certificates.ts';

/** A TLS upstream as cheap as can be: asks for Digest once, then takes any answer. 2 KB a response. */
const body = Buffer.alloc(2048, 'x');
const certificates = await createCertificates();
const { key, cert } = certificates.server.good;

const server = createServer({ key, cert, keepAliveTimeout: 60_000 }, (req, res) => {
  if (req.headers.authorization === undefined) {
    res.writeHead(401, { 'www-authenticate': 'Digest realm="bench", nonce="n", stale="false"' }).end('no');
    return;
  }
  res.writeHead(200, { 'content-type': 'application/xml', 'content-length': body.length }).end(body);
});
server.listen(0, '127.0.0.1', () => {
  process.send?.({ port: (server.address() as AddressInfo).port, ca: certificates.ca });
});
