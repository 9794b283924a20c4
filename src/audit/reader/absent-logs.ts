import type { Checkpoint } from '../checkpoint.ts';
import { finding, type PlacedFinding } from '../findings.ts';
import { isSelected, processOf } from '../replica-name.ts';
import { foldersIn } from '../segments/segment.ts';

interface AbsentOptions {
  readonly directory: string;
  readonly replica?: string | undefined;
  /** Heads that a witness has. */
  readonly witnessHeads?: readonly Checkpoint[] | undefined;
}

/** A log that somebody has seen. */
interface NamedLog {
  readonly replica: string;
  /** True: it need not be there, as in a copy. */
  readonly mayBeAhead: boolean;
}

/** The logs that should be there and are not: heads name them, or there are logs of workers without their primary's. */
export async function absentLogs(
  { directory, replica: selected, witnessHeads = [] }: AbsentOptions,
  folders: readonly string[],
  heads: readonly NamedLog[],
): Promise<PlacedFinding[]> {
  const named = heads.filter(({ replica, mayBeAhead }) => isSelected(selected, replica) && !mayBeAhead);
  const primaries = folders.map((folder) => processOf(folder).replica);
  const there = new Set(await foldersIn(directory));
  const seen = witnessHeads.map(({ replica }) => replica);
  const wanted = new Set([...named.map(({ replica }) => replica), ...seen, ...primaries]);
  const absent = [...wanted].filter((replica) => !there.has(replica));
  return absent.map((replica) => {
    const process = processOf(replica).worker > 0 ? 'worker' : 'replica';
    const found = primaries.includes(replica)
      ? finding('primary-missing')
      : finding('log-missing', { process });
    return { replica, segment: '', line: 0, ...found };
  });
}
