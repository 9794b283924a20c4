/** CPU time of this process since a call, in milliseconds: on a busy machine the time of a clock says little. */
export function cpuMeter(): () => number {
  const before = process.cpuUsage();
  return () => {
    const { user, system } = process.cpuUsage(before);
    return (user + system) / 1000;
  };
}
