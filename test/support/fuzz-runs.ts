/** How many inputs of chance a test tries: `usual`, or what FUZZ_RUNS says. */
export function fuzzRuns(usual: number): number {
  return Number(process.env['FUZZ_RUNS'] ?? usual);
}
