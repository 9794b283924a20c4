import { Counter, Gauge, Registry, type RegistryContentType } from 'prom-client';
import { DeploymentMetrics } from './deployment-metrics.ts';
import { collectProcessMetrics } from './process-metrics.ts';
import { SeriesHistogram, type WithSeries, withLatestTime, withSeries } from './series.ts';

/** How the values that several processes have for one series become one. `first`: that of the first process. */
export type MergeRule = 'sum' | 'min' | 'max' | 'first';

/** The gauge that outlives its process: a client was seen, whatever becomes of the worker that served it. */
export const CLIENT_LAST_SEEN = 'digest_gateway_client_last_seen_timestamp_seconds';

const PREFIX = 'digest_gateway_';
/** In seconds, 0.5 ms to 60 s. */
const DURATION_BUCKETS = [
  0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60,
];

export interface BuildInfo {
  version: string;
  node: string;
}

/**
 * Every instrument of the gateway, on its own registry. Requests use `deployment`. Each gauge has the rule by which
 * the values of several processes become one; counters and histograms add up.
 */
export class Metrics {
  readonly registry = new Registry<RegistryContentType>();
  readonly #deployments = new Map<string, DeploymentMetrics>();

  readonly requests = this.#seriesCounter(
    'requests_total',
    'Client requests by response; status is that of the response, for one that is not assigned its class (4xx), beyond 599 other; code is an error of the gateway, empty for a response of the upstream',
    ['deployment', 'operation', 'client', 'status', 'code'],
  );
  readonly requestResults = this.#seriesCounter(
    'request_results_total',
    'Client requests by result: failed is an error of the gateway with a 5xx status, also after the response has begun; the rest is ok. Both begin with 0',
    ['deployment', 'result'],
  );
  readonly requestDuration = this.#histogram(
    'request_duration_seconds',
    'From the head of the request to the end of its response',
    ['deployment', 'operation'],
  );
  readonly upstreamDuration = this.#histogram(
    'upstream_duration_seconds',
    'From when a request leaves the queue for the upstream to the end of its response, with every attempt',
    ['deployment'],
  );
  readonly queueWait = this.#histogram(
    'queue_wait_seconds',
    'Wait for a connection to the upstream, of requests that found all connections in use',
    ['deployment'],
  );
  readonly requestsInFlight = withSeries(
    this.#gauge('requests_in_flight', 'Requests in flight', ['deployment'], 'sum'),
  );
  readonly requestBytes = this.#seriesCounter(
    'request_bytes_total',
    'Body bytes received from clients, with the framing of their chunks',
    ['deployment'],
  );
  readonly responseBytes = this.#seriesCounter(
    'response_bytes_total',
    'Body bytes of responses sent to clients',
    ['deployment'],
  );
  readonly upstreamAttempts = this.#seriesCounter(
    'upstream_attempts_total',
    'Requests sent to the upstream, by result',
    ['deployment', 'result'],
  );
  readonly outcomes = this.#seriesCounter(
    'outcomes_total',
    'Responses of the upstream that belong to an outcome of the configuration, by outcome',
    ['deployment', 'outcome'],
  );
  readonly paused = this.#gauge(
    'paused',
    '1 while an outcome pauses the deployment or one of its credentials, 0 otherwise; only deployments with outcomes',
    ['deployment'],
    'max',
  );
  readonly retries = this.#seriesCounter(
    'retries_total',
    'Requests sent again without a response: stale_connection, connection_broke, next_address or next_egress (also after a refusal of the local address); denied: the budget was used up',
    ['deployment', 'reason'],
  );
  readonly workers = this.#gauge('workers', 'Processes that serve requests', [], 'first');
  readonly workerExits = this.#counter(
    'worker_exits_total',
    'Workers that ended by themselves, gave no sign of life and were replaced, or could not be started',
    ['reason'],
  );
  readonly challenges = this.#seriesCounter('challenges_total', 'Challenges obtained from the upstream', [
    'deployment',
    'reason',
  ]);
  readonly nonceAge = this.#gauge('nonce_age_seconds', 'Age of the nonce in use', ['deployment'], 'max');
  readonly nonceLifetime = this.#gauge(
    'nonce_lifetime_seconds',
    'The youngest age at which the upstream refused a nonce for its age',
    ['deployment'],
    'min',
  );
  readonly noncePolicy = this.#gauge(
    'nonce_policy',
    '1 for the nonce reuse policy in use',
    ['deployment', 'policy'],
    'max',
  );
  readonly noncePolicySteps = this.#counter(
    'nonce_policy_steps_total',
    'Steps to a stricter nonce reuse policy that this process learned; policy is the new one',
    ['deployment', 'policy'],
  );
  readonly credentialState = this.#gauge(
    'credential_state',
    '1 for the state of a credential version: in-use, candidate (to be tried), waiting (the next one, which the upstream does not accept yet), fallback or refused (by the upstream)',
    ['deployment', 'credential', 'version', 'state'],
    'max',
  );
  readonly credentialRotations = this.#counter(
    'credential_rotations_total',
    'New credential versions that were tried: promoted, refused, or waiting (the next one, not accepted yet)',
    ['deployment', 'credential', 'result'],
  );
  readonly circuitState = this.#gauge(
    'circuit_state',
    '1 while requests are kept away from the upstream, 0.5 while one tries whether it is back, 0 otherwise; circuit is the address, or "credential" for one that the upstream refuses',
    ['deployment', 'circuit'],
    'max',
  );
  readonly upstreamHealth = this.#gauge(
    'upstream_health',
    '1 for the state of an address of the upstream: unknown, healthy or failing',
    ['deployment', 'address', 'state'],
    'max',
  );
  readonly upstreamConnections = this.#gauge(
    'upstream_connections',
    'Open connections (connected), idle ones among them (free); requests on them (running) or waiting for one (pending); the most requests on them at a time (limit)',
    ['deployment', 'state'],
    'sum',
  );
  readonly upstreamCertificateExpiry = this.#gauge(
    'upstream_certificate_expiry_timestamp_seconds',
    'Expiry of the latest certificate of the upstream, in Unix time',
    ['deployment'],
    'min',
  );
  readonly egressAddressPresent = this.#gauge(
    'egress_address_present',
    'Whether this host has the address of egress.localAddress, or one of several',
    ['deployment'],
    'min',
  );
  readonly egressAddressState = this.#gauge(
    'egress_address_state',
    '1 for the state of each of several local addresses: in-use, standby, refused by the upstream, or missing on this host; 0 for its other states',
    ['deployment', 'egress', 'state'],
    'max',
  );
  readonly storeUp = this.#gauge('store_up', 'Whether the shared store (Redis) is reachable', [], 'min');
  readonly storeErrors = this.#counter('store_errors_total', 'Calls to the store that failed', ['operation']);
  readonly storeRejections = this.#counter(
    'store_rejected_total',
    'Values in the store that are not used: malformed, without a valid signature (forged), or expired',
    ['kind', 'reason'],
  );
  readonly identificationRefusals = this.#counter(
    'identification_refusals_total',
    'Requests that identify no configured client, by the kind of proof that they sent: none, api-key, token, certificate, or malformed',
    ['proof'],
  );
  readonly connectionsRefused = this.#counter(
    'connections_refused_total',
    'Client connections refused by a limit, by limit and listener',
    ['limit', 'listener'],
  );
  readonly proxyHeadersRefused = this.#counter(
    'proxy_headers_refused_total',
    'Connections of listen.proxyProtocol that were closed for their PROXY header, by reason (malformed, unsupported, checksum, incomplete, timeout) and listener',
    ['reason', 'listener'],
  );
  readonly crlExpiry = this.#gauge(
    'listen_crl_expiry_timestamp_seconds',
    'Expiry of the first list in listen.tls.crlFile, in Unix time; 0 without one. After it, certificates of its authority are refused',
    ['listener'],
    'min',
  );
  readonly listenCertificateExpiry = this.#gauge(
    'listen_certificate_expiry_timestamp_seconds',
    'Expiry of the certificate of a listener of the data plane, in Unix time; 0 without TLS',
    ['listener'],
    'min',
  );
  readonly clientKeyExpiry = this.#gauge(
    'client_key_expiry_timestamp_seconds',
    'End of an API key of a client, in Unix time; only keys with an end. key is its note, or the first 8 digits of its hash',
    ['client', 'key'],
    'min',
  );
  readonly clientRuleEnd = this.#gauge(
    'client_rule_end_timestamp_seconds',
    'End of a rule of a client, in Unix time; only rules with an end. rule is its place, such as allow[0]',
    ['client', 'rule'],
    'min',
  );
  readonly clientLastSeen = withLatestTime(
    this.#gauge(
      CLIENT_LAST_SEEN.slice(PREFIX.length),
      'When the latest request of a client ended, in Unix time; only clients with a request since the start',
      ['client'],
      'max',
    ),
  );
  readonly requestFieldsDropped = this.#counter(
    'request_fields_dropped_total',
    'Header fields of requests that did not reach the upstream, since the client is restricted and they are not on the list of allowed ones',
    ['deployment', 'client'],
  );
  readonly wouldRefuse = this.#counter(
    'would_refuse_total',
    'Requests that the rules of their client would refuse if they were not only observed (clients[].mode), by the code of the refusal, whatever became of the request',
    ['client', 'code'],
  );
  readonly rateLimited = this.#counter('rate_limited_total', 'Requests refused by a limit', ['client']);
  readonly auditRecords = this.#counter('audit_records_total', 'Records accepted for the audit log', []);
  readonly auditFailures = this.#counter(
    'audit_failures_total',
    'Audit records not written or late, and outages of the files of the log',
    ['sink'],
  );
  readonly auditFailing = this.#gauge(
    'audit_failing',
    '1 while no record can be written to the files of the log, 0 otherwise',
    ['sink'],
    'max',
  );
  readonly auditUnsigned = this.#gauge(
    'audit_unsigned_seconds',
    'How long the oldest audit record that no signed head covers has waited for one; 0: all are covered',
    [],
    'max',
  );
  readonly accessLogLost = this.#counter(
    'access_log_lost_lines_total',
    'Lines of the access log that could not be written to its file or stdout in time',
    [],
  );
  readonly auditSinkLagSeconds = this.#gauge(
    'audit_sink_lag_seconds',
    'Age of the oldest audit record, or closed segment, that a sink has not confirmed; 0: there is none',
    ['sink'],
    'max',
  );
  readonly auditSinkLagRecords = this.#gauge(
    'audit_sink_lag_records',
    'Audit records in the files that a sink has not confirmed',
    ['sink'],
    'sum',
  );
  readonly auditSinkDelivered = this.#counter(
    'audit_sink_records_total',
    'Audit records that a sink has confirmed; one that was sent again counts again',
    ['sink'],
  );
  readonly auditSinkFailures = this.#counter(
    'audit_sink_failures_total',
    'Deliveries to a sink that failed; they are tried again',
    ['sink'],
  );
  readonly auditSinkSkipped = this.#counter(
    'audit_sink_skipped_records_total',
    'Audit records that never reach a sink: removed before they were sent, without a valid seal, or refused by it',
    ['sink'],
  );
  readonly auditWitnessConflict = this.#gauge(
    'audit_witness_conflict',
    '1: a log does not continue the one that its witness has cosigned; 0: it is',
    [],
    'max',
  );
  readonly signIns = this.#counter(
    'sign_ins_total',
    'Sign-ins to the console, by result: ok, or the code of the error; token-wrong and token-delayed are those of the form for a token',
    ['result'],
  );
  readonly sessions = this.#gauge('sessions', 'Open sessions of the console', [], 'first');
  readonly internalErrors = this.#counter(
    'internal_errors_total',
    'Errors of the gateway itself: requests that ended with internal-error, and errors beside any request',
    [],
  );
  readonly configReloads = this.#counter(
    'config_reloads_total',
    'Reloads of the configuration',
    ['result'],
    'first',
  );
  readonly configLastReload = this.#gauge(
    'config_last_reload_success_timestamp_seconds',
    'Time when the running configuration was loaded, in Unix time',
    [],
    'first',
  );

  readonly configLastReloadSuccessful = this.#gauge(
    'config_last_reload_successful',
    '1; 0 after the configuration was refused, until a reload succeeds, and while a credential cannot be read',
    [],
    'first',
  );

  /** `withLoop`: measures the delays of the event loop, too. */
  constructor(build: BuildInfo, { withLoop = true } = {}) {
    collectProcessMetrics(this.registry, withLoop);
    // Prometheus sees no increase in a counter that first appears with 1.
    for (const result of ['success', 'failure']) this.configReloads.inc({ result }, 0);
    for (const reason of ['crash', 'hang', 'start']) this.workerExits.inc({ reason }, 0);
    this.#gauge(
      'build_info',
      'Always 1, with version and runtime as labels',
      ['version', 'node'],
      'first',
    ).set({ version: build.version, node: build.node }, 1);
  }

  /** Returns the series of a deployment that requests change; the empty name is for requests without one. */
  deployment(name: string): DeploymentMetrics {
    const known = this.#deployments.get(name);
    if (known !== undefined) return known;
    const deployment = new DeploymentMetrics(this, name);
    this.#deployments.set(name, deployment);
    return deployment;
  }

  #described<T extends string>(name: string, help: string, labelNames: T[], aggregator: MergeRule) {
    return { name: PREFIX + name, help, labelNames, registers: [this.registry], aggregator };
  }

  #counter<T extends string>(
    name: string,
    help: string,
    labelNames: T[],
    aggregator: MergeRule = 'sum',
  ): Counter<T> {
    return new Counter(this.#described(name, help, labelNames, aggregator));
  }

  #seriesCounter<T extends string>(name: string, help: string, labelNames: T[]): WithSeries<T> {
    return withSeries(this.#counter(name, help, labelNames));
  }

  #gauge<T extends string>(name: string, help: string, labelNames: T[], aggregator: MergeRule): Gauge<T> {
    const gauge = new Gauge(this.#described(name, help, labelNames, aggregator));
    // prom-client gives a gauge without labels the value 0, which would be the minimum of all processes.
    if (labelNames.length === 0) gauge.remove();
    return gauge;
  }

  #histogram<T extends string>(name: string, help: string, labelNames: T[]): SeriesHistogram<T> {
    const described = this.#described(name, help, labelNames, 'sum');
    return new SeriesHistogram({ ...described, buckets: DURATION_BUCKETS });
  }
}
