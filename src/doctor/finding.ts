import { type ProblemName, problems } from './problems.ts';

export type Mark = 'ok' | 'warn' | 'fail';

export type Check =
  | 'egress'
  | 'connection'
  | 'tls'
  | 'challenge'
  | 'clock'
  | 'credential'
  | 'nonce'
  | 'access'
  | 'redis'
  | 'audit';

/** Data of a finding for programs. Times are RFC 3339, durations in milliseconds, sizes in bytes. */
export type Facts = Readonly<Record<string, string | number | boolean | null>>;

/** Result of one check. Never contains a secret, a nonce or an Authorization. */
export interface Finding {
  readonly check: Check;
  /** The credential or site that the finding is about. */
  readonly subject?: string;
  readonly mark: Mark;
  /** Undefined if the mark is ok. */
  readonly problem?: ProblemName;
  readonly saw: string;
  /** One sentence with the remedy. */
  readonly advice?: string;
  readonly facts?: Facts;
}

/** Creates a finding with the mark ok. */
export function fine(check: Check, saw: string, facts?: Facts): Finding {
  return { check, mark: 'ok', ...seen(saw, facts) };
}

/** Creates a finding with the mark and the advice of its problem. */
export function wrong(check: Check, problem: keyof typeof problems, saw: string, facts?: Facts): Finding {
  const { mark, advice } = problems[problem];
  return { check, mark, problem, advice, ...seen(saw, facts) };
}

/** Adds the credential or site that a finding is about. */
export function about(subject: string, { check, ...rest }: Finding): Finding {
  return { check, subject, ...rest };
}

function seen(saw: string, facts: Facts | undefined): Pick<Finding, 'saw' | 'facts'> {
  if (facts === undefined) return { saw: printable(saw) };
  const clean = Object.entries(facts).map(([name, value]) => [
    name,
    typeof value === 'string' ? printable(value) : value,
  ]);
  return { saw: printable(saw), facts: Object.fromEntries(clean) };
}

/** Removes control characters: an upstream chooses its realm and issuer, and could send terminal escapes. */
function printable(text: string): string {
  return text.replace(/\p{C}/gu, '?');
}
