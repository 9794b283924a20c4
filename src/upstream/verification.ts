import type { UpstreamResponse } from '../handshake/response.ts';
import type { Reply } from './credential-version.ts';

/** The attempt of a client's request that was refused with a nonce of its own. */
export type Evidence = Extract<Reply, { readonly kind: 'refused' }>;

/** What a verification has found of a version. */
export type Verdict<V> =
  | { readonly kind: 'accepted' }
  /** Nothing is known. */
  | { readonly kind: 'unclear' }
  /** The attempt of this number showed it. `successor`: another version that the upstream accepts; undefined: none. */
  | { readonly kind: 'refused'; readonly attempt: number; readonly successor: V | undefined };

export interface VerificationOptions<V> {
  readonly version: V;
  /** Takes the place of the first question; undefined: the version was accepted before, or nothing was refused. */
  readonly evidence: Evidence | undefined;
  /** Versions that can take its place, in this order. */
  readonly others: readonly V[];
  /** True if the upstream may see another refused attempt in this minute. */
  readonly hasRoom: () => boolean;
  /** Asks whether the upstream accepts a version; `inHand`: a response whose challenge is answered, without a question. */
  readonly ask: (version: V, inHand?: UpstreamResponse) => Promise<Reply>;
  /** Takes over the reply to another version than the one that is verified. */
  readonly settle: (other: V, reply: Reply) => void;
}

/**
 * Finds out whether the upstream accepts a version, with requests of the gateway's own; if it does not, whether it
 * accepts another one. A version that is the only one left is asked once more, since an upstream can drop the nonce of
 * the first answer within a round trip.
 */
export async function verify<V>(options: VerificationOptions<V>): Promise<Verdict<V>> {
  const { version, evidence, hasRoom, ask } = options;
  const first = evidence ?? (await ask(version));
  if (first.kind !== 'refused') return first;
  const { attempt } = first;
  const successor = await firstAccepted(options, first.inHand);
  if (successor !== undefined) return { kind: 'refused', attempt, successor };
  if (evidence === undefined && !hasRoom()) return { kind: 'refused', attempt, successor };
  const again = await ask(version);
  if (again.kind === 'accepted') return again;
  // A client's request alone may have been refused for its target.
  if (again.kind === 'unclear' && evidence !== undefined && hasRoom()) return again;
  return { kind: 'refused', attempt, successor };
}

/** Asks the other versions in order, each with the challenge that came with the refusal before, if it can be answered. */
export async function firstAccepted<V>(
  { others, ask, settle }: Pick<VerificationOptions<V>, 'others' | 'ask' | 'settle'>,
  first?: UpstreamResponse,
): Promise<V | undefined> {
  let inHand = first;
  for (const other of others) {
    const reply = await ask(other, inHand);
    inHand = reply.kind === 'refused' ? reply.inHand : undefined;
    settle(other, reply);
    if (reply.kind === 'accepted') return other;
  }
  return undefined;
}
