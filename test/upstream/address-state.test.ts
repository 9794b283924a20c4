import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { GatewayError } from '../../src/base/errors.ts';
import { AddressState, type StatusChange } from '../../src/upstream/address-state.ts';

const CIRCUIT = { failures: 0.5, minimum: 4, window: 10_000, open: 5_000, statuses: [503] };
/** With this one, no circuit opens. */
const NEVER = { ...CIRCUIT, minimum: 1_000_000 };
const FAILBACK = 30_000;
const CLIENT = 'reporting';

const UNKNOWN = { health: 'unknown', circuit: 'closed' };
const HEALTHY = { health: 'healthy', circuit: 'closed' };
const FAILING = { health: 'failing', circuit: 'closed' };
const OPEN = { health: 'failing', circuit: 'open' };
const HALF_OPEN = { health: 'failing', circuit: 'half-open' };
const RECOVERING = { health: 'healthy', circuit: 'half-open' };

function scene({ circuit = CIRCUIT, isChecked = true } = {}) {
  const clock = { time: 0, now: () => clock.time };
  const health = { interval: isChecked ? 10_000 : undefined, failback: FAILBACK };
  const state = new AddressState(circuit, health, clock);
  const fail = (times: number): StatusChange[] =>
    Array.from({ length: times }, () => state.failed('connection', 'refused', CLIENT) ?? []).flat();
  const respond = (times: number): void => {
    for (let count = 0; count < times; count += 1) state.responded(200, CLIENT);
  };
  /** Opens the circuit, and lets its time pass. */
  const openForItsTime = (): void => {
    fail(4);
    clock.time += CIRCUIT.open;
  };
  /** True if this request is admitted; the change that it causes is dropped. */
  const admits = (request = { client: CLIENT }): boolean => {
    try {
      state.admit(request);
      return true;
    } catch (error) {
      if (error instanceof GatewayError && error.code === 'upstream-circuit-open') return false;
      throw error;
    }
  };
  return { clock, state, fail, respond, openForItsTime, admits };
}

describe('the health of an address', () => {
  test('is unknown, then what the first result shows', () => {
    const failing = scene().state;
    expect([failing.status.health, failing.isSettled]).toEqual(['unknown', true]);
    const failed = failing.checkFailed('connection', 'refused');
    expect(failed).toEqual({ before: UNKNOWN, after: FAILING, reason: 'refused' });
    const healthy = scene().state;
    expect(healthy.responded(200, CLIENT)).toEqual({ before: UNKNOWN, after: HEALTHY, reason: '' });
  });

  test('is failing after three failures in a row, of requests and checks together', () => {
    const { state } = scene({ circuit: NEVER });
    state.responded(200, CLIENT);
    state.failed('request', 'a', CLIENT);
    state.failed('request', 'a', CLIENT);
    state.responded(200, CLIENT);
    state.failed('request', 'b', CLIENT);
    state.checkFailed('connection', 'c');
    expect([state.status.health, state.isInDoubt]).toEqual(['healthy', true]);
    state.failed('request', 'd', CLIENT);
    expect([state.status.health, state.reason, state.isInDoubt]).toEqual(['failing', 'd', false]);
    state.failed('request', 'e', CLIENT);
    expect(state.reason).toBe('e');
  });

  test('is healthy after any response', () => {
    const { state } = scene();
    state.failed('request', 'a', CLIENT);
    state.responded(503, CLIENT);
    expect([state.status.health, state.reason]).toEqual(['healthy', '']);
  });

  test('is healthy after a connection if it failed for want of one', () => {
    const { state, fail } = scene();
    fail(1);
    state.checked('connection');
    expect(state.status.health).toBe('healthy');
  });

  test('is not healthy after a mere connection while requests get no response, but for failback', () => {
    const { state, clock } = scene();
    state.failed('request', 'no response', CLIENT);
    clock.time = 29_999;
    state.checked('connection');
    expect(state.status.health).toBe('failing');
    clock.time = 30_000;
    state.checked('connection');
    expect(state.status.health).toBe('healthy');
  });

  test.each([
    ['request', 'connection'],
    ['connection', 'request'],
  ] as const)(
    'is not healthy after a mere connection once a request got no response: %s, then %s',
    (...kinds) => {
      const { state } = scene();
      for (const kind of kinds) state.failed(kind, 'none', CLIENT);
      state.checked('connection');
      expect(state.status.health).toBe('failing');
    },
  );

  test('is healthy after a connection if requests got no response only before its last success', () => {
    const { state } = scene({ circuit: NEVER });
    state.failed('request', 'no response', CLIENT);
    state.responded(200, CLIENT);
    for (let count = 0; count < 3; count += 1) state.failed('connection', 'refused', CLIENT);
    expect(state.status.health).toBe('failing');
    state.checked('connection');
    expect(state.status.health).toBe('healthy');
  });

  test('is healthy at once after a check that got a response', () => {
    const { state } = scene();
    state.failed('request', 'no response', CLIENT);
    state.checked('request');
    expect(state.status.health).toBe('healthy');
  });

  test('is settled again when it has been healthy for failback', () => {
    const { state, clock, fail } = scene();
    fail(1);
    clock.time = 10_000;
    state.responded(200, CLIENT);
    clock.time = 39_999;
    expect([state.isSettled, state.age]).toEqual([false, 29_999]);
    clock.time = 40_000;
    expect(state.isSettled).toBe(true);
  });

  test('is settled from the first response on if it was never failing', () => {
    const { state } = scene();
    state.responded(200, CLIENT);
    expect(state.isSettled).toBe(true);
  });

  test('is not settled with checks while none of them has succeeded', () => {
    const { state, clock, fail } = scene();
    fail(1);
    clock.time = 10 * FAILBACK;
    expect(state.isSettled).toBe(false);
  });

  test('is settled without checks when it has been left alone for failback', () => {
    const { state, clock, fail } = scene({ isChecked: false });
    fail(1);
    clock.time = 29_999;
    expect(state.isSettled).toBe(false);
    clock.time = 30_000;
    expect(state.isSettled).toBe(true);
    fail(1);
    expect(state.isSettled).toBe(false);
  });

  test('tells once that client requests have shown it', () => {
    const { state } = scene();
    state.checked('connection');
    expect(state.takeTraffic()).toBe(false);
    state.responded(200, CLIENT);
    expect([state.takeTraffic(), state.takeTraffic()]).toEqual([true, false]);
    state.failed('request', 'a', CLIENT);
    expect(state.takeTraffic()).toBe(true);
  });
});

describe('a closed circuit', () => {
  test('opens when enough exchanges of the window have failed, of an address that is failing then', () => {
    const { state, fail, respond } = scene();
    respond(2);
    expect([...fail(1), state.status.circuit]).toEqual(['closed']);
    expect(fail(1)).toEqual([{ before: HEALTHY, after: OPEN, reason: 'refused' }]);
    expect([state.status.circuit, state.status.health]).toEqual(['open', 'failing']);
  });

  test('stays closed below the minimum, and below the share', () => {
    const few = scene();
    few.fail(3);
    expect(few.state.status.circuit).toBe('closed');
    const mostly = scene();
    mostly.respond(10);
    mostly.fail(9);
    expect(mostly.state.status.circuit).toBe('closed');
  });

  test('forgets failures that have left the window', () => {
    const { state, clock, fail } = scene();
    fail(3);
    clock.time = 10_000;
    fail(3);
    expect(state.status.circuit).toBe('closed');
  });

  test('counts a status that is listed as a failure, and names it', () => {
    const { state } = scene();
    for (let count = 0; count < 3; count += 1) state.responded(503, CLIENT);
    expect([state.status.circuit, state.status.health]).toEqual(['closed', 'healthy']);
    expect(state.responded(503, CLIENT)?.reason).toContain('503');
    expect(state.status.circuit).toBe('open');
  });

  test('stays open after a mere connection while a listed status is what requests get', () => {
    const { state, clock } = scene();
    for (let count = 0; count < 4; count += 1) state.responded(503, CLIENT);
    clock.time = CIRCUIT.open;
    expect([state.checked('connection'), state.status.circuit]).toEqual([undefined, 'open']);
    expect(state.checked('request')?.after).toEqual(RECOVERING);
  });

  test('counts from nothing once it has closed, responses too', () => {
    const { state, fail, respond, clock } = scene();
    respond(2);
    fail(2);
    expect(state.status.circuit).toBe('open');
    clock.time = CIRCUIT.open;
    state.admit({ client: CLIENT });
    state.responded(200, CLIENT);
    fail(3);
    expect(state.status.circuit).toBe('closed');
    fail(1);
    expect(state.status.circuit).toBe('open');
  });

  test('opens by no check', () => {
    const { state } = scene();
    for (let count = 0; count < 8; count += 1) state.checkFailed('request', 'no');
    expect([state.status.circuit, state.status.health]).toEqual(['closed', 'failing']);
  });
});

describe('an open circuit', () => {
  test('refuses until its time has passed, and says how long that is', () => {
    const { state, clock, fail, admits } = scene();
    fail(4);
    clock.time = 1_000;
    expect([admits(), state.isAdmitting(CLIENT), state.retryAfterMs(CLIENT)]).toEqual([false, false, 4_000]);
    clock.time = 5_000;
    expect([state.isAdmitting(CLIENT), state.retryAfterMs(CLIENT)]).toEqual([true, 0]);
  });

  test('takes no notice of exchanges that began before', () => {
    const { state, fail, respond } = scene();
    fail(4);
    respond(1);
    expect([state.status.circuit, state.status.health]).toEqual(['open', 'failing']);
  });

  test('admits one trial; its response closes the circuit, with all failures forgotten', () => {
    const { state, openForItsTime, fail, admits } = scene();
    openForItsTime();
    expect(state.admit({ client: CLIENT })).toEqual({ before: OPEN, after: HALF_OPEN, reason: 'refused' });
    expect([admits(), state.isAdmitting(CLIENT)]).toEqual([false, false]);
    expect(state.responded(401, CLIENT)).toEqual({ before: HALF_OPEN, after: HEALTHY, reason: '' });
    expect([admits(), admits()]).toEqual([true, true]);
    fail(3);
    expect(state.status.circuit).toBe('closed');
  });

  test.each([
    ['fails', (state: AddressState) => state.failed('request', 'no response', CLIENT)],
    ['gets a status that is listed', (state: AddressState) => state.responded(503, CLIENT)],
  ])('opens again for its time when the trial %s', (_how, end) => {
    const { state, openForItsTime, admits } = scene();
    openForItsTime();
    admits();
    end(state);
    expect([state.status.circuit, state.retryAfterMs(CLIENT), admits()]).toEqual(['open', 5_000, false]);
  });

  test('makes the next request the trial if one ends without a result', () => {
    const { state, openForItsTime, admits } = scene();
    openForItsTime();
    const [first, second] = [{ client: CLIENT }, { client: CLIENT }];
    admits(first);
    state.leave(first);
    expect(admits(second)).toBe(true);
    // The first request ends again, in vain: it is not the trial any more.
    state.leave(first);
    expect(admits()).toBe(false);
  });

  test('is half-open after a check, of a healthy address, if its time has passed and no request is the trial', () => {
    const { state, clock, fail, admits } = scene();
    fail(4);
    clock.time = 4_999;
    expect([state.checked('connection'), state.status.circuit]).toEqual([undefined, 'open']);
    clock.time = 5_000;
    const trial = { client: CLIENT };
    admits(trial);
    expect([state.checked('connection'), state.status.circuit]).toEqual([undefined, 'half-open']);
    state.leave(trial);
    expect(state.checked('connection')).toEqual({ before: HALF_OPEN, after: RECOVERING, reason: '' });
  });

  test('gets one request at a time after a check, which may find more than requests do', () => {
    const { state, clock, openForItsTime, fail, admits } = scene();
    openForItsTime();
    expect(state.checked('request')).toEqual({ before: OPEN, after: RECOVERING, reason: '' });
    clock.time += FAILBACK;
    expect([state.isSettled, state.isAdmitting(CLIENT)]).toEqual([true, true]);
    expect([admits(), admits()]).toEqual([true, false]);
    expect(fail(1)).toEqual([{ before: RECOVERING, after: OPEN, reason: 'refused' }]);
    expect([state.isSettled, state.retryAfterMs(CLIENT)]).toEqual([false, CIRCUIT.open]);
    clock.time += CIRCUIT.open;
    state.checked('request');
    admits();
    expect(state.responded(200, CLIENT)).toEqual({ before: RECOVERING, after: HEALTHY, reason: '' });
  });

  test('is of a failing address again when checks fail after one has succeeded', () => {
    const { state, openForItsTime } = scene();
    openForItsTime();
    state.checked('request');
    expect([state.checkFailed('request', 'a'), state.checkFailed('request', 'b')]).toEqual([
      undefined,
      undefined,
    ]);
    expect(state.checkFailed('request', 'c')).toEqual({ before: RECOVERING, after: HALF_OPEN, reason: 'c' });
  });

  test('is not kept open by checks that fail', () => {
    const { state, clock, openForItsTime, admits } = scene();
    openForItsTime();
    state.checkFailed('request', 'no such path');
    expect(admits()).toBe(true);
    state.checkFailed('request', 'no such path');
    clock.time += 1;
    expect(state.responded(200, CLIENT)?.after).toEqual(HEALTHY);
  });

  test('stays open after a mere connection while requests get no response, but for failback', () => {
    const { state, clock } = scene();
    for (let count = 0; count < 4; count += 1) state.failed('request', 'no response', CLIENT);
    clock.time = FAILBACK - 1;
    expect(state.checked('connection')).toBeUndefined();
    clock.time = FAILBACK;
    expect(state.checked('connection')?.after).toEqual(RECOVERING);
  });
});

describe('a circuit that one client opened', () => {
  const OTHER = { client: 'other' };

  test('refuses no other client, and is closed by a response to another one after its time', () => {
    const { state, clock, fail, admits } = scene();
    fail(4);
    expect([admits(), admits(OTHER), admits(OTHER), state.retryAfterMs(OTHER.client)]).toEqual([
      false,
      true,
      true,
      0,
    ]);
    expect([state.responded(200, OTHER.client), state.status.circuit]).toEqual([undefined, 'open']);
    clock.time = CIRCUIT.open;
    expect(state.admit(OTHER)?.after).toEqual(HALF_OPEN);
    expect(state.responded(200, OTHER.client)?.after).toEqual(HEALTHY);
  });

  test('refuses another one once its own request has failed, for the time of the circuit', () => {
    const { state, clock, fail, admits } = scene();
    fail(4);
    clock.time = 1_000;
    expect(admits(OTHER)).toBe(true);
    state.failed('request', 'no response', OTHER.client);
    expect([admits(OTHER), state.retryAfterMs(OTHER.client)]).toEqual([false, 5_000]);
  });

  test('lets each client try, also while the trial of another one gets no response or has failed', () => {
    const { state, clock, fail, admits } = scene();
    fail(4);
    state.failed('request', 'no response', OTHER.client);
    clock.time = CIRCUIT.open;
    expect([admits(), admits(), admits(OTHER), admits(OTHER)]).toEqual([true, false, true, false]);
    state.failed('request', 'no response', CLIENT);
    expect(admits()).toBe(false);
    state.responded(200, OTHER.client);
    expect([admits(), admits(OTHER), admits(OTHER)]).toEqual([false, true, true]);
  });

  test('refuses nobody for a failure before its last response, or before the circuit closed', () => {
    const { state, clock, fail, admits } = scene();
    state.failed('request', 'no response', OTHER.client);
    state.responded(200, OTHER.client);
    fail(4);
    expect([state.status.circuit, admits(), admits(OTHER)]).toEqual(['open', false, true]);
    clock.time = CIRCUIT.open;
    admits(OTHER);
    state.responded(200, OTHER.client);
    for (let count = 0; count < 4; count += 1) state.failed('request', 'no response', OTHER.client);
    expect([state.status.circuit, admits(), admits(OTHER)]).toEqual(['open', true, false]);
  });

  test('is open for its whole time from the failure that opened it, and from that of a trial', () => {
    const { state, clock, fail, admits } = scene();
    fail(1);
    state.failed('request', 'no response', OTHER.client);
    clock.time = 4_000;
    fail(2);
    expect([state.status.circuit, state.retryAfterMs(CLIENT)]).toEqual(['open', 5_000]);
    clock.time = 8_000;
    expect([state.admit({ client: 'third' }), state.status.circuit]).toEqual([undefined, 'open']);
    expect(admits(OTHER)).toBe(true);
    state.failed('request', 'no response', OTHER.client);
    expect([admits(OTHER), state.retryAfterMs(OTHER.client)]).toEqual([false, 5_000]);
  });

  test('is not put off by failures of requests that began before it opened', () => {
    const { state, clock, fail } = scene();
    fail(4);
    clock.time = 4_000;
    fail(1);
    expect(state.retryAfterMs(CLIENT)).toBe(1_000);
  });
});

/** An event, by what it does to a state; `running` are the requests that were admitted. */
type Event = (state: AddressState, running: { client: string }[]) => StatusChange | undefined;

const EVENTS: readonly Event[] = [
  (state) => state.checked('request'),
  (state) => state.checked('connection'),
  (state) => state.checkFailed('request', 'c'),
  (state) => state.failed('request', 'f', CLIENT),
  (state) => state.failed('connection', 'n', CLIENT),
  (state) => state.responded(200, CLIENT),
  (state) => state.responded(503, CLIENT),
  (state, running) => {
    state.leave(running.pop() ?? { client: CLIENT });
    return undefined;
  },
  (state, running) => {
    if (!state.isAdmitting(CLIENT)) {
      expect(() => state.admit({ client: CLIENT })).toThrow(GatewayError);
      return undefined;
    }
    const request = { client: CLIENT };
    running.push(request);
    const change = state.admit(request);
    expect(state.isAdmitting(CLIENT)).toBe(state.status.circuit === 'closed');
    return change;
  },
];

test('whatever happens, changes follow each other, and an address whose circuit is open is failing for its time', () => {
  const step = fc.record({ event: fc.constantFrom(...EVENTS), seconds: fc.constantFrom(0, 0, 1, 5, 30) });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 100 }), (steps) => {
      const { state, clock } = scene();
      const running: { client: string }[] = [];
      let last: StatusChange['after'] = { health: 'unknown', circuit: 'closed' };
      for (const { event, seconds } of steps) {
        clock.time += seconds * 1_000;
        const retryAfterMs = state.retryAfterMs(CLIENT);
        const change = event(state, running);
        expect(change?.before ?? last).toEqual(last);
        last = change?.after ?? last;
        expect([state.status.health, state.status.circuit]).toEqual([last.health, last.circuit]);
        // Whatever comes before its time, it stays open.
        expect(retryAfterMs > 0 && state.status.circuit !== 'open').toBe(false);
        expect(state.status.circuit !== 'open' || state.status.health === 'failing').toBe(true);
        expect(state.reason !== '').toBe(state.status.health === 'failing');
      }
    }),
    { numRuns: 500 },
  );
});
