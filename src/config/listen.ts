import { z } from 'zod';
import { keyFile } from './source.ts';
import {
  bindAddress,
  clientHost,
  duration,
  fileName,
  listOf,
  network,
  oneOf,
  port,
  SECTION,
  size,
  whole,
} from './values.ts';

/** Where a plane listens. */
export const listener = (defaultPort: number) => ({
  address: bindAddress().default('127.0.0.1'),
  port: port().default(defaultPort),
});

const tls = (folder: string) =>
  z.strictObject(
    {
      certFile: fileName(folder),
      keyFile: keyFile(folder),
      clientCaFile: fileName(folder).exactOptional(),
      minVersion: oneOf(['TLSv1.2', 'TLSv1.3']).default('TLSv1.2'),
    },
    { error: SECTION },
  );

const limits = () =>
  z.strictObject(
    {
      headerSize: size()
        .refine((bytes) => bytes >= 1024 && bytes <= 2 ** 20, {
          error: 'is out of range: give a size from 1KiB to 1MiB',
        })
        .default(16 * 1024),
      headersTimeout: duration().default(10_000),
      keepAliveTimeout: duration().default(5_000),
      connections: whole(1, 1_000_000).default(10_000),
      connectionsPerAddress: whole(1, 1_000_000).default(1_000),
      bodyMemory: size().default(64 * 2 ** 20),
    },
    { error: SECTION },
  );

/** The data plane. `folder` is where relative names of files start. */
export const listenSchema = (folder: string) =>
  z.strictObject(
    {
      ...listener(8080),
      tls: tls(folder).exactOptional(),
      hosts: listOf(clientHost(), 'a list of at least one name, such as [gateway.internal]').exactOptional(),
      trustedProxies: listOf(network(), 'a list of at least one network, such as [10.0.0.7]').default([]),
      forwardedHeader: oneOf(['X-Forwarded-For', 'Forwarded']).default('X-Forwarded-For'),
      limits: limits().prefault({}),
    },
    { error: SECTION },
  );

export type Listen = z.output<ReturnType<typeof listenSchema>>;
