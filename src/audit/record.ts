/** The data of a request when its response is about to leave. */
export interface AccessFacts {
  readonly requestId: string;
  /** Id in the configuration. */
  readonly client: string;
  /** Note or first digits of the hash of the client's API key; empty: it presented none. */
  readonly key: string;
  readonly address: string;
  readonly deployment: string;
  readonly site: string;
  readonly operation: string;
  readonly method: string;
  /** The request target byte for byte; empty: it could not be parsed. */
  readonly target: string;
  /** Status of the response to the client. */
  readonly status: number;
  /** Code of an error of the gateway; empty: the response is the upstream's. */
  readonly code: string;
  /** Undefined: the request is not traced, or its trace is not sampled. */
  readonly traceId?: string | undefined;
  /** Undefined: the request did not reach the upstream. */
  readonly upstream: UpstreamFacts | undefined;
  /** Undefined: none was used. */
  readonly credential: CredentialName | undefined;
  /** The client's rule that names the credential, such as `allow[0]`; empty: it is that of the site or deployment. */
  readonly credentialRule: string;
  /** Code with which the client's rules would refuse the request, which are only observed; empty: they allow it. */
  readonly wouldRefuse: string;
  /** How the response ends if it is sent whole; undefined: not all of it is there yet, so an outcome record follows. */
  readonly end?: ResponseEnd | undefined;
}

/** The end of a response. */
export interface ResponseEnd {
  /** Name of the outcome of the upstream's response; empty: there is none. */
  readonly outcome: string;
  /** Bytes of the body from the client, and of the upstream's body for the client. */
  readonly bytes: { readonly in: number; readonly out: number };
  /** Since the arrival of the request. */
  readonly durationMs: number;
}

export interface UpstreamFacts {
  /** 0: there was no response. */
  readonly status: number;
  /** Requests that were sent to the upstream. */
  readonly attempts: number;
  /** True: the upstream sent a challenge first. */
  readonly challenged: boolean;
  /** From the first attempt to the head of the response. */
  readonly durationMs: number;
  /** Of this: waiting for a place, and for new connections; attempts before the last one, such as that of a challenge. */
  readonly queueMs: number;
  readonly connectMs: number;
  readonly earlierMs: number;
  /** Host and port. */
  readonly address: string;
  /** The local address, where several are configured; otherwise empty. */
  readonly egress: string;
}

interface CredentialName {
  readonly name: string;
  readonly version: string;
}

/** The data of a request when its response has ended. */
export interface OutcomeFacts extends ResponseEnd {
  /** Number of its access record. */
  readonly access: number;
  readonly requestId: string;
  readonly status: number;
  readonly code: string;
}

/** Details of an event of the gateway itself: names and numbers only. Undefined values are left out. */
export type AdminDetails = Readonly<
  Record<string, string | number | boolean | readonly string[] | undefined>
>;

/** Address and target of a request as they are recorded. */
interface RecordedRequest extends RecordedTarget {
  readonly address: string;
}

/** Strings without characters to escape (RFC 8259 §7). This test is faster than JSON.stringify. */
const PLAIN = /^[ !#-[\]-~]*$/;
/** Texts of one kind that are kept. */
const MOST_NAMES = 4096;

/** Texts by the name that they are made of, for names that recur: those of the configuration, and addresses. */
class Texts {
  readonly #make: (name: string) => string;
  readonly #known = new Map<string, string>();

  constructor(make: (name: string) => string) {
    this.#make = make;
  }

  of(name: string): string {
    const known = this.#known.get(name);
    if (known !== undefined) return known;
    if (this.#known.size >= MOST_NAMES) this.#known.clear();
    const text = this.#make(name);
    this.#known.set(name, text);
    return text;
  }
}

/** The member of a record with this name, by its value. */
function member(name: string): Texts {
  // Joined, the text is in one piece; each piece of a record takes memory of its own.
  return new Texts((value) => [',"', name, '":', json(value)].join(''));
}

/**
 * Makes the text of records, from `kind` to the end; `recordLine` adds number and time when the place in the log is
 * known. Every string is escaped as JSON, so nothing that a client sends can end a line. JSON.stringify of a whole record
 * would take three times as long.
 */
export class RecordText {
  readonly #replica: string;
  readonly #replicaField: string;
  readonly #client = member('client');
  readonly #address = member('address');
  readonly #deployment = member('deployment');
  readonly #site = member('site');
  readonly #operation = member('operation');
  readonly #method = member('method');
  readonly #code = member('code');
  readonly #outcome = member('outcome');
  readonly #egress = member('egress');
  readonly #key = member('key');
  readonly #credentialRule = member('credentialRule');
  readonly #wouldRefuse = member('wouldRefuse');
  readonly #version = member('version');
  readonly #credentialName = new Texts((name) => [',"credential":{"name":', json(name)].join(''));
  readonly #parameter = new Texts((name) => [json(name), ':'].join(''));

  constructor(replica: string) {
    this.#replica = replica;
    this.#replicaField = `,"replica":${json(replica)}`;
  }

  access(facts: AccessFacts, { address, path, parameters, cut }: RecordedRequest): string {
    const { key, status, traceId, upstream, credential, credentialRule, wouldRefuse, end } = facts;
    return (
      `"kind":"access","requestId":${json(facts.requestId)}${this.#replicaField}${this.#client.of(facts.client)}` +
      `${this.#address.of(address)}${this.#deployment.of(facts.deployment)}${this.#site.of(facts.site)}` +
      `${this.#operation.of(facts.operation)}${this.#method.of(facts.method)},"path":${json(path)}` +
      `,"parameters":${this.#parameters(parameters)}${cut ? ',"cut":true' : ''},"status":${status}` +
      `${this.#code.of(facts.code)}${end === undefined ? '' : this.#end(end)}${traceId === undefined ? '' : `,"traceId":${json(traceId)}`}${upstream === undefined ? '' : this.#upstream(upstream)}` +
      `${credential === undefined ? '' : this.#credential(credential)}${key === '' ? '' : this.#key.of(key)}` +
      `${credentialRule === '' ? '' : this.#credentialRule.of(credentialRule)}` +
      `${wouldRefuse === '' ? '' : this.#wouldRefuse.of(wouldRefuse)}}`
    );
  }

  outcome(facts: OutcomeFacts): string {
    const { access, requestId, status, code } = facts;
    return (
      `"kind":"outcome","requestId":${json(requestId)}${this.#replicaField},"access":${access}` +
      `,"status":${status}${this.#code.of(code)}${this.#end(facts)}}`
    );
  }

  admin(event: string, details: AdminDetails): string {
    return JSON.stringify({ kind: 'admin', replica: this.#replica, event, ...details }).slice(1);
  }

  #end({ outcome, bytes, durationMs }: ResponseEnd): string {
    const named = outcome === '' ? '' : this.#outcome.of(outcome);
    return `${named},"bytes":{"in":${bytes.in},"out":${bytes.out}},"durationMs":${tenths(durationMs)}`;
  }

  #upstream(facts: UpstreamFacts): string {
    const { status, attempts, challenged, durationMs, queueMs, connectMs, earlierMs, address, egress } =
      facts;
    const from = egress === '' ? '' : this.#egress.of(egress);
    const waits = `${partMs('queueMs', queueMs)}${partMs('connectMs', connectMs)}${partMs('earlierMs', earlierMs)}`;
    return `,"upstream":{"status":${status},"attempts":${attempts},"challenged":${challenged},"durationMs":${tenths(durationMs)}${waits}${this.#address.of(address)}${from}}`;
  }

  /** Picks the fields: the object may have others that must not be recorded. */
  #credential({ name, version }: CredentialName): string {
    return `${this.#credentialName.of(name)}${this.#version.of(version)}}`;
  }

  #parameters(parameters: RecordedParameters): string {
    let text = '{';
    for (const [name, value] of parameters) {
      text += `${text === '{' ? '' : ','}${this.#parameter.of(name)}${json(value)}`;
    }
    return `${text}}`;
  }
}

/** A whole line: the record with its number and time. */
export function recordLine(seq: number, time: string, record: string): string {
  return `{"seq":${seq},"time":"${time}",${record}\n`;
}

/** A part of a duration; most requests have none that is long enough. */
function partMs(name: string, milliseconds: number): string {
  const ms = tenths(milliseconds);
  return ms > 0 ? `,"${name}":${ms}` : '';
}

function tenths(milliseconds: number): number {
  return Math.round(milliseconds * 10) / 10;
}

function json(value: string | readonly string[] | null): string {
  return typeof value === 'string' && PLAIN.test(value) ? `"${value}"` : JSON.stringify(value);
}

/** Bounds for the parts of a record that a client chooses. Parameters: those by name only, and values of one name. */
const MOST_PARAMETERS = 32;
const LONGEST_NAME = 64;
const LONGEST_VALUE = 512;
const LONGEST_PATH = 2048;

/** Parameters by name, with the value or values; null: only the name is recorded. */
export type RecordedParameters = Map<string, string | string[] | null>;

interface RecordedTarget {
  readonly path: string;
  readonly parameters: RecordedParameters;
  /** True: a part was too long, or there were too many parameters. */
  readonly cut: boolean;
}

/**
 * A request target as it is recorded: the path as it was sent, and the parameters of the query. `byValue`: names of the
 * parameters that are recorded with their values.
 */
export function recordedTarget(target: string, byValue: ReadonlySet<string>): RecordedTarget {
  const question = target.indexOf('?');
  const path = question === -1 ? target : target.slice(0, question);
  const parameters: RecordedParameters = new Map();
  const cut = question !== -1 && collect(target, question + 1, byValue, parameters);
  if (path.length <= LONGEST_PATH) return { path, parameters, cut };
  return { path: path.slice(0, LONGEST_PATH), parameters, cut: true };
}

/** Reads the query from `start` on into `into`; returns true if a part of it was left out. */
function collect(
  target: string,
  start: number,
  byValue: ReadonlySet<string>,
  into: RecordedParameters,
): boolean {
  let cut = false;
  let count = 0;
  // Looked for once: from each parameter anew, a long query without one would take quadratic time.
  let nextEquals = -1;
  for (let from = start; from < target.length; ) {
    const end = indexOrEnd(target, '&', from);
    if (nextEquals < from) nextEquals = indexOrEnd(target, '=', from);
    const equals = Math.min(nextEquals, end);
    // Each character may be encoded.
    const whole = decoded(target.slice(from, Math.min(equals, from + 3 * LONGEST_NAME)));
    const name = whole.slice(0, LONGEST_NAME);
    if (byValue.has(name)) {
      const value = decoded(target.slice(equals + 1, Math.min(end, equals + 1 + LONGEST_VALUE)));
      const isAdded = add(into, name, value);
      cut ||= !isAdded || end - equals - 1 > LONGEST_VALUE;
    } else {
      // Those that are recorded by value are found behind any number of others.
      count += 1;
      if (count > MOST_PARAMETERS) cut = true;
      else if (!into.has(name)) into.set(name, null);
    }
    cut ||= whole.length > LONGEST_NAME || equals - from > 3 * LONGEST_NAME;
    from = end + 1;
  }
  return cut;
}

/** Returns false if there are too many: the last one, which many servers use, then takes the place of the one before. */
function add(into: RecordedParameters, name: string, value: string): boolean {
  const before = into.get(name);
  if (before === undefined || before === null) into.set(name, value);
  else if (typeof before === 'string') into.set(name, [before, value]);
  else if (before.length < MOST_PARAMETERS) before.push(value);
  else {
    before[MOST_PARAMETERS - 1] = value;
    return false;
  }
  return true;
}

function indexOrEnd(text: string, mark: string, from: number): number {
  const index = text.indexOf(mark, from);
  return index === -1 ? text.length : index;
}

/** Percent-encoded UTF-8 (RFC 3629 §4). */
const ENCODED =
  /(?:%[0-7][\da-f]|%(?:c[2-9a-f]|d[\da-f])%[89ab][\da-f]|%(?:e0%[ab]|e[1-9a-cef]%[89ab]|ed%[89])[\da-f]%[89ab][\da-f]|%(?:f0%[9ab]|f[1-3]%[89ab]|f4%8)[\da-f](?:%[89ab][\da-f]){2})+/gi;

/**
 * Percent-decodes. What is no UTF-8 stays as it was sent, and only that: an identifier beside it, which many servers
 * read, would not be found otherwise.
 */
function decoded(text: string): string {
  if (!text.includes('%')) return text;
  try {
    return decodeURIComponent(text);
  } catch {
    return text.replace(ENCODED, decodeURIComponent);
  }
}
