import { hash } from 'node:crypto';
import { describe, expect, test } from '@jest/globals';
import { ApiKeys, rankClient } from '../../src/identity/client-index.ts';
import { presentedIdentity } from '../../src/identity/identification.ts';

const basic = (text: string) => `Basic ${Buffer.from(text).toString('base64')}`;
const raw = (headers: Record<string, string>) => Object.entries(headers).flat();
const keys = new ApiKeys();
const owned = { reporting: ['old', 'new'], importer: ['pass:word ü'], keyless: [] };
for (const [id, secrets] of Object.entries(owned)) {
  const apiKeySha256 = secrets.map((secret) => hash('sha256', secret));
  keys.add(rankClient({ id, allow: [], identify: { apiKeySha256 } }, 0));
}

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
    ['a key and more', { 'x-api-key': 'new ' }, undefined],
    ['the hash instead of the key', { 'x-api-key': hash('sha256', 'new') }, undefined],
    ['the key of another id', { authorization: basic('importer:new') }, undefined],
    ['an id that does not exist', { authorization: basic('nobody:new') }, undefined],
    ['the id of a client without key', { authorization: basic('keyless:new') }, undefined],
    ['a wrong key', { authorization: basic('reporting:wrong') }, undefined],
  ])('%s', (_title, headers, owner) => {
    const key = presentedIdentity(raw(headers), true)?.key;
    expect(key && keys.find(key)?.owner.client.id).toBe(owner);
  });

  test.each([
    ['an empty X-Api-Key', { 'x-api-key': '' }],
    ['Basic without colon', { authorization: basic('reporting') }],
    ['Basic without key', { authorization: basic('reporting:') }],
    ['Basic without id', { authorization: basic(':new') }],
    ['Basic of nothing', { authorization: 'Basic' }],
    ['X-Api-Key beside Basic', { 'x-api-key': 'new', authorization: basic('reporting:new') }],
    ['Basic in two fields', { 'proxy-authorization': basic('a:b'), authorization: basic('reporting:new') }],
    ['a token in two fields', { 'proxy-authorization': 'Bearer abc', authorization: 'Bearer abc' }],
    ['a token with a space', { authorization: 'Bearer a b' }],
  ])('%s is malformed', (_title, headers) => {
    expect(presentedIdentity(raw(headers), true)).toEqual({ malformed: expect.any(String) });
  });

  test.each([
    ['nothing', {}],
    ['Digest', { authorization: 'Digest username="reporting"' }],
    ['a scheme that begins alike', { authorization: basic('reporting:new').replace('Basic', 'Basics') }],
    ['a token where none is accepted', { authorization: 'Bearer abc' }],
  ])('%s presents no identity', (_title, headers) => {
    expect(presentedIdentity(raw(headers), false)).toBeUndefined();
  });
});

test('the fields of a head of 1 MiB are read in linear time', () => {
  const headers = Array<string[]>(80_000).fill(['x-api-key', '']).flat();
  const before = process.threadCpuUsage();
  expect(presentedIdentity(headers, true)).toEqual({ malformed: 'x-api-key twice' });
  const { user, system } = process.threadCpuUsage(before);
  // Each line compared with all others takes a minute and more.
  expect((user + system) / 1000).toBeLessThan(3_000);
});

test.each([
  [{ authorization: 'Bearer abc' }, 'abc'],
  [{ authorization: 'bearer  abc' }, 'abc'],
  [{ 'proxy-authorization': 'Bearer abc', authorization: 'Digest a="b"' }, 'abc'],
  [{ authorization: 'Bearerabc' }, undefined],
  [{}, undefined],
])('the token of %j is %j', (headers, token) => {
  expect(presentedIdentity(raw(headers), true)?.token).toBe(token);
});
