import { createSocket } from 'node:dgram';
import { lookup } from 'node:dns/promises';

/**
 * The address of this host from which packets to a host leave, as its routes are; undefined: there is no way.
 * Sends nothing: a UDP socket that is connected has an address, and that is all.
 */
export async function sourceAddressTo(host: string): Promise<string | undefined> {
  try {
    const { address, family } = await lookup(host);
    return await boundTo(address, family === 6 ? 'udp6' : 'udp4');
  } catch {
    return undefined;
  }
}

function boundTo(address: string, type: 'udp4' | 'udp6'): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = createSocket(type);
    socket.once('error', (error) => {
      socket.close();
      reject(error);
    });
    // Any port will do: nothing is sent to it.
    socket.connect(443, address, () => {
      const { address: own } = socket.address();
      socket.close();
      resolve(own);
    });
  });
}
