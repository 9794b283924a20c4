import { inspect } from 'node:util';
import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { Secret } from '../../src/base/secret.ts';
import { findAlgorithm, hash } from '../../src/digest/algorithms.ts';
import { type PreparedAnswer, prepareAnswer } from '../../src/digest/authorization.ts';
import type { Challenge } from '../../src/digest/challenge.ts';
import { fuzzRuns } from '../support/fuzz.ts';
import { readAuthorization } from './authorization-reader.ts';

function challengeWith(parts: Partial<Challenge> = {}): Challenge {
  const algorithm = findAlgorithm('MD5');
  if (algorithm === undefined) throw new Error('MD5 is unknown');
  return {
    realm: 'r',
    nonce: 'n',
    opaque: undefined,
    algorithm,
    algorithmToken: undefined,
    qop: ['auth'],
    stale: false,
    userhash: false,
    utf8: false,
    ...parts,
  };
}

function prepare(
  parts: Partial<Challenge> = {},
  username = 'u',
  password = 'p',
  cnonce = 'c',
): PreparedAnswer {
  return prepareAnswer(challengeWith(parts), { username, password: new Secret(password) }, cnonce);
}

const request = { method: 'GET', uri: '/', nc: 1 };

describe('no injection', () => {
  const isControl = (text: string) => (text < ' ' && text !== '\t') || text === '\x7f';
  const latin1 = Array.from({ length: 0x100 }, (_, code) => String.fromCharCode(code));
  const forbidden = [...latin1.filter(isControl), '\u0100', '\ud83d\ude00'];
  const hostile = fc.string({
    unit: fc.oneof(
      fc.constantFrom(...latin1.filter((text) => !isControl(text))),
      fc.constantFrom('"', '\\', ', ', '=', '", username="root', '\\", nc=1', ':', '\t'),
    ),
    maxLength: 20,
  });

  type Sent = Record<'realm' | 'nonce' | 'opaque' | 'cnonce' | 'uri', string>;
  const sent = fc.record({ realm: hostile, nonce: hostile, opaque: hostile, cnonce: hostile, uri: hostile });
  const authorize = ({ uri, cnonce, ...challenge }: Sent, qop: Challenge['qop']) =>
    prepare({ ...challenge, qop }, 'u', 'p', cnonce).authorize({ ...request, uri });

  test.each<[Challenge['qop'], string[]]>([
    [[], ['username', 'realm', 'nonce', 'uri', 'opaque', 'response']],
    [['auth'], ['username', 'realm', 'nonce', 'uri', 'opaque', 'cnonce', 'nc', 'qop', 'response']],
    [['auth-int'], ['username', 'realm', 'nonce', 'uri', 'opaque', 'cnonce', 'nc', 'qop', 'response']],
  ])('through realm, nonce, opaque, cnonce and uri with qop %j', (qop, names) => {
    fc.assert(
      fc.property(sent, (values) => {
        const read = readAuthorization(authorize(values, qop));
        expect([...read.keys()]).toEqual(names);
        for (const [name, value] of Object.entries(values)) {
          if (names.includes(name)) expect(read.get(name)?.value).toBe(value);
        }
      }),
      { numRuns: fuzzRuns(1000) },
    );
  });

  test.each<[Partial<Challenge>]>([[{}], [{ utf8: true }]])('through the user name with %j', (parts) => {
    const username = fc.oneof(hostile, fc.string({ unit: 'grapheme' }));
    fc.assert(
      fc.property(username, (text) => {
        const read = readAuthorization(prepare({ ...parts, qop: [] }, text).authorize(request));
        const [form, ...others] = [...read.keys()];
        expect(others).toEqual(['realm', 'nonce', 'uri', 'response']);
        const value = read.get(form ?? '')?.value ?? '';
        expect(
          form === 'username*'
            ? decodeURIComponent(value.slice("UTF-8''".length))
            : Buffer.from(value, 'latin1').toString(),
        ).toBe(text.normalize('NFC'));
      }),
      { numRuns: fuzzRuns(1000) },
    );
  });

  test.each(forbidden)('%j is sent nowhere', (character) => {
    const clean: Sent = { realm: 'r', nonce: 'n', opaque: 'o', cnonce: 'c', uri: '/' };
    expect(authorize(clean, ['auth'])).toContain('uri="/"');
    for (const [name, value] of Object.entries(clean)) {
      const values = { ...clean, [name]: `${value}${character}x` };
      expect(() => authorize(values, ['auth'])).toThrow(RangeError);
    }
  });
});

test.each<[Partial<Challenge>, string]>([
  [{}, 'u'],
  [{ utf8: true }, 'J\u00e4s\u00f8n'],
  [{ userhash: true }, 'u'],
])('quotes what RFC 7616 §3.4 quotes, and names the user once: %j', (parts, username) => {
  const token = { algorithmToken: 'MD5', opaque: 'o', qop: ['auth', 'auth-int'] } as const;
  const sent = [...readAuthorization(prepare({ ...token, ...parts }, username).authorize(request))];
  const names = (quoted: boolean) =>
    sent.filter(([, { wire }]) => wire.startsWith('"') === quoted).map(([name]) => name);
  expect(sent.filter(([name]) => name.startsWith('username'))).toHaveLength(1);
  expect(names(true).filter((name) => name !== 'username')).toEqual([
    'realm',
    'nonce',
    'uri',
    'opaque',
    'cnonce',
    'response',
  ]);
  expect(names(false).filter((name) => !['username*', 'userhash'].includes(name))).toEqual([
    'algorithm',
    'nc',
    'qop',
  ]);
  expect(names(true).includes('username')).toBe(parts.utf8 !== true);
});

describe('user names', () => {
  const userParameter = (username: string, parts: Partial<Challenge>) => {
    const read = readAuthorization(prepare(parts, username).authorize(request));
    return [...read].find(([name]) => name.startsWith('username'));
  };

  test('extended: every character of attr-char stays, all else is encoded', () => {
    const kept = '!#$&+-.^_`|~azAZ09';
    expect(userParameter(`${kept}é'()*% "\\:,`, { utf8: true })).toMatchObject([
      'username*',
      { value: `UTF-8''${kept}%C3%A9%27%28%29%2A%25%20%22%5C%3A%2C` },
    ]);
  });

  test('extended is also the way for a control character; without it the name is refused', () => {
    expect(userParameter('a\nb', { utf8: true })).toMatchObject(['username*', { value: "UTF-8''a%0Ab" }]);
    expect(() => prepare({}, 'a\nb')).toThrow(RangeError);
  });

  test('a hashed name is never extended', () => {
    const [name] = userParameter('Jäsøn', { utf8: true, userhash: true }) ?? [];
    expect(name).toBe('username');
  });

  test('half a surrogate pair does not throw', () => {
    expect(userParameter('a\ud800', { utf8: true })).toMatchObject([
      'username*',
      { value: "UTF-8''a%EF%BF%BD" },
    ]);
  });
});

test('user name and password are the same typed composed or decomposed', () => {
  const composed = prepare({ utf8: true }, 'é', 'ü').authorize(request);
  expect(prepare({ utf8: true }, 'e\u0301', 'u\u0308').authorize(request)).toBe(composed);
});

test('bytes above ASCII in the uri are hashed as they are sent', () => {
  const uri = '/caf\xe9';
  const ha1 = hash('MD5', 'u:r:p');
  const ha2 = hash('MD5', Buffer.from([...'GET:/caf'].map((c) => c.charCodeAt(0)).concat(0xe9)));
  const read = readAuthorization(prepare({ qop: [] }).authorize({ ...request, uri }));
  expect(read.get('uri')?.value).toBe(uri);
  expect(read.get('response')?.value).toBe(hash('MD5', `${ha1}:n:${ha2}`));
});

describe('nc', () => {
  test.each([0, -1, 1.5, 0x1_0000_0000, Number.NaN])('%p is refused', (nc) => {
    expect(() => prepare().authorize({ ...request, nc })).toThrow(RangeError);
    expect(() => prepare().proof({ uri: '/', nc })).toThrow(RangeError);
  });

  test('the highest is sent', () => {
    const read = readAuthorization(prepare().authorize({ ...request, nc: 0xffff_ffff }));
    expect(read.get('nc')?.wire).toBe('ffffffff');
  });

  test('is ignored without qop', () => {
    const answer = prepare({ qop: [] });
    expect(answer.authorize({ ...request, nc: Number.NaN })).toBe(answer.authorize(request));
    expect(answer.proof({ uri: '/', nc: Number.NaN })).toBe(answer.proof({ uri: '/', nc: 1 }));
  });
});

describe('secrets', () => {
  const password = 'correct-horse';
  const ha1 = hash('MD5', `u:r:${password}`);
  const sessionHa1 = hash('MD5', `${ha1}:n:c`);
  const session = findAlgorithm('MD5-sess');
  const answers = [
    prepare({}, 'u', password),
    prepare({ ...(session && { algorithm: session }) }, 'u', password),
  ];

  test.each([
    [
      'inspect',
      (answer: PreparedAnswer) => inspect(answer, { depth: null, showHidden: true, getters: true }),
    ],
    ['JSON', (answer: PreparedAnswer) => JSON.stringify(answer)],
    ['a template', (answer: PreparedAnswer) => `${answer} ${answer.authorize} ${answer.proof}`],
    ['an error', (answer: PreparedAnswer) => inspect(new Error('x', { cause: answer }), { depth: null })],
    ['the header', (answer: PreparedAnswer) => answer.authorize(request)],
  ])('%s shows neither the password nor HA1', (_, print) => {
    for (const answer of answers) {
      const printed = print(answer);
      for (const secret of [password, ha1, sessionHa1]) expect(printed).not.toContain(secret);
    }
  });
});
