import { once } from 'node:events';
import { createServer } from 'node:net';
import { expect, test } from '@jest/globals';
import { CallClient } from '../../src/base/message-calls.ts';
import { closing } from '../support/closing.ts';
import { startPrimary } from '../support/process-ports.ts';

// Node.js waits for the handle to be taken before it tells that the channel is closed (node:cluster sends connections
// so).
test('a call to a process that hangs with a handle on its way fails when the process is killed', async () => {
  const { child, port, close } = await startPrimary();
  closing.push(close);
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  closing.push(() => server.close());
  process.kill(child.pid ?? 0, 'SIGSTOP');
  child.send('handle', server);
  const client = new CallClient({ port, service: 'none' });
  const call = client.call('any', undefined, Number.POSITIVE_INFINITY);
  child.kill('SIGKILL');
  await expect(call).rejects.toThrow();
  const closed = Promise.withResolvers<void>();
  port.onClose(closed.resolve);
  await closed.promise;
});
