import type { Mutation } from '../simulation/mutations.ts';

/** Code that is fuzzed, with the properties that must hold for every input. */
export interface GuidedTarget {
  /** Also the name of the file in this folder that exports `check`, and of its corpus. */
  readonly name: string;
  /** Beginnings of the paths of files whose code is counted, from the root of the repository. */
  readonly counted: readonly string[];
  /** The most bytes of an input. */
  readonly longest: number;
  /** Each has to be found: a search that finds none of them would prove nothing. */
  readonly mutations: readonly Mutation[];
}

export const targets: readonly GuidedTarget[] = [
  {
    name: 'digest',
    counted: ['src/digest/'],
    longest: 4096,
    mutations: [
      {
        name: 'escape-unchecked',
        breaks: 'an escaped character of a quoted string is one that a header may hold',
        file: 'src/digest/parameters.ts',
        find: '        escapes += 1;\n      }',
        replace: '        escapes += 1;\n        this.#at += 1;\n        continue;\n      }',
      },
      {
        name: 'challenges-unbounded',
        breaks: 'the number of challenges in a field is bounded',
        file: 'src/digest/parameters.ts',
        find: 'if (offers.length > bounds.challenges)',
        replace: 'if (offers.length > 1000 * bounds.challenges)',
      },
      {
        name: 'endless-blanks',
        breaks: 'reading a field ends',
        file: 'src/digest/parameters.ts',
        find: '    while (this.#code() === EQUALS) this.#at += 1;',
        replace: '    while (this.#code() === EQUALS || this.#at > 40) this.#at += 1;',
      },
    ],
  },
  {
    name: 'policy',
    counted: ['src/policy/'],
    longest: 2048,
    mutations: [
      {
        name: 'dots-once-decoded',
        breaks: 'a path that a server could read as that of another operation is refused',
        file: 'src/policy/path.ts',
        find: 'isSingleName(decoded) && ',
        replace: '',
      },
      {
        name: 'second-value',
        breaks: 'a parameter that a rule depends on comes once',
        file: 'src/policy/query.ts',
        find: '      if (found !== undefined) {',
        replace: '      if (found !== undefined && found.name === name && pair.name === name) {',
      },
      {
        name: 'malformed-encoding-throws',
        breaks: 'every request is granted, or refused with a code',
        file: 'src/policy/path.ts',
        find: '  } catch {\n    return false;\n  }',
        replace: '  } finally {\n  }',
      },
    ],
  },
  {
    name: 'config',
    counted: ['src/config/', 'node_modules/yaml/dist/'],
    longest: 4096,
    mutations: [
      {
        name: 'encoding-unchecked',
        breaks: 'a file that is no UTF-8 is an issue',
        file: 'src/config/load.ts',
        find: '.decode(content);\n  } catch (error) {\n    throw unreadable(file, error);',
        replace: '.decode(content);\n  } catch (error) {\n    throw error;',
      },
      {
        name: 'parser-message',
        breaks: 'no message quotes the text around an error',
        file: 'src/config/yaml-source.ts',
        find: '    ...distinct.map(({ code, pos }) => faultOf(code, pos[0], text)),',
        replace:
          "    ...distinct.map(({ code, pos }) => ({ ...faultOf(code, pos[0], text), message: code === 'TAG_RESOLVE_FAILED' ? text.slice(...pos) : faultOf(code, pos[0], text).message })),",
      },
    ],
  },
  {
    name: 'audit',
    counted: ['src/audit/'],
    longest: 64,
    mutations: [
      {
        name: 'content-unchecked',
        breaks: 'a seal counts only for the lines that it was made for',
        file: 'src/audit/segments/chain-walk.ts',
        find: '    if (!fits) {',
        replace: '    if (!fits && seal.digest.length === 0) {',
      },
      {
        name: 'heads-unchecked',
        breaks: 'a log that ends before a head that was kept elsewhere was cut off',
        file: 'src/audit/reader/verify.ts',
        find: '    for (const head of this.#heads) {',
        replace: '    for (const head of []) {',
      },
      {
        name: 'stop-forgotten',
        breaks: 'records after a process stopped are an alteration',
        file: 'src/audit/reader/verify.ts',
        find: '    if (records > 0 && stopped) ',
        replace: '    if (records > 1 && stopped) ',
      },
    ],
  },
  {
    name: 'stored',
    counted: [
      'src/challenges/store/',
      'src/challenges/cookies.ts',
      'src/credentials/sealed-file.ts',
      'src/limits/store.ts',
      'src/audit/shipping/',
      'src/digest/',
    ],
    longest: 2048,
    mutations: [
      {
        name: 'count-unbounded',
        breaks: 'the count of a stored challenge has eight hex digits',
        file: 'src/challenges/store/stored-form.ts',
        find: 'z.int().min(0).max(0xffffffff)',
        replace: 'z.int().min(0)',
      },
      {
        name: 'cookies-unchecked',
        breaks: 'stored cookies are such that an upstream could have set',
        file: 'src/challenges/store/stored-form.ts',
        find: '  const cookies = cookiePairs(form.cookies);',
        replace: '  const { cookies } = form;',
      },
      {
        name: 'signature-by-length',
        breaks: 'a signed value is believed only if a key made its signature',
        file: 'src/challenges/store/value-signer.ts',
        find: '!equalInConstantTime(mac, macOf(key, place, issuedAt, life, text))',
        replace: 'mac.length !== macOf(key, place, issuedAt, life, text).length',
      },
    ],
  },
];
