import { performance } from 'node:perf_hooks';
import { decide } from '../../src/policy/decide.ts';
import {
  AUTHORS,
  type ClientName,
  clientOf,
  type DeploymentName,
  REPORTS,
  rulesOf,
} from '../../test/policy/world.ts';

/** Time per decision, for what clients ask most. `node lab/bench/policy.ts` */

const headers = [
  'Host',
  'gateway.internal',
  'User-Agent',
  'curl/8',
  'Accept',
  '*/*',
  'Accept-Encoding',
  'gzip',
];
const query = 'ids=%27DEMO-2026-0001%27&site_name=journal-a&external_id=123';
const ROUNDS = 7;
const CALLS = 200_000;

const cases: [string, ClientName, DeploymentName, string][] = [
  ['no rules', 'anonymous', 'bare', `/bare/x?${query}`],
  ['listed operation, anybody', 'anonymous', 'open', `${AUTHORS}?${query}`],
  ['listed operation, restricted client', 'reporting', 'strict', `${AUTHORS}?${query}`],
  ['template, restricted client, site added', 'reporting', 'inject', `${REPORTS}/7`],
  ['template, anybody', 'anonymous', 'open', `${REPORTS}/7?site_name=journal-a`],
  ['unlisted operation, anybody', 'anonymous', 'open', `/api/v3/other/thing?${query}`],
  ['limit alone', 'limited', 'bare', `/bare/x?${query}`],
  ['upstream shared with another deployment', 'anonymous', 'v1', `/v1/x?${query}`],
];

for (const [title, client, deployment, target] of cases) {
  const [rules, who] = [rulesOf(deployment), clientOf(client)];
  const request = { method: 'GET', target, headers, hasBody: false };
  const rounds = Array.from({ length: ROUNDS }, () => {
    const started = performance.now();
    for (let call = 0; call < CALLS; call += 1) decide(rules, who, request, 0);
    return ((performance.now() - started) * 1e6) / CALLS;
  });
  const fastest = Math.min(...rounds);
  console.log(`${title.padEnd(42)} ${fastest.toFixed(0).padStart(6)} ns`);
}
