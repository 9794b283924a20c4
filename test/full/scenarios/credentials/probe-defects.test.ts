import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { expect, test } from '@jest/globals';
import { defaultSettings } from '../../../../src/simulator/settings.ts';
import { useFolders } from '../../../support/audit-log.ts';
import { closedAtEnd, closing } from '../../../support/closing.ts';
import { startGatewayProcess } from '../../../support/gateway-process.ts';
import { SOURCE_PROGRAM } from '../../../support/program.ts';
import { repository } from '../../../support/repository.ts';
import { authors, startSimulator } from '../../../support/simulator.ts';
import { until } from '../../../support/until.ts';

const folder = useFolders();
const NAME = 'submissions';

const SCRIPT = `
  import { Questions } from '${pathToFileURL(join(repository, 'src/upstream/questions.ts'))}';
  Questions.prototype.probe = async () => {
    throw new TypeError('a defect in a probe');
  };`;

test('a defect in a probe is logged and counted, and ends only the request that it was for', async () => {
  const simulator = await closedAtEnd(startSimulator(defaultSettings()));
  const file = join(await folder(), 'defect.mjs');
  await writeFile(file, SCRIPT);
  // A refused credential is tried each second.
  const settings = { digest: { attemptsWhenRefused: 60 } };
  const gateway = await startGatewayProcess(
    { [NAME]: { origin: simulator.deployments.submissions.origin, ca: simulator.ca, settings } },
    {},
    { runner: ['env', `NODE_OPTIONS=--import=${file}`], program: SOURCE_PROGRAM },
  );
  closing.push(() => gateway.close());
  const get = async (): Promise<number> => {
    const response = await fetch(`${gateway.origin}${authors}`);
    await response.arrayBuffer();
    return response.status;
  };
  const accept = (password: string): void =>
    simulator.set(NAME, { accounts: [{ username: 'demo-user', password, sites: ['demo'] }] });
  expect(await get()).toBe(200);
  accept('another');
  await Promise.all([get(), get(), get(), get()]);
  await until(async () => (await gateway.metric('digest_gateway_internal_errors_total')) > 0);
  const [line] = gateway.logged.filter(({ level }) => level === 'error');
  expect(line).toMatchObject({ msg: 'internal error; the gateway continues' });
  expect(String(line?.['cause'])).toMatch(/^TypeError: a defect in a probe\n {4}at /);
  accept('demo-api-key');
  await until(async () => (await get()) === 200);
});
