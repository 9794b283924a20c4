import { expect, test } from '@jest/globals';
import { ask, challenge, isSigned, OK, OTHERS, OTHERS_MS } from '../scenarios/deadlines/deadlines.ts';
import { closedAtEnd, closing } from '../support/closing.ts';
import { startGateway } from '../support/gateway.ts';
import { startConnections } from '../support/scripted-upstream.ts';

/** Starts a gateway whose first request is not answered, while others are sent. */
async function holdFirst(whenSigned: boolean): Promise<void> {
  const reached = Promise.withResolvers<void>();
  const upstream = await startConnections(async (connection) => {
    for (let head = await connection.request(); head !== undefined; head = await connection.request()) {
      const signed = isSigned(head);
      if (head.startsWith('GET /fault') && signed === whenSigned) reached.resolve();
      else await connection.write(signed ? OK : challenge('first'));
    }
  });
  closing.push(() => upstream.close());
  const timeouts = { response: OTHERS, idle: OTHERS, total: OTHERS };
  const settings = { tls: { allowPlaintext: true }, timeouts };
  const gateway = await closedAtEnd(startGateway({ up: { origin: upstream.origin, settings } }));
  const leaving = new AbortController();
  let ended = false;
  const first = fetch(`${gateway.origin}/fault`, { signal: leaving.signal })
    .catch(() => {})
    .finally(() => {
      ended = true;
    });
  await reached.promise;
  for (const path of ['/a', '/b', '/c', '/d', '/e', '/f', '/g', '/h']) {
    expect(await ask(gateway, path)).toBe('200 ok');
  }
  expect(ended).toBe(false);
  leaving.abort();
  await first;
}

// At the same time, since others wait for ten seconds.
test('the first request after a start, if the upstream does not answer it, with or without authentication, holds others once', async () => {
  await Promise.all([holdFirst(false), holdFirst(true)]);
});

test('a credential that is in doubt, whose test the upstream does not answer, holds others once', async () => {
  let nonces = 0;
  let isTesting = false;
  const testing = Promise.withResolvers<void>();
  const upstream = await startConnections(async (connection) => {
    for (let head = await connection.request(); head !== undefined; head = await connection.request()) {
      const signed = isSigned(head);
      nonces += 1;
      // The gateway tests the credential with a HEAD, since a path may answer 401 whatever the credential is.
      if (head.startsWith('HEAD ')) {
        isTesting = true;
        testing.resolve();
      }
      // Nor is the second attempt of a request answered that has waited for the test as long as it may.
      if (isTesting && /^(HEAD|GET \/refused) ?/.test(head)) continue;
      if (signed && !head.startsWith('GET /refused')) await connection.write(OK);
      else await connection.write(challenge(`${nonces}`));
    }
  });
  closing.push(() => upstream.close());
  const timeouts = { response: OTHERS, idle: OTHERS, total: '1m' };
  const settings = { tls: { allowPlaintext: true }, timeouts };
  const gateway = await closedAtEnd(startGateway({ up: { origin: upstream.origin, settings } }));
  expect(await ask(gateway, '/ok')).toBe('200 ok');
  const leaving = new AbortController();
  let ended = false;
  const refused = [1, 2].map(() =>
    fetch(`${gateway.origin}/refused`, { signal: leaving.signal })
      .catch(() => {})
      .finally(() => {
        ended = true;
      }),
  );
  await testing.promise;
  for (const path of ['/a', '/b', '/c', '/d', '/e', '/f', '/g', '/h']) {
    expect(await ask(gateway, path)).toBe('200 ok');
  }
  expect(ended).toBe(false);
  leaving.abort();
  await Promise.all(refused);
  // Nor does a shutdown wait for it.
  const begun = performance.now();
  await gateway.close();
  expect(performance.now() - begun).toBeLessThan(OTHERS_MS / 2);
});
