import type { Secret } from '../base/secret.ts';

export interface AuditOptions {
  readonly directory: string;
  /** Name of this process among those that share the directory. */
  readonly replica: string;
  readonly key: Secret;
  /** What a record has to survive before its answer leaves: the process, the machine, or neither. */
  readonly durability: 'write' | 'fsync' | 'async';
  readonly onFailure: 'refuse' | 'serve';
  /** Query parameters that are recorded by value. */
  readonly parameters: readonly string[];
  readonly pseudonymise: readonly 'address'[];
  /** Bytes and milliseconds. */
  readonly segment: { readonly size: number; readonly age: number; readonly keep: number };
  /** Undefined: to the files only. */
  readonly stream?: { readonly redis: boolean; readonly maxLength: number };
}
