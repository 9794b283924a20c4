import { monotonicClock } from '../../src/base/clock.ts';
import { CONSOLE_PACE, type ConsolePace } from '../../src/control/console.ts';
import { type ControlOptions, ControlPlane } from '../../src/control/control.ts';
import { ControlError } from '../../src/control/control-error.ts';
import { MergedMetrics, type MetricsFormat } from '../../src/control/merged-metrics.ts';
import type { Queries } from '../../src/control/queries.ts';
import type { AuditLines, ConsoleSource } from '../../src/control/snapshot.ts';
import type { AuditState, DeploymentState, GatewayState } from '../../src/control/state.ts';
import type { ReadMetrics } from '../../src/control/totals.ts';
import type { AuditLine, DeploymentSettings, ErrorState } from '../../src/control/view.ts';
import { Metrics } from '../../src/metrics/metrics.ts';

const DAY_MS = 86_400_000;

/** A deployment with nothing wrong. */
export function healthyDeployment(name: string): DeploymentState {
  const accepted = { credential: name, serves: true, rejected: false };
  return {
    name,
    origin: `https://${name}.example.org`,
    serves: true,
    connections: { connected: 3, free: 2, running: 1, pending: 0, limit: 64 },
    nonce: { policy: 'shared', age: 42, lifetime: 300 },
    credentials: [
      {
        ...accepted,
        version: '3',
        state: 'in-use',
        inUse: true,
        role: 'current',
        changedAt: Date.now() - 12.5 * DAY_MS,
      },
      { ...accepted, version: '4', state: 'candidate', inUse: false, role: 'next' },
    ],
    addresses: [
      {
        address: `${name}.example.org`,
        health: 'healthy',
        age: 42,
        circuit: 'closed',
        reason: '',
        exchanges: 0,
      },
    ],
    outcomes: [],
    pauses: [],
    egress: [],
    tls: { protocol: 'TLSv1.3', chain: [certificate(`${name}.example.org`), certificate('Example CA')] },
  };
}

/** The same with an address that fails for this reason. */
export function failingDeployment(name: string, reason: string): DeploymentState {
  const healthy = healthyDeployment(name);
  const addresses = healthy.addresses.map((each) => ({ ...each, health: 'failing' as const, reason }));
  return { ...healthy, serves: false, addresses };
}

/** The same with a certificate that expires within this time, in milliseconds. */
export function expiring(deployment: DeploymentState, ms: number): DeploymentState {
  const own = { ...certificate(deployment.name), expiresAt: Date.now() + ms };
  return { ...deployment, tls: { protocol: 'TLSv1.3', chain: [own] } };
}

function certificate(subject: string) {
  return {
    subject: `CN=${subject}`,
    issuer: 'O=Example\nCN=Example CA',
    validFrom: Date.now() - 275.5 * DAY_MS,
    expiresAt: Date.now() + 89.5 * DAY_MS,
  };
}

const SETTINGS: DeploymentSettings = {
  connections: 64,
  timeouts: { connect: 5_000, response: 60_000, idle: 30_000, total: 120_000 },
  body: { replayUpTo: 2 ** 20, max: 100 * 2 ** 20, minRate: 240 },
  retry: { attempts: 1 },
  limits: { rate: { perSecond: 50, burst: 100 }, concurrent: 20, daily: undefined },
  clients: [
    {
      client: 'reporting',
      limits: { rate: { perSecond: 10, burst: 10 }, concurrent: undefined, daily: 100_000 },
    },
  ],
};

/** Metrics that a test counts in, and what the control plane reads of them. */
export function countedMetrics() {
  const metrics = new Metrics({ version: 'test', node: 'v0' });
  const merged = new MergedMetrics(metrics.registry);
  const values: ReadMetrics = (names) => merged.values(names);
  return { metrics, values, scrape: async (format: MetricsFormat) => merged.text(format) };
}

/** Changes of a test to the source of a console. */
export interface SourceChange extends Partial<Omit<ConsoleSource, 'state'>> {
  readonly state?: () => Partial<GatewayState> | Promise<Partial<GatewayState>>;
  readonly audit?: HandWrittenAudit;
}

/** The state of an empty gateway with nothing wrong. */
export const WELL: GatewayState = {
  worker: 0,
  stage: 'serving',
  serves: true,
  storeUp: null,
  storeFailing: [],
  audit: null,
  processes: [],
  listeners: [{ address: '127.0.0.1:8080', connections: 2, tls: 'none' }],
  deployments: [],
  errors: [],
  workers: null,
  configuration: { refused: null, unreadable: null, needsRestart: [] },
  sinks: [],
};

/** The source of a console of an empty gateway, with the changes of a test. */
export function sourceWith(change: SourceChange = {}): ConsoleSource {
  const { state, audit, ...others } = change;
  return {
    values: countedMetrics().values,
    version: '1.2.3',
    node: 'v26.0.0',
    tokenAsked: false,
    startedAt: Date.now(),
    configuredAt: () => Date.now(),
    state: async () => ({ ...WELL, audit: audit?.state() ?? null, ...(await state?.()) }),
    clients: () => [],
    rules: () => [],
    settings: () => SETTINGS,
    auditLines: (position) => audit?.since(position) ?? { lines: [], position: 0 },
    ...others,
  };
}

/** Of a log with two records and no fault. */
const SOUND: AuditState = {
  records: 2,
  failures: 0,
  failing: [],
  retentionHeld: [],
  integrityErrors: [],
};

/** An audit log that a test writes by hand. */
export class HandWrittenAudit {
  readonly #lines: AuditLine[] = [];
  readonly state: () => AuditState;

  constructor(state: () => AuditState = () => SOUND) {
    this.state = state;
  }

  write(...changes: Partial<AuditLine>[]): void {
    for (const change of changes) {
      const seq = this.#lines.length + 1;
      this.#lines.push({
        ...LINE,
        seq,
        requestId: `request-${seq}`,
        time: new Date().toISOString(),
        ...change,
      });
    }
  }

  since(position: number): AuditLines {
    return { lines: this.#lines.slice(position), position: this.#lines.length };
  }
}

const LINE: AuditLine = {
  seq: 0,
  time: '',
  kind: 'access',
  client: 'reporting',
  deployment: 'submissions',
  site: 'journal-a',
  operation: 'authors-by-submission-id',
  method: 'GET',
  path: '/api/manuscripts/v2/submissions/full/contributors/authors/submissionids',
  status: 200,
  code: '',
  requestId: '',
};

export const recentError: ErrorState = {
  deployment: 'abstracts',
  code: 'upstream-unreachable',
  detail: 'The upstream refuses connections. Check baseUrl, and whether it runs.',
  count: 12,
  lastAt: Date.now(),
  requestId: 'request-of-the-error',
};

export const NO_QUERIES: Queries = {
  explain: () => {
    throw new ControlError('client-unknown');
  },
  client: async () => undefined,
  configuration: async () => 'listen: {}\n',
  flightRecord: async () => '{"format":1}\n',
};

export interface RunningControl {
  readonly origin: string;
  close(): Promise<void>;
}

export interface ControlChange extends Partial<Omit<ControlOptions, 'pace' | 'console' | 'tokens'>> {
  readonly console?: SourceChange;
  /** SHA-256 of the tokens, in hex; left out: none is required. */
  readonly tokenSha256?: string | undefined;
  readonly readTokenSha256?: string | undefined;
  readonly pace?: Partial<ConsolePace>;
}

/** A control plane by itself on a free port of loopback. */
export async function startControl({
  tokenSha256,
  readTokenSha256,
  ...change
}: ControlChange = {}): Promise<RunningControl> {
  const console = sourceWith({ tokenAsked: tokenSha256 !== undefined, ...change.console });
  const control = new ControlPlane({
    ...countedMetrics(),
    tokens: tokenSha256 === undefined ? undefined : { full: tokenSha256, read: readTokenSha256 },
    oidc: undefined,
    fourEyes: undefined,
    session: { idle: 1_800_000, life: 43_200_000, max: 1_000 },
    record: () => undefined,
    onFailure: () => undefined,
    actions: undefined,
    queries: NO_QUERIES,
    clock: monotonicClock,
    live: () => true,
    reload: async () => ({ result: 'success', changed: [], needsRestart: [], warnings: [] }),
    commands: {
      perform: async (request) => ({
        result: 'Done.',
        notes: [],
        at: { version: ('version' in request && request.version) || '2', deployments: ['d'] },
      }),
    },
    offer: () => ({ version: '1.2.3', listen: [], deployments: [] }),
    consoleFolder: '',
    audit: { log: undefined, traceUrl: undefined },
    onError: (error) => {
      throw error;
    },
    ...change,
    console,
    pace: { ...CONSOLE_PACE, ...change.pace },
  });
  const { port } = await control.listen({ address: '127.0.0.1', port: 0, socketMode: '0660' });
  return { origin: `http://127.0.0.1:${port}`, close: () => control.close() };
}
