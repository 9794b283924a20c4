import type { Comparison, Figure } from './figures.ts';

const NAME_WIDTH = 170;
const PANEL_WIDTH = 240;
const GAP = 24;
const ROW = 20;
const BAR = 12;
const TOP = 56;
const PANELS_IN_ROW = 3;
const COLOURS = { gateway: '#1f6feb', peer: '#8b949e', noisy: '#d0d7de' } as const;

interface Panel {
  readonly title: string;
  readonly figures: ReadonlyMap<string, Figure>;
}

/** An SVG with a panel for each kind of load: the median ratio as a bar, the middle half of the rounds as a line. */
export function plot({ reference, cpu, p99 }: Comparison, names: readonly string[]): string {
  const panels: Panel[] = [
    ...cpu.map(({ document, connections, figures }) => ({
      title: `CPU, ${document}, ${connections} connection${connections === 1 ? '' : 's'}`,
      figures,
    })),
    { title: 'p99 latency, 2KB', figures: p99 },
  ];
  const panelHeight = TOP + names.length * ROW;
  const rows = Math.ceil(panels.length / PANELS_IN_ROW);
  const width = NAME_WIDTH + PANELS_IN_ROW * (PANEL_WIDTH + GAP);
  const height = rows * panelHeight + GAP;
  const drawn = panels.map((panel, index) => {
    const column = index % PANELS_IN_ROW;
    const x = NAME_WIDTH + column * (PANEL_WIDTH + GAP);
    const y = Math.floor(index / PANELS_IN_ROW) * panelHeight;
    return `${column === 0 ? nameColumn(names, y) : ''}${panelOf(panel, names, x, y)}`;
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="white"/>
<text x="${GAP / 2}" y="16" font-weight="bold">Ratios to ${reference}: less is better; pale: noise</text>
${drawn.join('\n')}
</svg>
`;
}

function nameColumn(names: readonly string[], y: number): string {
  return names
    .map(
      (name, row) =>
        `<text x="${NAME_WIDTH - 8}" y="${y + TOP + row * ROW + BAR - 1}" text-anchor="end">${name}</text>\n`,
    )
    .join('');
}

function panelOf({ title, figures }: Panel, names: readonly string[], x: number, y: number): string {
  const longest = Math.max(1, ...[...figures.values()].map(({ ratio }) => ratio.q3));
  // Room for the number behind the longest bar.
  const scale = (PANEL_WIDTH - 36) / longest;
  const bars = names.map((name, row) => {
    const figure = figures.get(name);
    return figure === undefined ? '' : barOf(name, figure, scale, x, y + TOP + row * ROW);
  });
  const one = x + scale;
  return `<text x="${x}" y="${y + TOP - 12}" font-weight="bold">${title}</text>
${bars.join('\n')}
<line x1="${one}" x2="${one}" y1="${y + TOP - 4}" y2="${y + TOP + names.length * ROW - 4}" stroke="#57606a" stroke-dasharray="2 3"/>`;
}

function barOf(name: string, { ratio, verdict }: Figure, scale: number, x: number, y: number): string {
  const kind = verdict === 'noisy' ? 'noisy' : name.startsWith('gateway') ? 'gateway' : 'peer';
  const middle = y + BAR / 2;
  return `<rect x="${x}" y="${y}" width="${(ratio.median * scale).toFixed(1)}" height="${BAR}" fill="${COLOURS[kind]}"/>
<line x1="${(x + ratio.q1 * scale).toFixed(1)}" x2="${(x + ratio.q3 * scale).toFixed(1)}" y1="${middle}" y2="${middle}" stroke="black"/>
<text x="${(x + ratio.q3 * scale + 4).toFixed(1)}" y="${y + BAR - 2}" font-size="11">${ratio.median.toFixed(2)}</text>`;
}
