import { z } from 'zod';
import { METHODS } from '../base/node-http.ts';
import { PARAMETER_KINDS } from '../policy/parameter.ts';
import { isAmbiguous } from '../policy/path.ts';
import type { Accepted, CrossIssue } from './cross-check.ts';
import { ENTRY_NAMES, oneOf, PARAMETER_NAMES, record, section, text } from './value-schemas.ts';

const FORMS = PARAMETER_KINDS.flatMap((kind) => [kind, `${kind}?`] as const);
const PATH =
  'a path as clients send it, such as /api/reports/{id}: a segment in braces stands for any one segment, and nothing in it can be read in two ways';

const timeouts = () =>
  section({
    // Parsers of YAML 1.1, through which a configuration may have gone, read off as false.
    total: z
      .literal(['off', false], { error: 'off, the only value here' })
      .exactOptional()
      .describe(
        '`off`: the whole request may take any time, as a stream of events does. `timeouts.response` and `timeouts.idle` of the deployment hold still.',
      ),
  });

/** True if requests with this method can reach an upstream. */
export function isMethod(name: string): boolean {
  return name !== 'CONNECT' && METHODS.includes(name);
}

/** Schema of the listed operations of a deployment. */
export const operationsSchema = () =>
  record(
    section({
      method: text('an HTTP method in capitals, such as GET', isMethod)
        .refine((name) => name !== 'HEAD', { error: 'matches nothing, since GET covers HEAD: write GET' })
        .describe('The method. GET covers HEAD, too.'),
      path: text(PATH, isTemplate).describe('The path as the upstream has it.'),
      parameters: record(oneOf(FORMS), PARAMETER_NAMES)
        .prefault({})
        .describe(
          'The query parameters that are checked, by name; others pass. A parameter whose form ends with `?` may be left out.',
        ),
      timeouts: timeouts().exactOptional().describe('Time limits that differ from those of the deployment.'),
    }),
    ENTRY_NAMES,
  );

function isTemplate(path: string): boolean {
  const literal = path.replace(/\/\{[a-z][\w-]*\}(?=\/|$)/gi, '/x');
  return /^\/[\w\-.~%!$&'()*+,=:@/]*$/.test(literal) && !isAmbiguous(literal);
}

type Operations = z.output<ReturnType<typeof operationsSchema>>;

/** The part of a deployment that its operations have to fit. */
interface Surrounding {
  readonly operations?: Operations;
  readonly sites?: object;
  readonly siteParameter?: string;
}

/** Checks the operations of a deployment against each other and its sites. */
export function* operationsIssues(deployment: Accepted<Surrounding>): Generator<CrossIssue> {
  const { operations = {} } = deployment;
  yield* sameRequestIssues(operations);
  for (const [name, operation] of Object.entries(operations)) {
    for (const [parameter, form] of Object.entries(operation?.parameters ?? {})) {
      const message = form && siteIssue(deployment, parameter, form);
      if (message) yield { path: ['operations', name, 'parameters', parameter], message };
    }
  }
}

function* sameRequestIssues(operations: Accepted<Operations>): Generator<CrossIssue> {
  const seen = new Map<string, string>();
  for (const [name, operation] of Object.entries(operations)) {
    if (operation?.method === undefined || operation.path === undefined) continue;
    const request = `${operation.method} ${operation.path.replace(/\{[^{}/]*\}/g, '{}')}`;
    const other = seen.get(request);
    if (other === undefined) seen.set(request, name);
    else yield { path: ['operations', name, 'path'], message: `is that of ${other}, too: describe it once` };
  }
}

function siteIssue(deployment: Accepted<Surrounding>, name: string, form: string): string | undefined {
  const { siteParameter } = deployment;
  const asksForSite = form.startsWith('site');
  if (!('sites' in deployment)) {
    return asksForSite ? 'is a site, and this deployment has none: describe sites, or write text' : undefined;
  }
  if (!asksForSite) return name === siteParameter ? 'names the site: write site' : undefined;
  if (name === siteParameter || (siteParameter === undefined && 'siteParameter' in deployment))
    return undefined;
  return `is not the parameter that names the site: siteParameter is ${siteParameter ?? 'missing'}`;
}
