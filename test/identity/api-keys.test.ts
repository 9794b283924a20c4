import { hash } from 'node:crypto';
import { describe, expect, test } from '@jest/globals';
import { ApiKeys, presentedKey, presentedToken } from '../../src/identity/api-keys.ts';

const basic = (text: string) => `Basic ${Buffer.from(text).toString('base64')}`;
const raw = (headers: Record<string, string>) => Object.entries(headers).flat();
const keys = new ApiKeys();
keys.add('reporting', [hash('sha256', 'old'), hash('sha256', 'new')]);
keys.add('importer', [hash('sha256', 'pass:word ü')]);
keys.add('keyless', []);

describe('whose the key of a request is', () => {
  test.each([
    ['X-Api-Key', { 'x-api-key': 'new' }, 'reporting'],
    ['X-Api-Key while another replaces it', { 'x-api-key': 'old' }, 'reporting'],
    ['Basic', { authorization: basic('reporting:new') }, 'reporting'],
    [
      'Basic in another case',
      { authorization: basic('reporting:new').replace('Basic', 'bASIC') },
      'reporting',
    ],
    ['Basic with a colon and UTF-8 in the key', { authorization: basic('importer:pass:word ü') }, 'importer'],
    ['Basic for the proxy', { 'proxy-authorization': basic('reporting:new') }, 'reporting'],
    [
      'Basic for the proxy beside another for the upstream',
      { 'proxy-authorization': basic('reporting:new'), authorization: basic('user:password') },
      'reporting',
    ],
    ['X-Api-Key beside Basic', { 'x-api-key': 'new', authorization: basic('user:password') }, 'reporting'],
    [
      'a wrong X-Api-Key beside a right Basic',
      { 'x-api-key': 'x', authorization: basic('reporting:new') },
      undefined,
    ],
    ['a key and more', { 'x-api-key': 'new ' }, undefined],
    ['the hash instead of the key', { 'x-api-key': hash('sha256', 'new') }, undefined],
    ['the key of another id', { authorization: basic('importer:new') }, undefined],
    ['an id that does not exist', { authorization: basic('nobody:new') }, undefined],
    ['the id of a client without key', { authorization: basic('keyless:new') }, undefined],
    ['a wrong key', { authorization: basic('reporting:wrong') }, undefined],
  ])('%s', (_title, headers, owner) => {
    const key = presentedKey(raw(headers));
    expect(key && keys.ownerOf(key)).toBe(owner);
  });

  test.each([
    ['nothing', {}],
    ['an empty X-Api-Key', { 'x-api-key': '' }],
    ['Basic without colon', { authorization: basic('reporting') }],
    ['Basic without key', { authorization: basic('reporting:') }],
    ['Basic without id', { authorization: basic(':new') }],
    ['Basic of nothing', { authorization: 'Basic' }],
    ['Digest', { authorization: 'Digest username="reporting"' }],
    ['a scheme that begins alike', { authorization: basic('reporting:new').replace('Basic', 'Basics') }],
  ])('%s is no key', (_title, headers) => expect(presentedKey(raw(headers))).toBeUndefined());
});

test.each([
  [{ authorization: 'Bearer abc' }, 'abc'],
  [{ authorization: 'bearer  abc' }, 'abc'],
  [{ 'proxy-authorization': 'Bearer abc', authorization: 'Bearer def' }, 'abc'],
  [{ authorization: 'Bearerabc' }, undefined],
  [{}, undefined],
])('the token of %j is %j', (headers, token) => expect(presentedToken(raw(headers))).toBe(token));
