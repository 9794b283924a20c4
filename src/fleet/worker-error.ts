/** A worker that cannot be started; the message says why. */
export class WorkerError extends Error {
  override readonly name = 'WorkerError';
}
