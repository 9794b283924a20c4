/*
 * Loaded before a program (`--import`): at each SIGUSR2 it prints the longest time that the event loop took for one
 * turn since the last one, in milliseconds of the processor, so that it is the same on a busy machine.
 */
let last = process.threadCpuUsage();
let longest = 0;

const turn = (): void => {
  const used = process.threadCpuUsage(last);
  longest = Math.max(longest, (used.user + used.system) / 1000);
  last = process.threadCpuUsage();
};
setInterval(turn, 1).unref();
process.on('SIGUSR2', () => {
  process.stderr.write(`${JSON.stringify({ longestTurnMs: longest })}\n`);
  longest = 0;
});
