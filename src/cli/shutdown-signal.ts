const SIGNALS = ['SIGTERM', 'SIGINT'] as const;

/** Resolves with the next SIGTERM or SIGINT. A later one ends the process unless this is called again. */
export function shutdownSignal(): Promise<NodeJS.Signals> {
  return new Promise((resolve) => {
    const heard = (signal: NodeJS.Signals): void => {
      for (const each of SIGNALS) process.off(each, heard);
      resolve(signal);
    };
    for (const each of SIGNALS) process.on(each, heard);
  });
}
