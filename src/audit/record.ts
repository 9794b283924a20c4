import type { RecordedParameters, RecordedTarget } from './parameters.ts';

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
