/*
 * Where the nodes and lines of the map are: four columns, and no node without a line.
 */
import { capitalized } from '../../../base/units.ts';
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
  readonly height: number;
  /** The label, wrapped to the width: no name is cut. */
  readonly lines: readonly string[];
}

interface PlacedEdge extends Edge {
  readonly path: string;
  /** Where its rate stands. */
  readonly x: number;
  readonly y: number;
  readonly anchor: 'start' | 'middle' | 'end';
  /** Width of the line. */
  readonly weight: number;
}

/** Left edge and width of each column. */
const PLACES: Readonly<Record<ColumnName, readonly [x: number, width: number]>> = {
  clients: [0, 220],
  rules: [310, 180],
  deployments: [620, 210],
  addresses: [930, 250],
};
const WIDTH = 1180;
/** Room for the headings of the columns. */
const TOP = 26;
const GAP = 14;
/** Height of a node whose label has one line, and of each further line. */
const NODE_HEIGHT = 44;
export const LINE_HEIGHT = 16;
export const PADDING = 10;
/** Width of a character of a label in a wide font. */
const CHARACTER = 8.2;

interface Layout {
  readonly headings: readonly { readonly text: string; readonly x: number }[];
  readonly nodes: readonly PlacedNode[];
  readonly edges: readonly PlacedEdge[];
  readonly width: number;
  readonly height: number;
}

/** Places the nodes of each column in their order, spread over the height, and the lines between them. */
export function layOut(nodes: readonly Node[], edges: readonly Edge[]): Layout {
  const columns = COLUMNS.map((column) => nodes.filter((node) => node.column === column).map(sized));
  const heightOf = (column: readonly SizedNode[]): number =>
    column.reduce((sum, { height }) => sum + height + GAP, -GAP);
  const height = Math.max(NODE_HEIGHT, ...columns.map(heightOf));
  const placed = columns.flatMap((column) => {
    const space = (height - heightOf(column)) / Math.max(1, column.length);
    let y = TOP + space / 2;
    return column.map((node): PlacedNode => {
      const at = y;
      y += node.height + GAP + space;
      return { ...node, y: at };
    });
  });
  const byId = new Map(placed.map((node) => [node.id, node]));
  const most = Math.max(0, ...edges.map(({ perSecond = 0 }) => perSecond));
  const lines = edges.flatMap((edge): PlacedEdge[] => {
    const [from, to] = [byId.get(edge.from), byId.get(edge.to)];
    if (from === undefined || to === undefined) return [];
    const weight = most === 0 ? 1.5 : 1.5 + 3.5 * Math.sqrt((edge.perSecond ?? 0) / most);
    return [{ ...edge, ...between(from, to), weight }];
  });
  const headings = COLUMNS.map((column) => ({ text: capitalized(column), x: PLACES[column][0] }));
  return { headings, nodes: placed, edges: lines, width: WIDTH, height: height + TOP };
}

type SizedNode = Omit<PlacedNode, 'y'>;

function sized(node: Node): SizedNode {
  const [x, width] = PLACES[node.column];
  const lines = linesOf(node.label, Math.floor((width - 2 * PADDING) / CHARACTER));
  return { ...node, x, width, lines, height: NODE_HEIGHT + (lines.length - 1) * LINE_HEIGHT };
}

/** Breaks a name behind a sign between its parts, or anywhere if no part is short enough. */
function linesOf(text: string, most: number): string[] {
  if (text.length <= most) return [text];
  const sign = Math.max(...['-', '.', '_', ':', '/'].map((each) => text.lastIndexOf(each, most - 1)));
  const end = sign * 3 > most ? sign + 1 : most;
  return [text.slice(0, end), ...linesOf(text.slice(end), most)];
}

/** A rate stands at its rule, where lines are level and none crosses; the other end may have many lines. */
function between(from: PlacedNode, to: PlacedNode): Pick<PlacedEdge, 'path' | 'x' | 'y' | 'anchor'> {
  const [x1, y1] = [from.x + from.width, from.y + from.height / 2];
  const [x2, y2] = [to.x, to.y + to.height / 2];
  const bend = (x2 - x1) / 2;
  const path = `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
  // On the side of the line to which it does not bend.
  if (from.column === 'clients') return { path, x: x2 - 8, y: y2 + (y1 < y2 ? 14 : -6), anchor: 'end' };
  if (from.column === 'rules') return { path, x: x1 + 8, y: y1 + (y2 < y1 ? 14 : -6), anchor: 'start' };
  return { path, x: (x1 + x2) / 2, y: (y1 + y2) / 2 - 6, anchor: 'middle' };
}
