/**
 * A replica that runs several processes has a log for each: `REPLICA` for the primary process, `REPLICA@K` for worker K,
 * from 1 on. The configuration allows no '@' in the name of a replica, so these names cannot be those of another one.
 */
const NAME = /^([\w.-]{1,64})(?:@([1-9]\d{0,3}))?$/;

/** Longest name of a process: 64 characters of the replica, and `@9999`. */
export const LONGEST_NAME = 69;

interface ProcessName {
  readonly replica: string;
  /** Number of the worker; 0: the process is not a worker. */
  readonly worker: number;
}

/** The name of a worker among those that share the audit folder. */
export function replicaOf(replica: string, worker: number): string {
  return `${replica}@${worker}`;
}

/** Undefined: no process of a gateway has that name. */
export function parseProcessName(name: string): ProcessName | undefined {
  const [, replica, worker = '0'] = NAME.exec(name) ?? [];
  return replica === undefined ? undefined : { replica, worker: Number(worker) };
}

/** The replica and the worker of a folder. A name that no gateway gives is taken for that of a replica. */
export function processOf(folder: string): ProcessName {
  return parseProcessName(folder) ?? { replica: folder, worker: 0 };
}

/** True if `name` is that process, or a worker of that replica. */
export function isSelected(selected: string | undefined, name: string): boolean {
  return selected === undefined || name === selected || processOf(name).replica === selected;
}

/** Orders processes by replica, then by the number of the worker. */
export function byProcess(a: string, b: string): number {
  const [first, second] = [processOf(a), processOf(b)];
  if (first.replica !== second.replica) return first.replica < second.replica ? -1 : 1;
  return first.worker - second.worker;
}

/** A link that leads to no folder stands where the log of a process may be: without it, the log could seem whole. */
export class BrokenLinkError extends Error {
  constructor(path: string) {
    super(`${path} is a link that leads to no folder that this user can reach: mount it, or remove the link`);
  }
}
