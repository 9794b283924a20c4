import { createSocket } from 'node:dgram';
import { lookup } from 'node:dns/promises';

/**
 * Returns the local address that the routing table selects for a host; undefined if there is no route.
 * Sends no packet: connecting a UDP socket only assigns its address.
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
    // Any port works, because nothing is sent to it.
    socket.connect(443, address, () => {
      const { address: own } = socket.address();
      socket.close();
      resolve(own);
    });
  });
}
