/** What is known of a request when its answer is about to leave. */
export interface AccessFacts {
  readonly requestId: string;
  /** Name in the configuration. */
  readonly client: string;
  readonly address: string;
  readonly deployment: string;
  readonly site: string;
  readonly operation: string;
  readonly method: string;
  /** The target byte for byte; empty: it could not be taken apart. */
  readonly target: string;
  /** What the client is about to see. */
  readonly status: number;
  /** An error of the gateway itself; empty: the upstream answered. */
  readonly code: string;
  /** Undefined: the request did not reach the upstream. */
  readonly upstream: UpstreamFacts | undefined;
  /** Undefined: none was used. */
  readonly credential: CredentialName | undefined;
}

export interface UpstreamFacts {
  /** 0: there was no answer. */
  readonly status: number;
  /** Requests that it took. */
  readonly attempts: number;
  /** Whether the upstream asked for authentication first. */
  readonly challenged: boolean;
  /** From the first attempt to the head of the answer. */
  readonly durationMs: number;
  /** Host and port. */
  readonly address: string;
}

export interface CredentialName {
  readonly name: string;
  readonly version: string;
}

/** What is known of a request when its answer is over. */
export interface OutcomeFacts {
  /** Number of its access record. */
  readonly access: number;
  readonly requestId: string;
  readonly status: number;
  readonly code: string;
  readonly bytes: { readonly in: number; readonly out: number };
  readonly durationMs: number;
}

/** Something that happened to the gateway itself; names and numbers only. What is undefined is left out. */
export type AdminDetails = Readonly<
  Record<string, string | number | boolean | readonly string[] | undefined>
>;

/** What a record shows of a request's sender and target. */
export interface Shown extends RecordedTarget {
  readonly address: string;
}

/** Most strings are such: nothing in them has to be escaped (RFC 8259 §7), and JSON.stringify takes longer to see it. */
const PLAIN = /^[ !#-[\]-~]*$/;
/** Names whose JSON is remembered. */
const MOST_NAMES = 4096;

/**
 * Gives records their text, each from its `kind` to its end; number and time come before it when its place in the log
 * is known. Every text goes through JSON, so nothing that a client sends can end a line. Written out, since
 * JSON.stringify of the whole takes three times as long.
 */
export class RecordText {
  readonly #replica: string;
  readonly #replicaField: string;
  /** Those of the configuration, and addresses: they come again and again. */
  readonly #names = new Map<string, string>();

  constructor(replica: string) {
    this.#replica = replica;
    this.#replicaField = `,"replica":${json(replica)}`;
  }

  access(facts: AccessFacts, { address, path, parameters, cut }: Shown): string {
    const { status, upstream, credential } = facts;
    return (
      `"kind":"access","requestId":${json(facts.requestId)}${this.#replicaField},"client":${this.#name(facts.client)}` +
      `,"address":${this.#name(address)},"deployment":${this.#name(facts.deployment)},"site":${this.#name(facts.site)}` +
      `,"operation":${this.#name(facts.operation)},"method":${this.#name(facts.method)},"path":${json(path)}` +
      `,"parameters":${parametersJson(parameters)}${cut ? ',"cut":true' : ''},"status":${status}` +
      `,"code":${this.#name(facts.code)}${upstream === undefined ? '' : this.#upstream(upstream)}` +
      `${credential === undefined ? '}' : this.#credential(credential)}`
    );
  }

  outcome({ access, requestId, status, code, bytes, durationMs }: OutcomeFacts): string {
    return (
      `"kind":"outcome","requestId":${json(requestId)}${this.#replicaField},"access":${access}` +
      `,"status":${status},"code":${this.#name(code)},"bytes":{"in":${bytes.in},"out":${bytes.out}}` +
      `,"durationMs":${tenths(durationMs)}}`
    );
  }

  admin(event: string, details: AdminDetails): string {
    return JSON.stringify({ kind: 'admin', replica: this.#replica, event, ...details }).slice(1);
  }

  #upstream({ status, attempts, challenged, durationMs, address }: UpstreamFacts): string {
    return `,"upstream":{"status":${status},"attempts":${attempts},"challenged":${challenged},"durationMs":${tenths(durationMs)},"address":${this.#name(address)}}`;
  }

  /** Whoever hands it over may have more of it, which is not for here. */
  #credential({ name, version }: CredentialName): string {
    return `,"credential":{"name":${this.#name(name)},"version":${this.#name(version)}}}`;
  }

  #name(name: string): string {
    const known = this.#names.get(name);
    if (known !== undefined) return known;
    if (this.#names.size >= MOST_NAMES) this.#names.clear();
    const text = json(name);
    this.#names.set(name, text);
    return text;
  }
}

function parametersJson(parameters: RecordedParameters): string {
  let text = '';
  for (const [name, value] of parameters) {
    text += `${text === '' ? '{' : ','}${json(name)}:${json(value)}`;
  }
  return text === '' ? '{}' : `${text}}`;
}

/** A whole line: the record with its number and time. */
export function recordLine(seq: number, time: string, record: string): string {
  return `{"seq":${seq},"time":"${time}",${record}\n`;
}

function tenths(milliseconds: number): number {
  return Math.round(milliseconds * 10) / 10;
}

function json(value: string | readonly string[] | null): string {
  return typeof value === 'string' && PLAIN.test(value) ? `"${value}"` : JSON.stringify(value);
}

/** Bounds of what one request can put into a record: it is the client who chooses it. */
const MOST_PARAMETERS = 32;
const LONGEST_NAME = 64;
const LONGEST_VALUE = 512;
const LONGEST_PATH = 2048;

/** By name: the value, or the values, of a parameter that is recorded by value; null: by name only. */
export type RecordedParameters = Map<string, string | string[] | null>;

export interface RecordedTarget {
  readonly path: string;
  readonly parameters: RecordedParameters;
  /** Whether something was too long or too much, and left out. */
  readonly cut: boolean;
}

/** A request's target as it is recorded: the path as it was sent, and the query by name and value. */
export function recordedTarget(target: string, byValue: ReadonlySet<string>): RecordedTarget {
  const question = target.indexOf('?');
  const path = question === -1 ? target : target.slice(0, question);
  const parameters: RecordedParameters = new Map();
  const cut = question !== -1 && collect(target, question + 1, byValue, parameters);
  if (path.length <= LONGEST_PATH) return { path, parameters, cut };
  return { path: path.slice(0, LONGEST_PATH), parameters, cut: true };
}

/** Reads the query from `start` on into `into`; true: not all of it was taken. */
function collect(
  target: string,
  start: number,
  byValue: ReadonlySet<string>,
  into: RecordedParameters,
): boolean {
  let cut = false;
  let count = 0;
  for (let from = start; from < target.length; ) {
    const end = indexOrEnd(target, '&', from);
    count += 1;
    if (count > MOST_PARAMETERS) return true;
    const equals = Math.min(indexOrEnd(target, '=', from), end);
    const name = decoded(target.slice(from, Math.min(equals, from + LONGEST_NAME)));
    if (byValue.has(name)) {
      add(into, name, decoded(target.slice(equals + 1, Math.min(end, equals + 1 + LONGEST_VALUE))));
      cut ||= end - equals - 1 > LONGEST_VALUE;
    } else {
      if (!into.has(name)) into.set(name, null);
    }
    cut ||= equals - from > LONGEST_NAME;
    from = end + 1;
  }
  return cut;
}

function add(into: RecordedParameters, name: string, value: string): void {
  const before = into.get(name);
  if (before === undefined || before === null) into.set(name, value);
  else if (typeof before === 'string') into.set(name, [before, value]);
  else before.push(value);
}

function indexOrEnd(text: string, mark: string, from: number): number {
  const index = text.indexOf(mark, from);
  return index === -1 ? text.length : index;
}

/** Without percent signs, or as it was sent if it is no UTF-8. */
function decoded(text: string): string {
  if (!text.includes('%')) return text;
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
