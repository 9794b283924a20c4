import { createServer } from 'node:net';
import { listenOnLoopback } from './loopback-server.ts';

export interface RawUpstream {
  /** `http://127.0.0.1:PORT`; a deployment needs `tls.allowPlaintext` for it. */
  readonly origin: string;
  close(): Promise<void>;
}

/** An upstream that answers each request's head with exactly these bytes (Latin-1); `end`: and ends the connection. */
export async function startRawUpstream(
  answerTo: (head: string) => string | { readonly text: string; readonly end: true },
): Promise<RawUpstream> {
  const server = createServer((socket) => {
    let received = '';
    socket.on('error', () => socket.destroy());
    socket.on('data', (chunk) => {
      received += chunk.toString('latin1');
      const end = received.indexOf('\r\n\r\n');
      if (end === -1) return;
      const answer = answerTo(received.slice(0, end));
      received = '';
      const text = typeof answer === 'string' ? answer : answer.text;
      socket.write(text, 'latin1');
      if (typeof answer !== 'string' || /^connection: close/im.test(text)) socket.end();
    });
  });
  const listening = await listenOnLoopback(server);
  return {
    origin: `http://127.0.0.1:${listening.port}`,
    close: async () => listening[Symbol.asyncDispose](),
  };
}
