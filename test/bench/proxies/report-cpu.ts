/** Tells the parent where this proxy listens, and its CPU time in microseconds whenever asked. */
export function reportCpu(port: number): void {
  process.on('message', () => {
    const { user, system } = process.cpuUsage();
    process.send?.({ cpu: user + system });
  });
  process.send?.({ port });
}
