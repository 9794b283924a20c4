/** A command that failed. The message is printed without a stack. */
export class CommandError extends Error {
  override readonly name = 'CommandError';
  /** The exit status: 1 failed, 2 wrong usage or configuration. */
  readonly status: 1 | 2;

  constructor(status: 1 | 2, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.status = status;
  }
}
