/*
 * Loaded before a program (`--import`): at each SIGUSR2 it prints the longest turn of the event loop since the last one
 * in milliseconds: of the processor, which is the same on a busy machine, and of the clock. And what all threads of the
 * process have used of the processor since then.
 */
let ofProcess = process.cpuUsage();
let last = process.threadCpuUsage();
let lastAt = performance.now();
let longest = { cpuMs: 0, wallMs: 0 };

const turn = (): void => {
  const { user, system } = process.threadCpuUsage(last);
  longest = {
    cpuMs: Math.max(longest.cpuMs, (user + system) / 1000),
    wallMs: Math.max(longest.wallMs, performance.now() - lastAt),
  };
  last = process.threadCpuUsage();
  lastAt = performance.now();
};
setInterval(turn, 1).unref();
process.on('SIGUSR2', () => {
  const { user, system } = process.cpuUsage(ofProcess);
  const longestTurn = { ...longest, ofProcessMs: (user + system) / 1000 };
  process.stderr.write(`${JSON.stringify({ longestTurn })}\n`);
  ofProcess = process.cpuUsage();
  longest = { cpuMs: 0, wallMs: 0 };
});
