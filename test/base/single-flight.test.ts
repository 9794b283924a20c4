import { expect, jest, test } from '@jest/globals';
import { Cancellation } from '../../src/base/cancellation.ts';
import { GatewayError } from '../../src/base/errors.ts';
import { SingleFlight } from '../../src/base/single-flight.ts';

const follow = <T>(flights: SingleFlight<T>) => flights.follow(new Cancellation(), 2_000);

test.each(['check', 'proceed'] as const)('one leads, the others hear how it ended: %s', async (landing) => {
  const flights = new SingleFlight();
  const flight = flights.lead();
  expect(() => flights.lead()).toThrow(TypeError);
  const followers = [follow(flights), follow(flights)];
  flight.land(landing);
  expect(await Promise.all(followers)).toEqual([landing, landing]);
  expect([flights.busy, await follow(flights)]).toEqual([false, 'late']);
});

test('a second call to land ends no later flight', async () => {
  const flights = new SingleFlight();
  const first = flights.lead();
  first.land('check');
  const second = flights.lead();
  const follower = follow(flights);
  first.land('proceed');
  expect(flights.busy).toBe(true);
  second.land('check');
  expect(await follower).toBe('check');
});

test('a leader that passes its flight on gives it to the first follower, and the others wait on', async () => {
  const flights = new SingleFlight<string>();
  const flight = flights.lead();
  expect(flight.passOn('nobody')).toBe(false);
  const [first, second] = [follow(flights), follow(flights)];
  expect([flight.passOn('leads'), await first, flights.busy]).toEqual([true, 'leads', true]);
  flight.land('done');
  expect([await second, flight.passOn('over')]).toEqual(['done', false]);
});

test('a follower waits as long as it says, and no longer than its request', async () => {
  jest.useFakeTimers();
  try {
    const flights = new SingleFlight();
    flights.lead();
    const cancellation = new Cancellation();
    const [patient, given] = [follow(flights), flights.follow(cancellation, 2_000)];
    cancellation.cancel(new GatewayError('client-closed', 'gone'));
    expect(await given).toBe('late');
    jest.advanceTimersByTime(2_000);
    expect(await patient).toBe('late');
  } finally {
    jest.useRealTimers();
  }
});

test('a follower may wait for longer than a timer runs', async () => {
  jest.useFakeTimers();
  try {
    const flights = new SingleFlight();
    const flight = flights.lead();
    const patient = flights.follow(new Cancellation(), 2 ** 32);
    jest.advanceTimersByTime(1_000);
    flight.land('check');
    expect(await patient).toBe('check');
  } finally {
    jest.useRealTimers();
  }
});
