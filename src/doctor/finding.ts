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

/** What was seen, for programs. Times are RFC 3339, durations in milliseconds, sizes in bytes. */
export type Facts = Readonly<Record<string, string | number | boolean | null>>;

/** What one check showed. Never holds a secret, a nonce or an Authorization. */
export interface Finding {
  readonly check: Check;
  /** The credential or site that it is about. */
  readonly subject?: string;
  readonly mark: Mark;
  /** Of what is not ok. */
  readonly problem?: ProblemName;
  readonly saw: string;
  /** One sentence: what to do about the problem. */
  readonly advice?: string;
  readonly facts?: Facts;
}

export function fine(check: Check, saw: string, facts?: Facts): Finding {
  return { check, mark: 'ok', saw: printable(saw), ...(facts !== undefined && { facts }) };
}

export function wrong(check: Check, problem: keyof typeof problems, saw: string, facts?: Facts): Finding {
  const { mark, advice } = problems[problem];
  return { check, mark, problem, saw: printable(saw), advice, ...(facts !== undefined && { facts }) };
}

export function about(subject: string, { check, ...rest }: Finding): Finding {
  return { check, subject, ...rest };
}

/** An upstream chooses its realm and issuer: what a terminal would obey must not reach it. */
export function printable(text: string): string {
  return text.replace(/\p{C}/gu, '?');
}
