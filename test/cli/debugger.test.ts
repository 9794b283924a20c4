import { expect, test } from '@jest/globals';
import { serveGateway } from '../support/served-gateway.ts';

test.each([
  ['as an installed program', []],
  ['without its flags', ['node']],
])('SIGUSR1 opens no debugger and the gateway goes on, started %s', async (_how, runner) => {
  const credentials = { c: { username: { value: 'u' }, password: { value: 'p' } } };
  const deployments = { d: { baseUrl: 'https://a.invalid', match: { pathPrefix: '/a/' }, credential: 'c' } };
  const gateway = await serveGateway({ origin: '', ca: '' }, { credentials, deployments }, runner);
  try {
    process.kill(gateway.pid, 'SIGUSR1');
    for (let turn = 0; turn < 20; turn += 1) {
      expect((await fetch(`${gateway.control}/livez`)).status).toBe(200);
    }
    expect(gateway.printed.join('\n')).not.toMatch(/debugger/i);
  } finally {
    await gateway.close();
  }
});
