import { describe, expect, test } from '@jest/globals';
import { authors, openSession } from './session.ts';

const put = (body: string) => ({ method: 'PUT', body });

async function opened() {
  const session = await openSession();
  const { sidePort } = session.simulator;
  const side = async (path: string, init: RequestInit = {}) => {
    const response = await fetch(`http://127.0.0.1:${sidePort}${path}`, {
      ...init,
      headers: { connection: 'close' },
    });
    return { status: response.status, text: await response.text() };
  };
  return { ...session, side };
}

describe('the side port', () => {
  test('tells the counts of each deployment, and no nonce', async () => {
    const { side, simulator, challenge, answered } = await opened();
    const offered = await challenge();
    await answered(offered);
    const { text } = await side('/counts');
    const counts = JSON.parse(text);
    expect(counts).toEqual({
      submissions: simulator.counts('submissions'),
      abstracts: simulator.counts('abstracts'),
    });
    expect(counts.submissions).toMatchObject({
      connections: 1,
      requests: 2,
      accepted: 1,
      nonces: [{ uses: 1 }],
    });
    expect(text).not.toContain(offered.get('nonce'));
  });

  test('changes the behaviour and leaves the rest as it was', async () => {
    const { side, challenge, simulator } = await opened();
    simulator.set('submissions', { opaque: true });
    expect((await side('/deployments/submissions', put('{"qop":"auth"}'))).status).toBe(200);
    const offered = await challenge();
    expect([offered.get('qop'), offered.has('opaque')]).toEqual(['auth', true]);
  });

  test('resets a deployment', async () => {
    const { side, challenge, answered, simulator } = await opened();
    const offered = await challenge();
    expect((await side('/deployments/submissions/reset', { method: 'POST' })).status).toBe(200);
    expect(simulator.counts('submissions').requests).toBe(0);
    expect((await answered(offered)).status).toBe(401);
  });

  test('gives the certificate of the authority', async () => {
    const { side, simulator } = await opened();
    expect((await side('/ca.pem')).text).toBe(simulator.ca);
  });

  test.each([
    [400, '/deployments/submissions', put('{"qopp":"auth"}'), 'qopp'],
    [400, '/deployments/submissions', put('{"qop":"other"}'), 'qop'],
    [400, '/deployments/submissions', put('{"port":1}'), 'port'],
    [400, '/deployments/submissions', put('{"allowedAddresses":["10.0.0.0/33"]}'), 'CIDR'],
    [400, '/deployments/submissions', put('[1]'), 'expected record'],
    [400, '/deployments/submissions', put('{'), 'not JSON'],
    [404, '/deployments/other', put('{}'), 'No deployment'],
    [404, '/deployments/submissions', { method: 'DELETE' }, 'No such path'],
    [404, '/counts/submissions', {}, 'No such path'],
    [404, '/', {}, 'No such path'],
  ])('answers %i to %s %j', async (status, path, init, word) => {
    const { side, challenge } = await opened();
    const seen = await side(path, init);
    expect(seen.status).toBe(status);
    expect(JSON.parse(seen.text).error).toContain(word);
    expect([...(await challenge()).keys()]).toEqual(['realm', 'nonce', 'stale']);
  });

  test('refuses a body without end', async () => {
    const { side, ask } = await opened();
    const seen = await side('/deployments/submissions', put(' '.repeat(65_537)));
    expect([seen.status, JSON.parse(seen.text).error]).toEqual([413, 'The body is too large.']);
    expect((await ask(authors)).status).toBe(401);
  });
});
