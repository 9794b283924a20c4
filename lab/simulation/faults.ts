import { FIRST_PASSWORD, type Fleet, NEXT_PASSWORD } from './fleet.ts';
import { hostOf } from './network.ts';
import type { Fault, FaultKind } from './plan.ts';
import type { SimulatedProcess } from './world.ts';

/** Brings a fault about; the result ends it. */
type Begin = (fleet: Fleet, fault: Fault, until: number) => (() => void) | undefined;

const nothing = undefined;

function gatewayHost({ gateway }: Fault): string {
  return `gateway-${gateway}`;
}

/** So far a clock jumps at most, forward or backward. */
export const JUMP_MS = 600_000;

function jumpMs({ amount }: Fault): number {
  return (amount - 0.5) * 2 * JUMP_MS;
}

function pause(process: SimulatedProcess | undefined, until: number): undefined {
  if (process !== undefined) process.pausedUntil = until;
}

const redisRestart =
  (keeps: boolean): Begin =>
  ({ redis, world }, { amount }, _until) => {
    if (redis === undefined || !redis.isUp) return nothing;
    // Asynchronous replication, or a file that is written now and then, lacks the last writes.
    const kept = keeps ? redis.keyspace.snapshot() : undefined;
    const lateMs = amount * 800;
    redis.process.deliver(lateMs, 'the server ends', () => {
      redis.stop();
      world.trace('redis ended');
    });
    return () => {
      if (redis.isUp) redis.stop();
      redis.restart(kept);
    };
  };

/** Each gateway ends and begins anew, one after the other. */
async function upgrade(fleet: Fleet): Promise<void> {
  for (let at = 0; at < fleet.plan.gateways; at += 1) {
    await fleet.drain(at);
    fleet.start(at);
  }
}

const BEGINNINGS: Readonly<Record<FaultKind, Begin>> = {
  'upstream-slow': ({ service }, { amount }) => {
    service.slowestMs = 6_000 * amount ** 3;
    return () => {
      service.slowestMs = 5;
    };
  },
  'upstream-breaks': ({ service, observer }, _, until) => {
    observer.haveBroken = true;
    service.breaksUntil = until;
    return nothing;
  },
  'upstream-restart': ({ service, observer, world }, { amount }) => {
    if (!service.isUp) return nothing;
    observer.haveBroken = true;
    service.stop();
    return () => {
      observer.forgotAt = world.now;
      service.restart(amount > 0.7);
    };
  },
  'upstream-forgets': ({ service, observer, world }) => {
    observer.forgotAt = world.now;
    service.forget(true);
    return nothing;
  },
  'upstream-busy': ({ service }, _, until) => {
    service.busy(until);
    return nothing;
  },
  'upstream-cut': ({ network }, fault, until) => {
    network.cut(gatewayHost(fault), 'upstream', until);
    return nothing;
  },
  'gateway-crash': (fleet, { gateway }) => {
    fleet.crash(gateway);
    return () => fleet.start(gateway);
  },
  'gateway-drain': (fleet, { gateway }) => {
    const drained = fleet.drain(gateway);
    return () => fleet.await(drained.then(() => fleet.start(gateway)));
  },
  upgrade: (fleet) => {
    fleet.await(upgrade(fleet));
    return nothing;
  },
  'gateway-pause': (fleet, { gateway }, until) => pause(fleet.at(gateway)?.process, until),
  'gateway-reload': (fleet, { gateway }) => {
    const target = fleet.at(gateway);
    target?.process.deliver(0, 'reloads', () => {
      target.reload().catch((error) => fleet.observer.fault(target.process, error));
    });
    return nothing;
  },
  'gateway-clock': (fleet, fault) => {
    const process = fleet.at(fault.gateway)?.process;
    if (process !== undefined) process.wallOffset += jumpMs(fault);
    return nothing;
  },
  'redis-restart': redisRestart(false),
  'redis-restore': redisRestart(true),
  'redis-failover': redisRestart(true),
  'redis-flush': ({ redis }) => {
    redis?.keyspace.clear();
    return nothing;
  },
  'redis-pause': ({ redis }, _, until) => pause(redis?.process, until),
  'redis-cut': ({ network }, fault, until) => {
    network.cut(gatewayHost(fault), 'redis', until);
    return nothing;
  },
  'redis-slow': ({ network }, fault, until) => {
    network.slow(gatewayHost(fault), 'redis', until, 300 * fault.amount);
    return nothing;
  },
  'redis-duplicates': ({ redis }, _, until) => {
    if (redis !== undefined) redis.duplicatesUntil = until;
    return nothing;
  },
  'redis-clock': ({ redis }, fault) => {
    if (redis !== undefined) redis.process.wallOffset += jumpMs(fault);
    return nothing;
  },
  'primary-pause': ({ primary }, _, until) => pause(primary, until),
  'primary-slow': ({ network, primary }, fault, until) => {
    if (primary !== undefined)
      network.slow(gatewayHost(fault), hostOf(primary.name), until, 1_500 * fault.amount);
    return nothing;
  },
  'primary-deaf': ({ network, primary }, fault, until) => {
    if (primary !== undefined) network.lose(gatewayHost(fault), hostOf(primary.name), until);
    return nothing;
  },
  'offer-next': (fleet) => {
    fleet.offer({ current: FIRST_PASSWORD, next: NEXT_PASSWORD });
    return nothing;
  },
  'change-password': (fleet, { amount }) => {
    if (fleet.plan.story === 'wrong') {
      fleet.changePasswords(['unknown']);
      return () => fleet.changePasswords([FIRST_PASSWORD]);
    }
    // Some services accept both for a while.
    fleet.changePasswords(amount < 0.5 ? [NEXT_PASSWORD] : [FIRST_PASSWORD, NEXT_PASSWORD]);
    return () => fleet.changePasswords([NEXT_PASSWORD]);
  },
  'offer-last': (fleet) => {
    // The former one goes when every gateway has had the time to read the new one.
    fleet.offer({ current: NEXT_PASSWORD, next: undefined });
    return nothing;
  },
};

/** Brings the faults of a plan about, each at its time. Returns the time when the last one is over. */
export function planFaults(fleet: Fleet, driver: SimulatedProcess): number {
  let last = 0;
  for (const fault of fleet.plan.faults) {
    const until = fault.at + fault.ms;
    last = Math.max(last, until);
    driver.deliver(fault.at, `fault ${fault.kind} of gateway ${fault.gateway}`, () => {
      const end = BEGINNINGS[fault.kind](fleet, fault, fleet.world.now + fault.ms);
      if (end !== undefined) driver.deliver(fault.ms, `end of ${fault.kind}`, end);
    });
  }
  return last;
}
