import { z } from 'zod';
import { type Position, parseCursor } from '../audit/reader/newest-first.ts';
import {
  addressCriterion,
  addressForms,
  codeCriterion,
  instantAfter,
  instantAt,
  KINDS,
  type Query,
  REQUEST_CRITERIA,
  replicaCriterion,
  statusCriterion,
} from '../audit/reader/query.ts';
import { DEFAULT_FIELDS, usageFields } from '../audit/reader/usage.ts';
import { parsed } from '../config/value-schemas.ts';

/** Results of one page. */
const MOST_RESULTS = 200;
const RESULTS = 50;
/** Longest time of one page. */
const MOST_SECONDS = 20;
const LONGEST = 512;

/** A parameter of the URL, which `parse` reads or refuses with a RangeError. */
const read = <T>(parse: (text: string) => T) => parsed(z.string(), parse);

const text = z
  .string()
  .min(1, { error: 'is empty: leave it out' })
  .max(LONGEST, { error: `is longer than ${LONGEST} characters` });

const whole = (most: number) => {
  const error = `is a whole number from 1 to ${most}`;
  return z
    .string()
    .regex(/^[1-9]\d{0,8}$/, { error })
    .transform(Number)
    .refine((number) => number <= most, { error });
};

const oneOf = <const Values extends readonly string[]>(values: Values) =>
  z.enum(values, { error: `is one of ${values.join(', ')}` });

const cursor = read((given) => {
  const position = parseCursor(given);
  if (position !== undefined) return position;
  throw new RangeError('is not a cursor: give the one of the page before, or none');
});

const criteria = {
  client: text.exactOptional(),
  deployment: text.exactOptional(),
  site: text.exactOptional(),
  operation: text.exactOptional(),
  identifier: text.exactOptional(),
  requestId: text.exactOptional(),
  address: read(addressCriterion).exactOptional(),
  status: read(statusCriterion).exactOptional(),
  code: read(codeCriterion).exactOptional(),
  outcome: text.exactOptional(),
  kind: oneOf(KINDS).exactOptional(),
  text: text.exactOptional(),
  replica: read(replicaCriterion).exactOptional(),
  from: read(instantAt).exactOptional(),
  to: read(instantAfter).exactOptional(),
};

const paging = {
  cursor: cursor.optional(),
  limit: whole(MOST_RESULTS).default(RESULTS),
  seconds: whole(MOST_SECONDS).default(MOST_SECONDS),
};

const searchParameters = z.strictObject({ ...criteria, ...paging });
const exportParameters = z.strictObject({
  ...criteria,
  format: oneOf(['csv', 'jsonl']).default('csv'),
});
const requestParameters = z.strictObject({
  requestId: text,
  from: criteria.from,
  to: criteria.to,
  ...paging,
});

const usageParameters = z.strictObject({
  by: read(usageFields).prefault(DEFAULT_FIELDS),
  replica: criteria.replica,
  from: criteria.from,
  to: criteria.to,
  format: oneOf(['json', 'csv']).default('json'),
});

type Criteria = Omit<z.output<typeof exportParameters>, 'format'>;

export interface PageRequest {
  readonly query: Query;
  readonly limit: number;
  readonly after: Position | undefined;
  readonly budgetMs: number;
}

/** The parameters of a request are wrong. The message says why, in sentences. */
export class ParameterError extends Error {
  /** The names of those that are wrong. */
  readonly parameters: readonly string[];

  constructor(message: string, parameters: readonly string[]) {
    super(message);
    this.parameters = parameters;
  }
}

/** Reads the parameters of a search. @throws ParameterError */
export function readSearch(parameters: unknown): PageRequest {
  return pageRequest(readAll(searchParameters, parameters));
}

/** Reads the parameters of an export. @throws ParameterError */
export function readExport(parameters: unknown) {
  const { format, ...given } = readAll(exportParameters, parameters);
  return { query: queryOf(given), format };
}

/** Reads the parameters of the records of one request. @throws ParameterError */
export function readRequest(requestId: string, parameters: unknown): PageRequest {
  return pageRequest(readAll(requestParameters, { ...(parameters as object), requestId }));
}

function pageRequest(parameters: z.output<typeof searchParameters>): PageRequest {
  const { cursor: after, limit, seconds, ...given } = parameters;
  return { query: queryOf(given), limit, after, budgetMs: seconds * 1000 };
}

/** Reads the parameters of usage. @throws ParameterError */
export function readUsage(parameters: unknown) {
  const { by, format, ...given } = readAll(usageParameters, parameters);
  return { query: queryOf(given), by, format };
}

function queryOf({ from, to, identifier, address, ...given }: Criteria): Query {
  if (from !== undefined && to !== undefined && from >= to) {
    const message = `The parameter from begins at ${from}, and to ends at ${to}: no time lies between them.`;
    throw new ParameterError(message, ['from', 'to']);
  }
  const query: Query = {
    ...given,
    since: from,
    until: to,
    id: identifier,
    address: address === undefined ? undefined : addressForms(address),
  };
  if (query.kind !== 'events') return query;
  const foreign = REQUEST_CRITERIA.find((each) => query[each] !== undefined);
  if (foreign === undefined) return query;
  throw new ParameterError(
    'Events have no client, site or status: search them by from, to, replica and text.',
    ['kind'],
  );
}

function readAll<T extends z.ZodType>(schema: T, parameters: unknown): z.output<T> {
  const result = schema.safeParse({ ...(parameters as object) });
  if (result.success) return result.data;
  const { issues } = result.error;
  throw new ParameterError(issues.map((issue) => sentence(issue, schema)).join(' '), issues.flatMap(namesOf));
}

function namesOf(issue: z.core.$ZodIssue): string[] {
  return issue.code === 'unrecognized_keys'
    ? issue.keys.map((key) => key.slice(0, 64))
    : [issue.path.join('.')];
}

function sentence(issue: z.core.$ZodIssue, schema: z.ZodType): string {
  const name = namesOf(issue).join(', ');
  if (issue.code === 'unrecognized_keys') {
    const known = schema instanceof z.ZodObject ? Object.keys(schema.shape).join(', ') : '';
    return `Unknown parameter: ${name}. Known are ${known}.`;
  }
  if (issue.code === 'invalid_type') return `The parameter ${name} is given more than once.`;
  return `The parameter ${name} cannot be used: ${issue.message}.`;
}
