/*
 * Where the nodes and lines of the map are: four columns, and no node without a line.
 */
import type { State } from '../../view.ts';

const COLUMNS = ['clients', 'rules', 'deployments', 'addresses'] as const;
type ColumnName = (typeof COLUMNS)[number];

export interface Node {
  readonly id: string;
  readonly column: ColumnName;
  readonly label: string;
  /** The second line. */
  readonly note: string;
  readonly href: string;
  readonly state: State | 'idle';
}

export interface Edge {
  readonly from: string;
  readonly to: string;
  readonly perSecond: number | undefined;
  readonly state: State | 'idle';
  readonly href: string;
  /** Describes the line in words. */
  readonly title: string;
}

interface PlacedNode extends Node {
  readonly x: number;
  readonly y: number;
  readonly width: number;
}

interface PlacedEdge extends Edge {
  readonly path: string;
  /** Where its rate stands. */
  readonly x: number;
  readonly y: number;
  /** Width of the line. */
  readonly weight: number;
}

export interface Shape {
  /** Left edge and width of each column. */
  readonly columns: readonly (readonly [x: number, width: number])[];
  readonly width: number;
  readonly nodeHeight: number;
  readonly gap: number;
}

export const WIDE: Shape = {
  columns: [
    [0, 190],
    [300, 150],
    [560, 200],
    [870, 230],
  ],
  width: 1100,
  nodeHeight: 44,
  gap: 14,
};

/** On a phone a rule is a dot. */
export const NARROW: Shape = {
  columns: [
    [0, 102],
    [126, 12],
    [162, 92],
    [268, 92],
  ],
  width: 360,
  nodeHeight: 42,
  gap: 12,
};

export interface Layout {
  readonly nodes: readonly PlacedNode[];
  readonly edges: readonly PlacedEdge[];
  readonly height: number;
}

/** Where on a line its rate stands: beside its rule, since the other end may have many lines. */
const RATE_AT = { clients: 0.82, rules: 0.18, deployments: 0.5, addresses: 0.5 } as const satisfies Record<
  ColumnName,
  number
>;

/** Places the nodes of each column in their order, spread over the height, and the lines between them. */
export function layOut(nodes: readonly Node[], edges: readonly Edge[], shape: Shape): Layout {
  const { nodeHeight, gap, columns } = shape;
  const byColumn = COLUMNS.map((column) => nodes.filter((node) => node.column === column));
  const heightOf = (count: number): number => count * (nodeHeight + gap) - gap;
  const height = Math.max(nodeHeight, ...byColumn.map(({ length }) => heightOf(length)));
  const placed = byColumn.flatMap((column, at) =>
    column.map((node, index): PlacedNode => {
      const [x = 0, width = 0] = columns[at] ?? [];
      const share = height / column.length;
      return { ...node, x, width, y: (index + 0.5) * share - nodeHeight / 2 };
    }),
  );
  const byId = new Map(placed.map((node) => [node.id, node]));
  const most = Math.max(0, ...edges.map(({ perSecond = 0 }) => perSecond));
  const lines = edges.flatMap((edge): PlacedEdge[] => {
    const [from, to] = [byId.get(edge.from), byId.get(edge.to)];
    if (from === undefined || to === undefined) return [];
    const [x1, y1] = [from.x + from.width, from.y + nodeHeight / 2];
    const [x2, y2] = [to.x, to.y + nodeHeight / 2];
    const bend = (x2 - x1) / 2;
    const at = RATE_AT[from.column];
    return [
      {
        ...edge,
        path: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`,
        x: x1 + (x2 - x1) * at,
        // Of a cubic curve with level ends, near enough.
        y: y1 + (y2 - y1) * at * at * (3 - 2 * at),
        weight: most === 0 ? 1.5 : 1.5 + 3.5 * Math.sqrt((edge.perSecond ?? 0) / most),
      },
    ];
  });
  return { nodes: placed, edges: lines, height };
}
