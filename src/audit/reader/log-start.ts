import { GENESIS } from '../seal.ts';
import type { RetiredEnd } from '../segments/admin-records.ts';
import type { ChainWalk } from '../segments/chain-walk.ts';
import type { SegmentHeader } from '../segments/segment.ts';

/** `olderThan`: when the retired records were written at the latest, as the gateway says that removed them. */
interface Retirement extends RetiredEnd {
  readonly olderThan?: string;
}

/**
 * The beginning of one process's log: record 1, or the record after a retirement that is under a seal. A retirement
 * names its last record and the HMAC with which the log continues. Under an unknown key no HMAC is believed: if the
 * oldest segment has one, a retirement that ends before its first record is enough.
 */
export class LogStart {
  readonly #retirements: Retirement[] = [{ last: 0, hmac: GENESIS }];
  /** First record of the oldest segment, and whether its key is unknown. */
  #oldest: { readonly first: number; readonly keyUnknown: boolean } | undefined;
  /** The first header under a seal. */
  #header: SegmentHeader | undefined;

  /** Takes a retirement from a record that counts. */
  addRetirement(retirement: Retirement): void {
    this.#retirements.push(retirement);
  }

  /** Takes the next segment after its walk. `sealCounts`: its header counts under a seal, without a signed head. */
  addSegment({ header, seals, keyUnknown }: ChainWalk, first: number, sealCounts: boolean): void {
    this.#oldest ??= { first, keyUnknown };
    if (header === undefined || seals === 0) return;
    this.#header ??= header;
    if (sealCounts && header.retired !== undefined) this.addRetirement(header.retired);
  }

  /** Number of the first record under a seal. */
  get first(): number {
    return this.#header?.first ?? 1;
  }

  /** The retirement of all records before that one; undefined: there is none. */
  get retirement(): Retirement | undefined {
    const { first, previous } = this.#header ?? { first: 1, previous: GENESIS };
    return this.#retirements.find(({ last, hmac }) => last === first - 1 && hmac === previous);
  }

  /** The last of the records that are missing before the log; undefined: none are. */
  get missing(): number | undefined {
    if (this.retirement !== undefined) return undefined;
    if (!this.#oldest?.keyUnknown) return this.first - 1;
    const last = this.#oldest.first - 1;
    const isRetired = [...this.#retirements, this.#header?.retired].some((each) => each?.last === last);
    return isRetired ? undefined : last;
  }
}
