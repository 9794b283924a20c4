import { Agent, type Dispatcher } from 'undici';
import type { SinkTls } from './options.ts';
import { secureOptions } from './secure-options.ts';

/** HTTP connections to one receiver. The signal of a delivery is the deadline of its requests. */
export function agentFor(tls: SinkTls | undefined): Agent {
  return new Agent({ connect: secureOptions(tls), headersTimeout: 0, bodyTimeout: 0, connections: 2 });
}

/** The wait in milliseconds that the receiver asks for in seconds; undefined: none. */
export function askedWait({ headers }: Pick<Dispatcher.ResponseData, 'headers'>): number | undefined {
  const seconds = Number(headers['retry-after']);
  return seconds > 0 ? seconds * 1000 : undefined;
}
