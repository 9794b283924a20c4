import { expect, test } from '@jest/globals';
import { usePoliced } from '../../support/policed.ts';
import { codeOf, echoOf } from '../../support/wire.ts';

const scene = usePoliced();

test.each([
  '/echo/strict/parts/a%2fb',
  '/echo/strict/parts/a%2Fb',
  '/echo/strict/parts/a%252fb',
  '/echo/strict/parts/a%5cb',
  '/echo/strict/parts/a\\b',
  '/echo/strict/parts/a%00',
  '/echo/strict/parts/a;b',
  '/echo/strict/parts/a%3Bb',
  '/echo/strict/parts/%c0%af',
  '/echo/strict/parts/%e0%80%af',
  '/echo/strict/parts/%zz',
  '/echo/strict/%69tem',
  '/echo/strict/%2569tem',
  '/echo/strict//item',
  // Under another deployment, whose paths these only seem to be.
  '/echo/%73trict/item',
  '/echo/%2573trict/secret',
  '/echo/STRICT/secret',
  '/echo//strict/secret',
  '/echo/;x/strict/secret',
  '/echo/%2fstrict/secret',
  '/echo/\\strict/secret',
])('%s', async (path) => {
  const before = scene.arrived();
  const answer = await scene.ask(`GET ${path}?site_name=journal-a&ids='a'`);
  expect([answer.status, codeOf(answer)]).toEqual([400, 'bad-request']);
  expect(scene.arrived()).toBe(before);
});

test.each(['/echo/%41%2f%5c%00;x//y', '/echo/x/%2e%2e/y', '/echo/strictly', '/echo/strict%20er'])(
  '%s breaks no rule and passes',
  async (path) => expect(echoOf(await scene.ask(`GET ${path}`)).url).toBe(path),
);
