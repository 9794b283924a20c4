import { randomUUID } from 'node:crypto';
import { mkdir, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../base/clock.ts';
import { errorCode } from '../base/error-code.ts';
import type { Log } from '../base/log.ts';
import { Throttle } from '../base/throttle.ts';
import type { FlightRecorder } from '../handshake/flight-recorder.ts';

/** Between two files for the same reason, in milliseconds. */
const QUIET_MS = 60_000;
const MAX_REASONS = 2;
/** Files of all processes that stay in the folder: the latest. */
const MAX_FILES = 20;
const NAME = /^flight-\d{8}T\d{9}Z-[\da-f]{8}-[a-z-]+\.jsonl$/;

/** Why a record is written without being asked for. */
type FlightReason = 'credential-refused' | 'internal-error';

interface FlightFilesDeps {
  readonly recorder: FlightRecorder;
  readonly log: Log;
  readonly clock: Clock;
}

/** Writes what the flight recorder of this process has to files that only its user can read. */
export class FlightFiles {
  /** Undefined: nothing is written. */
  folder: string | undefined;
  readonly #deps: FlightFilesDeps;
  readonly #throttle: Throttle;

  constructor(deps: FlightFilesDeps) {
    this.#deps = deps;
    this.#throttle = new Throttle(deps.clock, MAX_REASONS, QUIET_MS);
  }

  /** Writes a file in the background, once a minute for each reason. Never throws. */
  write(reason: FlightReason): void {
    const { folder } = this;
    if (folder === undefined || this.#throttle.admit(reason) === undefined) return;
    void this.#write(folder, reason);
  }

  async #write(folder: string, reason: FlightReason): Promise<void> {
    const { recorder, log } = this.#deps;
    const time = new Date().toISOString().replace(/[-:.]/g, '');
    const file = join(folder, `flight-${time}-${randomUUID().slice(0, 8)}-${reason}.jsonl`);
    try {
      await mkdir(folder, { recursive: true, mode: 0o700 });
      await writeFile(file, `${recorder.lines(reason).join('\n')}\n`, { mode: 0o600, flag: 'wx' });
      log.info({ file, reason }, 'flight record written');
      await removeOldest(folder);
    } catch (error) {
      log.warn({ folder, error: errorCode(error) }, 'flight record not written; check log.flightRecords');
    }
  }
}

async function removeOldest(folder: string): Promise<void> {
  const names = (await readdir(folder)).filter((name) => NAME.test(name)).sort();
  for (const name of names.slice(0, -MAX_FILES)) await rm(join(folder, name), { force: true });
}
