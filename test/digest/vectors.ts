import { readFileSync } from 'node:fs';

/** The vectors of `test/vectors`, as far as the tests of digest/ read them. */
export interface SingleVector {
  readonly kind: 'single';
  readonly id: string;
  readonly challenge: readonly string[];
  readonly request: VectorRequest;
  readonly credentials: { readonly username: string; readonly password: string };
  readonly client: { readonly cnonce: string | null; readonly nc: number | null };
  readonly expect: {
    readonly response: string;
    readonly qop: string | null;
    readonly params: Readonly<Record<string, { readonly value: string; readonly wire: string }>>;
    readonly absent: readonly string[];
  };
}

export interface ProofVector extends Omit<SingleVector, 'kind' | 'expect'> {
  readonly kind: 'rspauth';
  readonly response_body_b64: string;
  readonly authentication_info: string;
  readonly expect: { readonly rspauth: string; readonly verdict: string };
}

interface VectorRequest {
  readonly method: string;
  readonly uri: string;
  readonly body_b64: string | null;
}

export interface FieldCase {
  readonly id: string;
  readonly category: string;
  readonly status: number;
  readonly headers: readonly string[];
  readonly build?: { prefix: string; repeat: string; count: number; suffix: string };
  readonly limit_ms?: number;
  readonly expect: FieldExpectation;
}

interface FieldExpectation {
  readonly outcome?: 'answer' | 'no-answer';
  readonly nextnonce?: string | null;
  readonly parsed?: Readonly<Record<string, string | boolean>>;
  readonly probe_params?: Readonly<Record<string, string>>;
  readonly probe_absent?: readonly string[];
}

export interface Probe {
  readonly method: string;
  readonly uri: string;
  readonly username: string;
  readonly password: string;
  readonly cnonce: string;
  readonly nc: number;
}

type Vector = SingleVector | ProofVector | { readonly kind: 'sequence' };

export function readVectors(): readonly Vector[] {
  return read<{ vectors: Vector[] }>('digest-vectors.json').vectors;
}

export function readCases(): { readonly probe: Probe; readonly cases: readonly FieldCase[] } {
  const file = read<{ meta: { probe: Probe }; cases: FieldCase[] }>('challenges.json');
  return { probe: file.meta.probe, cases: file.cases };
}

export function fieldLines({ headers, build }: FieldCase): string[] {
  if (build === undefined) return [...headers];
  return [build.prefix + build.repeat.repeat(build.count) + build.suffix];
}

function read<T>(name: string): T {
  return JSON.parse(readFileSync(new URL(`../vectors/${name}`, import.meta.url), 'utf8'));
}
