import { createServer } from 'node:http';

/**
 * Bare node:http, which answers with the documents itself: the floor of any gateway on Node.js. Arguments: port, lengths
 * of the documents by name, as JSON.
 */
const [, , port, lengths] = process.argv;
const documents = new Map(
  Object.entries(JSON.parse(lengths)).map(([name, length]) => [name, Buffer.alloc(length, 'x')]),
);

const server = createServer((req, res) => {
  const { pathname } = new URL(req.url ?? '', 'http://localhost');
  const body = documents.get(pathname.slice(pathname.lastIndexOf('/') + 1));
  if (body === undefined) res.writeHead(404).end();
  else res.writeHead(200, { 'content-type': 'application/xml', 'content-length': body.length }).end(body);
});
server.listen(Number(port), '127.0.0.1');
