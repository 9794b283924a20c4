import type { Chunk, Expression, Statement } from 'luaparse';

export type LuaFunction = (...args: LuaValue[]) => LuaValue[];
/** Undefined: nil. */
export type LuaValue = undefined | boolean | number | string | LuaTable | LuaFunction;

export class LuaTable {
  readonly #entries = new Map<LuaValue, LuaValue>();

  static of(items: readonly LuaValue[]): LuaTable {
    const table = new LuaTable();
    for (const [at, item] of items.entries()) table.set(at + 1, item);
    return table;
  }

  /** @throws TypeError if it is something else */
  static check(value: LuaValue): LuaTable {
    if (value instanceof LuaTable) return value;
    throw new TypeError('not a table');
  }

  get length(): number {
    let count = 0;
    while (this.#entries.has(count + 1)) count += 1;
    return count;
  }

  get(key: LuaValue): LuaValue {
    return this.#entries.get(key);
  }

  set(key: LuaValue, value: LuaValue): void {
    if (value === undefined) this.#entries.delete(key);
    else this.#entries.set(key, value);
  }
}

/** A number, or the text of one. @throws TypeError if it is neither */
export function numberOf(value: LuaValue): number {
  const number = typeof value === 'string' && value.trim() !== '' ? Number(value) : value;
  if (typeof number !== 'number') throw new TypeError('arithmetic on what is no number');
  return number;
}

/** Helpers of translated scripts. */
const runtime = {
  LuaTable,
  n: numberOf,
  /** Only nil and false are not true. */
  t: (value: LuaValue): boolean => value !== undefined && value !== false,
  index: (table: LuaValue, key: LuaValue): LuaValue => LuaTable.check(table).get(key),
  len: (value: LuaValue): number =>
    typeof value === 'string' ? Buffer.byteLength(value) : LuaTable.check(value).length,
  call: (target: LuaValue, args: LuaValue[]): LuaValue[] => {
    if (typeof target !== 'function') throw new TypeError('call of what is no function');
    return target(...args);
  },
  /** Numbers compare with numbers, texts with texts. */
  less: (a: LuaValue, b: LuaValue): boolean => {
    if (typeof a === 'number' && typeof b === 'number') return a < b;
    if (typeof a === 'string' && typeof b === 'string') return a < b;
    throw new TypeError('comparison of different types');
  },
  atMost: (a: LuaValue, b: LuaValue): boolean => {
    if (typeof a === 'number' && typeof b === 'number') return a <= b;
    if (typeof a === 'string' && typeof b === 'string') return a <= b;
    throw new TypeError('comparison of different types');
  },
  concat: (a: LuaValue, b: LuaValue): string => {
    for (const part of [a, b]) {
      if (typeof part !== 'string' && typeof part !== 'number') throw new TypeError('concatenation');
    }
    return `${a}${b}`;
  },
  items: (list: LuaValue): [number, LuaValue][] => {
    const table = LuaTable.check(list);
    return Array.from({ length: table.length }, (_, at) => [at + 1, table.get(at + 1)]);
  },
};

/**
 * Translates a script to JavaScript: the part of Lua that the gateway's scripts use.
 * @throws TypeError for anything else
 */
export function compileLua(chunk: Chunk, globals: ReadonlyMap<string, LuaValue>): LuaFunction {
  const body = block(chunk.body, new Set());
  const make = new Function('R', 'G', `'use strict'; return function script() {${body} return [];};`);
  return make(runtime, globals);
}

/** Names of the local variables in scope. A block that declares more has a scope of its own. */
type Scope = Set<string>;

function block(statements: readonly Statement[], outer: Scope): string {
  const scope = new Set(outer);
  return statements.map((each) => statement(each, scope)).join('\n');
}

const name = (identifier: string): string => `L_${identifier}`;

function statement(node: Statement, scope: Scope): string {
  switch (node.type) {
    case 'LocalStatement': {
      const values = list(node.init, scope);
      const names = node.variables.map((variable) => variable.name);
      for (const each of names) scope.add(each);
      return `var [${names.map(name).join(', ')}] = ${values};`;
    }
    case 'AssignmentStatement': {
      const values = list(node.init, scope);
      const sets = node.variables.map((target, at) => assignment(target, `v[${at}]`, scope));
      return `{ const v = ${values}; ${sets.join(' ')} }`;
    }
    case 'CallStatement':
      return `${many(node.expression, scope)};`;
    case 'ReturnStatement':
      return `return ${list(node.arguments, scope)};`;
    case 'IfStatement':
      return node.clauses
        .map((clause) => {
          const body = block(clause.body, scope);
          if (clause.type === 'ElseClause') return `{ ${body} }`;
          return `if (R.t(${one(clause.condition, scope)})) { ${body} }`;
        })
        .join(' else ');
    case 'ForNumericStatement': {
      const inner = new Set(scope).add(node.variable.name);
      const at = name(node.variable.name);
      const step = node.step === null ? '1' : one(node.step, scope);
      const end = `R.n(${one(node.end, scope)})`;
      return `for (let i = R.n(${one(node.start, scope)}), e = ${end}; i <= e; i += ${step}) { let ${at} = i; ${block(node.body, inner)} }`;
    }
    case 'ForGenericStatement': {
      const inner = new Set(scope);
      for (const variable of node.variables) inner.add(variable.name);
      const names = node.variables.map((variable) => name(variable.name));
      const [iterated] = node.iterators;
      if (iterated === undefined) throw new TypeError('a loop over nothing');
      return `for (const [${names.join(', ')}] of R.items(${one(iterated, scope)})) { ${block(node.body, inner)} }`;
    }
    case 'FunctionDeclaration':
      return functionDeclaration(node, scope);
    default:
      throw new TypeError(`not translated: ${node.type}`);
  }
}

function functionDeclaration(
  node: Extract<Statement, { type: 'FunctionDeclaration' }>,
  scope: Scope,
): string {
  const { identifier, parameters, body } = node;
  if (identifier?.type !== 'Identifier' || !node.isLocal) throw new TypeError('not translated: a method');
  scope.add(identifier.name);
  const inner = new Set(scope);
  const names = parameters.map((parameter) => {
    if (parameter.type !== 'Identifier') throw new TypeError('not translated: varargs');
    inner.add(parameter.name);
    return name(parameter.name);
  });
  return `const ${name(identifier.name)} = (${names.join(', ')}) => { ${block(body, inner)} return []; };`;
}

function assignment(target: Expression, value: string, scope: Scope): string {
  if (target.type === 'Identifier' && scope.has(target.name)) return `${name(target.name)} = ${value};`;
  if (target.type === 'IndexExpression') {
    return `R.LuaTable.check(${one(target.base, scope)}).set(${one(target.index, scope)}, ${value});`;
  }
  throw new TypeError(`not translated: assignment to ${target.type}`);
}

/** The values of expressions as an array; the last call gives all its values. */
function list(expressions: readonly Expression[], scope: Scope): string {
  const items = expressions.map((each, at) =>
    at === expressions.length - 1 && each.type === 'CallExpression'
      ? `...${many(each, scope)}`
      : one(each, scope),
  );
  return `[${items.join(', ')}]`;
}

/** All values of a call, as an array. */
function many(node: Expression, scope: Scope): string {
  if (node.type !== 'CallExpression') throw new TypeError(`not translated: ${node.type}`);
  return `R.call(${one(node.base, scope)}, ${list(node.arguments, scope)})`;
}

const ARITHMETIC: ReadonlySet<string> = new Set(['+', '-', '*', '/']);

function binary(operator: string, a: string, b: string): string {
  if (ARITHMETIC.has(operator)) return `(R.n(${a}) ${operator} R.n(${b}))`;
  switch (operator) {
    case '==':
      return `(${a} === ${b})`;
    case '~=':
      return `(${a} !== ${b})`;
    case '<':
      return `R.less(${a}, ${b})`;
    case '>':
      return `R.less(${b}, ${a})`;
    case '<=':
      return `R.atMost(${a}, ${b})`;
    case '>=':
      return `R.atMost(${b}, ${a})`;
    case '..':
      return `R.concat(${a}, ${b})`;
    default:
      throw new TypeError(`not translated: ${operator}`);
  }
}

function unary(operator: string, value: string): string {
  switch (operator) {
    case 'not':
      return `!R.t(${value})`;
    case '-':
      return `-R.n(${value})`;
    case '#':
      return `R.len(${value})`;
    default:
      throw new TypeError(`not translated: ${operator}`);
  }
}

/** The value of an expression. */
function one(node: Expression, scope: Scope): string {
  switch (node.type) {
    case 'StringLiteral':
      return JSON.stringify(node.value);
    case 'NumericLiteral':
      return String(node.value);
    case 'BooleanLiteral':
      return String(node.value);
    case 'NilLiteral':
      return 'undefined';
    case 'Identifier':
      return scope.has(node.name) ? name(node.name) : `G.get(${JSON.stringify(node.name)})`;
    case 'MemberExpression':
      return `R.index(${one(node.base, scope)}, ${JSON.stringify(node.identifier.name)})`;
    case 'IndexExpression':
      return `R.index(${one(node.base, scope)}, ${one(node.index, scope)})`;
    case 'CallExpression':
      return `${many(node, scope)}[0]`;
    case 'BinaryExpression':
      return binary(node.operator, one(node.left, scope), one(node.right, scope));
    case 'LogicalExpression':
      return logical(node.operator, one(node.left, scope), one(node.right, scope));
    case 'UnaryExpression':
      return unary(node.operator, one(node.argument, scope));
    case 'TableConstructorExpression':
      return table(node, scope);
    default:
      throw new TypeError(`not translated: ${node.type}`);
  }
}

function logical(operator: string, a: string, b: string): string {
  const [yes, no] = operator === 'and' ? [b, 'x'] : ['x', b];
  return `((x) => R.t(x) ? ${yes} : ${no})(${a})`;
}

function table(node: Extract<Expression, { type: 'TableConstructorExpression' }>, scope: Scope): string {
  const items = node.fields.map((field) => {
    if (field.type !== 'TableValue') throw new TypeError('not translated: a table with names');
    return field.value;
  });
  return `R.LuaTable.of(${list(items, scope)})`;
}
