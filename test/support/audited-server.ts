import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { openAudit } from '../../src/audit/journal/file-audit.ts';
import { Secret } from '../../src/base/secret.ts';

/*
 * A process of its own that answers as the gateway does, after its record, and starts ten times as fast. Its
 * arguments: directory, replica, key. It prints its port.
 */
const [, , directory = '', replica = '', key = ''] = process.argv;
const tell = (entry: object): void => void process.stdout.write(`${JSON.stringify(entry)}\n`);
const audit = await openAudit(
  {
    directory,
    replica,
    key: new Secret(key),
    durability: 'write',
    onFailure: 'refuse',
    parameters: [],
    segment: { size: 64 * 1024, age: 86_400_000, keep: 86_400_000 },
  },
  { log: { level: 'info', debug() {}, info: tell, warn: tell, error: tell } },
);
const server = createServer((req, res) => {
  const facts = {
    requestId: String(req.headers['x-request-id']),
    client: '',
    address: '',
    deployment: '',
    site: '',
    operation: '',
    method: 'GET',
    target: req.url ?? '',
    status: 200,
    code: '',
    upstream: undefined,
    credential: undefined,
    key: '',
    credentialRule: '',
    wouldRefuse: '',
  };
  if (req.url === '/mate-throws') {
    const fail = () => {
      throw new Error('a waiter failed');
    };
    audit.access({ ...facts, target: '/throws' }, { recorded: fail, unrecorded: fail });
  }
  if (req.url === '/text-throws') {
    Object.defineProperty(facts, 'target', {
      get() {
        throw new Error('a record has no text');
      },
    });
  }
  audit.access(facts, { recorded: () => res.end('</response>'), unrecorded: () => res.destroy() });
});
server.listen(0, '127.0.0.1', () =>
  tell({ listen: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }),
);
process.on('uncaughtException', ({ message }) => tell({ uncaught: message }));
process.on('SIGTERM', async () => {
  server.close();
  server.closeAllConnections();
  await audit.close();
});
