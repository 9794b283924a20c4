import { expect, test } from '@jest/globals';
import { usePoliced } from '../../support/policed.ts';
import { codeOf, echoOf } from '../../support/wire.ts';

const scene = usePoliced();
const SITE = 'site_name=Revue%20d%E2%80%99%C3%A9t%C3%A9';

test.each([
  ['/echo/one/x', `?${SITE}`],
  ['/echo/one/x?', SITE],
  ['/echo/one/x?a=1', `&${SITE}`],
  ['/echo/one/x?a=1&', SITE],
  ["/echo/one/x//y?ids='a',%27b%27&&=;?", `&${SITE}`],
  [`/echo/one/x?${SITE}`, ''],
])('%s gets %s', async (target, added) => {
  expect(echoOf(await scene.ask(`GET ${target}`)).url).toBe(target + added);
});

test.each([
  ['/echo/one/x?site_name=', 'site-required'],
  ['/echo/one/x?Site_Name=y', 'parameter-invalid'],
  ['/echo/one/x?site_name=y', 'site-unknown'],
  ['/echo/strict/parts/1', 'site-required'],
])('%s does not: %s', async (target, code) => {
  const before = scene.arrived();
  expect(codeOf(await scene.ask(`GET ${target}`))).toBe(code);
  expect(scene.arrived()).toBe(before);
});
