import { z } from 'zod';
import { allowFits, allowSchema } from './allow.ts';
import type { Complaint } from './faults.ts';
import { textAt, valueAt } from './tree.ts';
import { SECTION, text } from './values.ts';

const ID = /^[A-Za-z0-9][\w.-]{0,63}$/;
const ID_FORM = 'letters, digits, "-", "_" and "." only, 64 at most, a letter or digit first';

/** Who may use the gateway, and for what. */
export const clientsSchema = () =>
  z.array(z.strictObject({ id: text(ID_FORM, ID), allow: allowSchema() }, { error: SECTION }), {
    error: 'a list of clients',
  });

/** The rules between clients, and between them and the deployments. */
export function* clientsFit(tree: unknown): Generator<Complaint> {
  const clients = valueAt(tree, ['clients']);
  if (!Array.isArray(clients)) return;
  const seen = new Set<string>();
  for (const index of clients.keys()) {
    const id = textAt(tree, ['clients', index, 'id']);
    if (id !== undefined && seen.has(id)) {
      yield { path: ['clients', index, 'id'], message: 'is that of another client, too: give each its own' };
    }
    if (id !== undefined) seen.add(id);
    yield* allowFits(tree, ['clients', index, 'allow']);
  }
}
