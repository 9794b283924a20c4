import { type Content, failure, type Reply, type SimulatedRequest, toJson, toXml } from './messages.ts';
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

/** Fictional submissions with their authors, by identifier. */
export const submissions: ReadonlyMap<string, Content> = new Map(
  [
    submission('DEMO-2026-0001', 'Salt & light: how tide pools remember', [
      author('1', 'Ada', 'Lindqvist', 'ada.lindqvist@example.org', 'Institute of Shores', true),
      author('2', 'Tomás', 'Ó Briain', 'tomas@example.org', 'Institute of Shores', false),
      author('3', 'Mei', 'Tanaka', 'mei.tanaka@example.net', 'Harbour University', false),
    ]),
    submission('DEMO-2026-0002', 'On the error of "small" samples', [
      author('1', 'Kwame', 'Mensah', 'kwame.mensah@example.org', 'School of Counting', true),
      author('2', 'Ingrid', "D'Angelo", 'ingrid@example.com', 'School of Counting', false),
    ]),
    submission('DEMO-2026-0003', 'When p < 0.05 is not enough', [
      author('1', 'Zoë', 'Nowak', 'zoe.nowak@example.net', 'Harbour University', true),
      author('2', 'Ravi', 'Iyer', 'ravi.iyer@example.org', 'College of Rivers', false),
      author('3', 'Lena', 'Groß', 'lena.gross@example.org', 'College of Rivers', false),
      author('4', '明', '李', 'ming.li@example.com', '河流学院', false),
    ]),
    submission('DEMO-2026-0004', 'A map of quiet places', [
      author('1', 'Sofía', 'Paredes', 'sofia.paredes@example.org', 'Bureau of Maps', true),
    ]),
    submission('DEMO-2026-0005', 'Bridges that hum', [
      author('1', 'Owen', 'Clarke', 'owen.clarke@example.com', 'College of Rivers', true),
      author('2', 'Amina', 'Diallo', 'amina.diallo@example.net', 'Bureau of Maps', false),
    ]),
  ].map((entry) => [entry.submissionId, entry]),
);

/** Fictional abstracts, by identifier. */
const abstracts: ReadonlyMap<string, Content> = new Map(
  [
    abstract('A-1001', 'Tide pools as archives', 'Pools keep a record of storms; we read <sixty> of them.'),
    abstract('A-1002', 'Counting without numbers', 'Crows & children agree on what "more" means.'),
    abstract('A-1003', 'The hum of bridges', 'We measured 40 bridges at night. Most hum in B♭.'),
    abstract('A-1004', 'Quiet places', 'Silence below 20 dB is rare within 5 km of a road.'),
    abstract('A-1005', 'Small samples', 'What can be said from n = 3, and what can not.'),
  ].map((entry) => [entry.abstractId, entry]),
);

function submission(submissionId: string, submissionTitle: string, authors: readonly Content[]) {
  return { submissionId, submissionTitle, authors: { author: authors } };
}

function author(
  order: string,
  firstName: string,
  lastName: string,
  emailAddress: string,
  institution: string,
  corresponding: boolean,
) {
  return {
    authorOrder: order,
    firstName,
    lastName,
    emailAddress,
    affiliation: { institution },
    isCorresponding: String(corresponding),
  };
}

function abstract(abstractId: string, abstractTitle: string, abstractText: string) {
  return { abstractId, abstractTitle, abstractText, abstractStatus: 'Accepted' };
}
