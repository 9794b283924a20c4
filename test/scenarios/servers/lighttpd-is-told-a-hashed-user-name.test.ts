import { expect, test } from '@jest/globals';
import { useScenes } from '../../support/gateway-scene.ts';
import { startLighttpd } from '../../support/lighttpd.ts';
import { account } from '../../support/real-server.ts';

const setScene = useScenes();

test.each(['MD5', 'SHA-256'] as const)('where it asks for one, with %s', async (algorithm) => {
  const { ask, attempts, stop } = await setScene(startLighttpd({ algorithms: [algorithm], userhash: true }));
  expect((await ask('/api/1')).status).toBe(200);
  expect((await ask('/api/2')).status).toBe(200);
  expect(await attempts()).toEqual({ challenged: 1, ok: 2 });
  const answers = (await stop()).flatMap(({ authorization }) => authorization ?? []);
  expect(answers).toHaveLength(2);
  for (const answer of answers) {
    expect(answer).toContain(', userhash=true,');
    expect(answer).not.toContain(account.username);
  }
});
