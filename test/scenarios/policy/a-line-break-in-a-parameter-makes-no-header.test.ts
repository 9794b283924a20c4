import { expect, test } from '@jest/globals';
import { usePoliced } from '../../support/policed.ts';
import { codeOf, echoOf } from '../../support/wire.ts';

const scene = usePoliced();

test.each([
  ["/echo/strict/item?site_name=journal-a&ids='a'%0d%0aX-Injected:%20y", 'parameter-invalid'],
  ["/echo/strict/item?site_name=journal-a&ids='a%0aX-Injected:%20y'", 'parameter-invalid'],
  ["/echo/strict/item?site_name=journal-a%0d%0aX-Injected:%20y&ids='a'", 'parameter-invalid'],
  ["/echo/strict/item?site_name=journal-a%250d%250aX-Injected:%20y&ids='a'", 'site-unknown'],
  ['/echo/strict/parts/a%0d%0aX-Injected:%20y?site_name=journal-a', 'bad-request'],
])('%s', async (target, code) => {
  const before = scene.arrived();
  expect(codeOf(await scene.ask(`GET ${target}`))).toBe(code);
  expect(scene.arrived()).toBe(before);
});

test('where no rule reads it, it stays encoded', async () => {
  const target = '/echo/x%0d%0aX-Injected:%20y?a=%0d%0aX-Injected:%20y';
  const { url, rawHeaders } = echoOf(await scene.ask(`GET ${target}`));
  expect(url).toBe(target);
  expect(rawHeaders.map((name) => name.toLowerCase())).not.toContain('x-injected');
});
