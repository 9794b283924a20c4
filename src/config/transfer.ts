import { dirname } from 'node:path';
import type { Steps } from '../base/steps.ts';
import type { PartSections } from './include.ts';
import { type Config, sectionsSchema } from './schema.ts';
import { inFolder } from './value-schemas.ts';

/** Maximum number of entries of a large section in one piece. */
const ENTRIES = 50;

/** A checked configuration, serialized for another thread in pieces that are each quick to parse. */
export type Pieces = readonly Uint8Array<ArrayBuffer>[];

type Piece = { readonly [key in keyof PartSections]: readonly (readonly [key: string, value: unknown])[] };

/** Splits a checked tree into pieces. */
export function toPieces(tree: unknown): Pieces {
  const { clients = [], credentials = {}, deployments = {}, ...rest } = tree as PartSections;
  const encoder = new TextEncoder();
  const pieces: Uint8Array<ArrayBuffer>[] = [encoder.encode(JSON.stringify(rest))];
  for (const [section, content] of Object.entries({ clients, credentials, deployments })) {
    const entries = Object.entries(content);
    for (let at = 0; at < entries.length; at += ENTRIES) {
      pieces.push(encoder.encode(JSON.stringify({ [section]: entries.slice(at, at + ENTRIES) })));
    }
  }
  return pieces;
}

/** Puts the pieces of a checked tree together again. */
export function treeOf([rest, ...pieces]: Pieces): unknown {
  const decoder = new TextDecoder();
  const read: Piece[] = pieces.map((bytes) => JSON.parse(decoder.decode(bytes)));
  return {
    ...JSON.parse(decoder.decode(rest)),
    clients: read.flatMap(({ clients = [] }) => clients.map(([, client]) => client)),
    credentials: Object.fromEntries(read.flatMap(({ credentials = [] }) => credentials)),
    deployments: Object.fromEntries(read.flatMap(({ deployments = [] }) => deployments)),
  };
}

type Sections = Readonly<Record<string, unknown>>;

/** Returns the second tree with what `change` makes of the small sections of both, as they are written. */
export function withSections(
  [before]: Pieces,
  [after, ...rest]: Pieces,
  change: (before: Sections, after: Sections) => Sections,
): Pieces {
  const decoder = new TextDecoder();
  const [one, other] = [before, after].map((piece) => JSON.parse(decoder.decode(piece)));
  return [new TextEncoder().encode(JSON.stringify(change(one, other))), ...rest];
}

/** Assembles the configuration from the pieces of a checked tree. */
export function* fromPieces([rest, ...pieces]: Pieces, file: string): Steps<Config> {
  const folder = dirname(file);
  const decoder = new TextDecoder();
  const sections = sectionsSchema();
  const { shape } = sections;
  const config = inFolder(folder, () =>
    sections.parse({ ...JSON.parse(decoder.decode(rest)), deployments: {} }),
  );
  for (const bytes of pieces) {
    const { clients = [], credentials = [], deployments = [] }: Piece = JSON.parse(decoder.decode(bytes));
    yield;
    inFolder(folder, () => {
      config.clients.push(...shape.clients.parse(clients.map(([, value]) => value)));
      Object.assign(config.credentials, shape.credentials.parse(Object.fromEntries(credentials)));
      Object.assign(config.deployments, shape.deployments.parse(Object.fromEntries(deployments)));
    });
    yield;
  }
  return config;
}
