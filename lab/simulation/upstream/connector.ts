import type { Socket } from 'node:net';
import type { Connect, ConnectorOptions } from '../../../src/transport/connector.ts';
import { currentProcess, type SimulatedProcess } from '../world.ts';
import type { UpstreamService } from './service.ts';
import { SimulatedSocket } from './socket.ts';

/* Stands in the place of `src/transport/connector.ts`: connections lead to the simulated upstream. */

const services = new WeakMap<object, UpstreamService>();

/** The service that processes of its world connect to. */
export function useUpstream(service: UpstreamService): void {
  services.set(service.process.world, service);
}

/** As the function of the same name, without proxy and TLS. */
export function connector({ timeout }: ConnectorOptions): Connect {
  return () => {
    const process = currentProcess();
    const service = process && services.get(process.world);
    if (process === undefined || service === undefined) throw new TypeError('there is no simulated upstream');
    // The program uses no more of a socket than this class has.
    return connect(process, service, timeout) as Promise<Socket | SimulatedSocket> as Promise<Socket>;
  };
}

function connect(
  process: SimulatedProcess,
  service: UpstreamService,
  timeoutMs: number,
): Promise<SimulatedSocket> {
  return new Promise((resolve, reject) => {
    const fail = (code: string): void => reject(Object.assign(new Error(code), { code }));
    const timer = process.timer(timeoutMs, 'connect timeout', () => fail('ETIMEDOUT'));
    process.deliver(2 * service.wayThere(process), 'connected', () => {
      process.cancel(timer);
      if (service.isUp) resolve(new SimulatedSocket(process, service));
      else fail('ECONNREFUSED');
    });
  });
}

export function closeSocket(socket: Socket): void {
  socket.destroy();
}
