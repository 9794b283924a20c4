import type { RecordedParameters } from './parameters.ts';

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

/** Something that happened to the gateway itself; names and numbers only. */
export type AdminDetails = Readonly<Record<string, string | number | boolean | readonly string[]>>;

export interface Shown {
  readonly replica: string;
  readonly address: string;
  readonly path: string;
  readonly parameters: RecordedParameters;
  readonly cut: boolean;
}

/*
 * Each gives a record from its `kind` on; number and time come before it when its place in the log is known. Every
 * text goes through JSON, so nothing that a client sends can end a line. Written out, since JSON.stringify of the
 * whole takes three times as long.
 */

export function accessRecord(facts: AccessFacts, { replica, address, path, parameters, cut }: Shown): string {
  const { requestId, client, deployment, site, operation, method, status, code, upstream, credential } =
    facts;
  return (
    `{"kind":"access","requestId":${json(requestId)},"replica":${json(replica)},"client":${json(client)}` +
    `,"address":${json(address)},"deployment":${json(deployment)},"site":${json(site)}` +
    `,"operation":${json(operation)},"method":${json(method)},"path":${json(path)}` +
    `,"parameters":${parametersJson(parameters)}${cut ? ',"cut":true' : ''},"status":${status}` +
    `,"code":${json(code)}${upstream === undefined ? '' : upstreamJson(upstream)}` +
    // Whoever hands it over may have more of it, which is not for here.
    `${credential === undefined ? '' : `,"credential":{"name":${json(credential.name)},"version":${json(credential.version)}}`}}`
  );
}

function upstreamJson({ status, attempts, challenged, durationMs, address }: UpstreamFacts): string {
  return `,"upstream":{"status":${status},"attempts":${attempts},"challenged":${challenged},"durationMs":${tenths(durationMs)},"address":${json(address)}}`;
}

function parametersJson(parameters: RecordedParameters): string {
  let text = '';
  for (const [name, value] of parameters) {
    text += `${text === '' ? '{' : ','}${json(name)}:${json(value)}`;
  }
  return text === '' ? '{}' : `${text}}`;
}

export function outcomeRecord(facts: OutcomeFacts, replica: string): string {
  const { access, requestId, status, code, bytes, durationMs } = facts;
  return (
    `{"kind":"outcome","requestId":${json(requestId)},"replica":${json(replica)},"access":${access}` +
    `,"status":${status},"code":${json(code)},"bytes":{"in":${bytes.in},"out":${bytes.out}}` +
    `,"durationMs":${tenths(durationMs)}}`
  );
}

export function adminRecord(event: string, details: AdminDetails, replica: string): string {
  return JSON.stringify({ kind: 'admin', replica, event, ...details });
}

/** A whole line: the record with its number and time. */
export function recordLine(seq: number, time: string, record: string): string {
  return `{"seq":${seq},"time":"${time}",${record.slice(1)}\n`;
}

function tenths(milliseconds: number): number {
  return Math.round(milliseconds * 10) / 10;
}

function json(value: string | readonly string[] | null): string {
  return JSON.stringify(value);
}
