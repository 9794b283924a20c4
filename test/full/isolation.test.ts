import { expect, test } from '@jest/globals';
import { closing } from '../support/closing.ts';
import { type RunningGateway, startGateway } from '../support/gateway.ts';
import { startArrivals } from '../support/load.ts';
import { until } from '../support/until.ts';
import {
  faultyDeployments,
  HEALTHY,
  startFaultyUpstreams,
  UPSTREAM_FAULTS,
  type UpstreamFault,
} from './faulty-upstreams.ts';

/** Requests of the healthy deployment while the other is faulty. */
const REQUESTS = 50;
/** Requests that the other one has at least. */
const FAULTY_REQUESTS = 10;

/** The status of a response whose body came whole. */
async function ask({ origin }: RunningGateway, target: string): Promise<number> {
  const response = await fetch(`${origin}${target}`);
  for await (const _ of response.body ?? []);
  return response.status;
}

// How long its requests take meanwhile: lab/bench/isolation.ts.
test.each(Object.entries<UpstreamFault>(UPSTREAM_FAULTS))(
  'a deployment serves every request while another one is faulty: %s',
  async (name, { target, perSecond, underWay, outcomes }) => {
    const upstreams = await startFaultyUpstreams();
    closing.push(() => upstreams[Symbol.asyncDispose]());
    const gateway = await startGateway(faultyDeployments(upstreams), {
      listen: { port: 0, limits: { connectionsPerAddress: 1_000 } },
    });
    closing.push(() => gateway.close());
    for (const each of [HEALTHY, name]) expect(await ask(gateway, `/${each}/echo`)).toBe(200);
    await upstreams.beginFaults();
    const faulty = startArrivals(perSecond, () => ask(gateway, `/${name}${target}`), underWay);
    const served: number[] = [];
    for (let count = 0; count < REQUESTS; count += 1) served.push(await ask(gateway, `/${HEALTHY}/echo`));
    await until(() => faulty.answered >= FAULTY_REQUESTS);
    served.push(await ask(gateway, `/${HEALTHY}/echo`));
    const seen = Object.keys((await faulty.stop()).outcomes);
    expect(served).toEqual(Array.from({ length: REQUESTS + 1 }, () => 200));
    expect(seen.filter((outcome) => !outcomes.test(outcome))).toEqual([]);
  },
);
