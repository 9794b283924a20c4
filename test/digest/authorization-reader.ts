/** A parameter as a strict server reads it, and as it stood on the wire. */
export interface ReadParameter {
  readonly value: string;
  readonly wire: string;
}

const PARAMETER = /([\w!#$%&'*+.^`|~-]+)=("(?:[^"\\]|\\.)*"|[^\s",;\\]+)(?:, |$)/y;

/**
 * Reads an Authorization value with code of its own, so that a fault shared by the parser and the formatter
 * of digest/ is seen. Refuses all that is not exactly a list of distinct parameters.
 */
export function readAuthorization(value: string): Map<string, ReadParameter> {
  if (!value.startsWith('Digest ')) throw new Error('not Digest');
  const parameters = new Map<string, ReadParameter>();
  PARAMETER.lastIndex = 'Digest '.length;
  while (PARAMETER.lastIndex < value.length) {
    const [, name = '', wire = ''] = PARAMETER.exec(value) ?? [];
    if (name === '' || parameters.has(name)) throw new Error(`broken or doubled parameter in ${value}`);
    parameters.set(name, { wire, value: wire.startsWith('"') ? unescaped(wire) : wire });
  }
  return parameters;
}

function unescaped(wire: string): string {
  return wire.slice(1, -1).replace(/\\(.)/gs, '$1');
}
