import { type Parameter, type ParameterForm, parameterOf } from './parameter.ts';
import { isPlainSegment } from './path.ts';
import { foldPath, lenientReadings, withoutFormat, withoutHost } from './spelling.ts';

/** An operation in the configuration. */
export interface OperationSettings {
  readonly method: string;
  /** A segment in braces, as in `/reports/{id}`, matches any one segment. */
  readonly path: string;
  readonly parameters: Readonly<Record<string, ParameterForm>>;
  readonly timeouts?: { readonly total?: 'off' | false };
}

/** One listed operation of a deployment. */
export interface Operation {
  readonly name: string;
  readonly method: string;
  readonly path: string;
  readonly parameters: readonly Parameter[];
  /** True if `timeouts.total` does not hold. */
  readonly noTotalTimeout: boolean;
}

interface Template {
  readonly operation: Operation;
  /** The path before the first variable segment; rules out most templates at once. */
  readonly start: string;
  /** Undefined matches any segment. */
  readonly segments: readonly (string | undefined)[];
}

/** The operations of one deployment. */
export class Catalogue {
  readonly operations: readonly Operation[];
  readonly #byPath: ReadonlyMap<string, readonly Operation[]>;
  readonly #templates: readonly Template[];
  /** As lenient servers compare them, by method, in the order in which `find` looks. */
  readonly #folded: ReadonlyMap<string, readonly Template[]>;

  constructor(settings: Readonly<Record<string, OperationSettings>>) {
    this.operations = Object.entries(settings).map(([name, { method, path, parameters, timeouts }]) => ({
      name,
      method,
      path,
      parameters: Object.entries(parameters).map(([parameter, form]) => parameterOf(parameter, form)),
      noTotalTimeout: timeouts?.total !== undefined,
    }));
    const literal = this.operations.filter(({ path }) => !path.includes('{'));
    this.#byPath = Map.groupBy(literal, ({ path }) => path);
    const variable = this.operations.filter(({ path }) => path.includes('{'));
    this.#templates = variable.map((operation) => templateOf(operation, operation.path));
    const folded = [...literal, ...variable].map((each) => templateOf(each, foldPath(each.path)));
    this.#folded = Map.groupBy(folded, ({ operation }) => operation.method);
  }

  /** Finds the operation of a path, compared byte for byte. HEAD counts as GET (RFC 9110 §9.3.2). */
  find(method: string, path: string): Operation | undefined {
    const asked = method === 'HEAD' ? 'GET' : method;
    const known = this.#byPath.get(path)?.find((operation) => operation.method === asked);
    if (known !== undefined || this.#templates.length === 0) return known;
    return this.#templates.find(
      (template) =>
        template.operation.method === asked &&
        path.startsWith(template.start) &&
        fits(template, path, isPlainSegment),
    )?.operation;
  }

  /**
   * True if a lenient server could take the path for another operation than `found`: `/reports/expor%74`, which
   * `/reports/{id}` matches, for `/reports/export`. A path that an operation has byte for byte is its own.
   */
  resemblesOther(method: string, path: string, found: Operation | undefined): boolean {
    const asked = method === 'HEAD' ? 'GET' : method;
    const templates = this.#folded.get(asked) ?? [];
    const others = templates.length - (found === undefined ? 0 : 1);
    if (others === 0 || found?.path === path) return false;
    const isOthers = (reading: string): boolean => {
      const taken = templates.find((template) => fits(template, reading, isAnything));
      return taken !== undefined && taken.operation !== found;
    };
    const plain = path.toLowerCase();
    const folded = lenientReadings(path);
    if (folded === undefined) return true;
    return [plain, withoutHost(plain), ...folded, ...folded.map(withoutFormat)].some(isOthers);
  }
}

function templateOf(operation: Operation, path: string): Template {
  const segments = path.split('/').map((segment) => (segment.startsWith('{') ? undefined : segment));
  const [start = ''] = path.split('/{', 1);
  return { operation, start, segments };
}

/** Reads the path from slash to slash, because `split` costs as much as the rest of the lookup. */
function fits({ segments }: Template, path: string, isVariable: (segment: string) => boolean): boolean {
  let start = 0;
  for (const wanted of segments) {
    if (start > path.length) return false;
    const slash = path.indexOf('/', start);
    const end = slash === -1 ? path.length : slash;
    const isFit =
      wanted === undefined
        ? isVariable(path.slice(start, end))
        : wanted.length === end - start && path.startsWith(wanted, start);
    if (!isFit) return false;
    start = end + 1;
  }
  return start > path.length;
}

function isAnything(): boolean {
  return true;
}
