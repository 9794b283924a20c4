/** The sum of a metric over all series that have these labels; 0 when there are none. */
export async function metricOf(
  control: string,
  name: string,
  labels: Record<string, string> = {},
  headers: Record<string, string> = {},
): Promise<number> {
  const text = await (await fetch(`${control}/metrics`, { headers })).text();
  const wanted = Object.entries(labels).map(([key, value]) => `${key}="${value}"`);
  let sum = 0;
  for (const line of text.split('\n')) {
    const matches = line.startsWith(`${name} `) || line.startsWith(`${name}{`);
    if (!matches || !wanted.every((label) => line.includes(label))) continue;
    sum += Number(line.slice(line.lastIndexOf(' ')));
  }
  return sum;
}
