import { expect, test } from '@jest/globals';
import { startGatewayProcess } from '../support/gateway-process.ts';

/** Libraries that only some configurations need. Those of HTTP and age take 15 MiB of memory each. */
const OPTIONAL = [
  'age-encryption/',
  'aws4fetch/',
  'ioredis/',
  'jose/',
  'pino-pretty/',
  'rate-limiter-flexible/index.js',
  'undici/index.js',
];

test('a gateway that needs none of the optional libraries loads none of them', async () => {
  const preload = new URL('../support/loaded-modules.js', import.meta.url).href;
  await using gateway = await startGatewayProcess(
    { submissions: { origin: 'https://127.0.0.1:1' } },
    {},
    { environment: { ...process.env, NODE_OPTIONS: `--import ${preload}` } as Record<string, string> },
  );
  await gateway.close();
  const report = gateway.printed.find((line) => line.startsWith('{"loaded"')) ?? '{}';
  const { loaded, builtin } = JSON.parse(report) as Record<string, string[]>;
  // Seen, whether they are imported or required.
  for (const name of ['zod/', 'undici/lib/core/connect.js']) {
    expect(loaded?.some((url) => url.includes(`/node_modules/${name}`))).toBe(true);
  }
  for (const name of OPTIONAL) {
    expect(loaded?.filter((url) => url.includes(`/node_modules/${name}`))).toEqual([]);
  }
  // The undici of Node.js itself, which `import` of node:http loads.
  expect(builtin).not.toContain('NativeModule internal/deps/undici/undici');
});
