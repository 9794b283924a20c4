import { createRequire } from 'node:module';

const require = createRequire(import.meta.url);

/**
 * Parts of node:http. An `import` would read all exports of the module, WebSocket among them, for which Node.js loads
 * an undici of its own: 40 ms of each start, and 2.5 MiB.
 */
export const { METHODS, STATUS_CODES, createServer, request }: typeof import('node:http') =
  require('node:http');
