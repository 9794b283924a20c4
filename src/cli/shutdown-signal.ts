const SIGNALS = ['SIGTERM', 'SIGINT'] as const;

/** Resolves with the next signal that asks the process to end. Unless this is called again, one more ends it at once. */
export function shutdownSignal(): Promise<NodeJS.Signals> {
  return new Promise((resolve) => {
    const heard = (signal: NodeJS.Signals): void => {
      for (const each of SIGNALS) process.off(each, heard);
      resolve(signal);
    };
    for (const each of SIGNALS) process.on(each, heard);
  });
}
