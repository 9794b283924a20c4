/** What the command line chooses for a part. */
export interface LabOptions {
  /** The first seed. */
  readonly seed: number;
  /** True: runs this one seed, and prints everything that happens. */
  readonly replays: boolean;
  /** A file with flight records of gateways, which the simulation replays; undefined: none. */
  readonly flight: string | undefined;
  /** The most milliseconds that the part takes, without what it has to finish. */
  readonly limitMs: number;
  /** The most runs; undefined: as many as there is time for. */
  readonly runs: number | undefined;
  /** The only target of `guided`; undefined: all. */
  readonly only: string | undefined;
  /** The folder of the reports; it may not be there. */
  readonly out: string;
  /** Processes at a time. */
  readonly processes: number;
  /** Shows how far it is. */
  readonly progress: (text: string) => void;
  /** Prints text that was asked for, as a trace. */
  readonly print: (text: string) => void;
}

/** Something that is wrong with the program. */
export interface Finding {
  readonly seed: number;
  readonly what: string;
  /** The command that shows it again. */
  readonly replay: string;
}

export interface Table {
  readonly title: string;
  readonly head: readonly string[];
  readonly rows: readonly (readonly string[])[];
}

export interface PartReport {
  readonly figures: Readonly<Record<string, number | string>>;
  readonly tables: readonly Table[];
  readonly findings: readonly Finding[];
}

/** One way to look for defects. A part is one file that exports it, and an entry in `parts.ts`. */
export interface LabPart {
  readonly name: string;
  /** One sentence. */
  readonly description: string;
  /** True: it runs only if it is asked for by name. */
  readonly isLong?: boolean;
  run(options: LabOptions): Promise<PartReport>;
}
