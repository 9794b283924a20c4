import { describe, expect, test } from '@jest/globals';
import { GatewayError } from '../../src/base/errors.ts';
import { Admission, type ClientLoad } from '../../src/upstream/client-request.ts';

/** An upstream whose expected wait is at most a minute. */
function admissionOf(connections: number) {
  const queue = { limit: connections, wait: 0, expectedWait: () => queue.wait };
  const admission = new Admission(60_000);
  return {
    queue,
    /** `expectedWait`: in milliseconds. */
    enter: (client: string, expectedWait = 0) => {
      queue.wait = expectedWait;
      const load = admission.check(client, queue);
      load.count += 1;
      return load;
    },
  };
}

type TestAdmission = ReturnType<typeof admissionOf>;

/** Sends requests of a client until one is refused; returns those that were admitted. */
function fill(admission: TestAdmission, client: string): ClientLoad[] {
  const admitted: ClientLoad[] = [];
  for (;;) {
    const load = enter(admission, client);
    if (load instanceof GatewayError) return admitted;
    admitted.push(load);
  }
}

function enter(admission: TestAdmission, client: string, expectedWait = 0): ClientLoad | GatewayError {
  try {
    return admission.enter(client, expectedWait);
  } catch (error) {
    if (error instanceof GatewayError) return error;
    throw error;
  }
}

describe('admission by number', () => {
  test.each([1, 2, 3, 64, 65_535 / 5])('a client may have 17 requests for each of %i connections', (most) => {
    expect(fill(admissionOf(most), 'a')).toHaveLength(17 * most);
  });

  test('what one client has takes nothing from another', () => {
    const admission = admissionOf(4);
    expect(['a', 'b', 'c'].map((client) => fill(admission, client).length)).toEqual([68, 68, 68]);
  });

  test('a request that ended makes room for another', () => {
    const admission = admissionOf(1);
    const admitted = fill(admission, 'a');
    expect(enter(admission, 'a')).toBeInstanceOf(GatewayError);
    if (admitted[0] !== undefined) admitted[0].count -= 1;
    expect(fill(admission, 'a')).toHaveLength(1);
    for (const load of admitted) load.count -= 1;
    expect(fill(admission, 'b')).toHaveLength(17);
  });

  test('names the number of requests and what to do', () => {
    const admission = admissionOf(1);
    fill(admission, 'a');
    const refused = enter(admission, 'a', 2500) as GatewayError;
    expect(refused.detail).toMatch(/\b17\b.*\bconnections\b/);
    expect(refused.retryAfter).toBe(3);
    expect((enter(admission, 'a') as GatewayError).retryAfter).toBe(1);
  });
});

test('refuses a request whose expected wait is too long, and counts it not', () => {
  const admission = admissionOf(1);
  for (let count = 0; count < 100; count += 1) {
    expect(enter(admission, 'a', 60_001)).toMatchObject({
      code: 'overloaded',
      detail: expect.stringMatching(/\b60001 ms\b.*\b60000 ms\b.*timeouts\.response/),
      retryAfter: 61,
    });
  }
  expect(enter(admission, 'a', 60_000)).not.toBeInstanceOf(GatewayError);
  expect(fill(admission, 'a')).toHaveLength(16);
});
