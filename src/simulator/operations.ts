import { abstracts, type Content, submissions } from './content.ts';
import { toJson, toXml } from './documents.ts';
import { failure, type Reply, type SimulatedRequest } from './replies.ts';
import type { Behaviour, CheckedDeployment } from './settings.ts';

type Kind = CheckedDeployment['kind'];

export interface Operation {
  readonly path: string;
  /** The Content-Type of its XML; the specification has a different one for each operation. */
  readonly contentType: string;
  readonly records: ReadonlyMap<string, Content>;
}

/** Returns the operation of a deployment, under its path family. */
export function operationOf(kind: Kind, family: string): Operation {
  if (kind === 'submissions') {
    return {
      path: `/api/${family}/v2/submissions/full/contributors/authors/submissionids`,
      contentType: 'application/xml',
      records: submissions,
    };
  }
  return {
    path: `/api/${family}/v3/abstracts/full/abstractsbyid`,
    contentType: 'application/xml;charset=UTF-8',
    records: abstracts,
  };
}

/** Performs a call of the operation. The site is checked first, then the other parameters. */
export function perform(
  operation: Operation,
  { method, query }: SimulatedRequest,
  sites: ReadonlySet<string>,
  behaviour: Pick<Behaviour, 'ids' | 'json'>,
): Reply | 'wrong-site' {
  if (method !== 'GET' && method !== 'HEAD') {
    const reply = failure(405, 405, 'Only GET is supported.');
    return { ...reply, headers: { ...reply.headers, allow: 'GET, HEAD' } };
  }
  const site = query.get('site_name');
  if (site === null || !sites.has(site)) return 'wrong-site';
  const ids = readIds(query.get('ids') ?? '', behaviour.ids);
  if (ids === undefined) return failure(400, 400, 'The ids parameter is malformed.');
  const externalId = query.get('external_id');
  if (externalId !== null && !/^\d{1,64}$/.test(externalId)) {
    return failure(400, 400, 'The external_id parameter must be digits.');
  }
  const found = ids.map((id) => operation.records.get(id)).filter((record) => record !== undefined);
  const content: Content = {
    status: 'SUCCESS',
    ...(externalId !== null && { externalId }),
    result: found,
  };
  const { json } = behaviour;
  return json !== null && query.get(json.parameter) === json.value
    ? {
        status: 200,
        headers: { 'content-type': 'application/json;charset=UTF-8' },
        body: toJson('response', content),
      }
    : { status: 200, headers: { 'content-type': operation.contentType }, body: toXml('response', content) };
}

/**
 * Parses an `ids` value into identifiers without quotes.
 * @returns undefined if the value is empty, malformed or has too many identifiers.
 */
export function readIds(value: string, { quoted, separator, max }: Behaviour['ids']): string[] | undefined {
  const ids = quoted ? splitQuoted(value, separator) : value.split(separator);
  return ids === undefined || ids.includes('') || ids.length > max ? undefined : ids;
}

function splitQuoted(value: string, separator: string): string[] | undefined {
  const ids: string[] = [];
  let at = 0;
  for (;;) {
    const end = value[at] === "'" ? value.indexOf("'", at + 1) : -1;
    if (end < 0) return undefined;
    ids.push(value.slice(at + 1, end));
    if (end + 1 === value.length) return ids;
    if (value[end + 1] !== separator) return undefined;
    at = end + 2;
  }
}
