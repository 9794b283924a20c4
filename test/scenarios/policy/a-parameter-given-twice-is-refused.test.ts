import { expect, test } from '@jest/globals';
import { usePoliced } from '../../support/policed.ts';
import { codeOf, echoOf } from '../../support/wire.ts';

const scene = usePoliced();
const ITEM = '/echo/strict/item';
const A = 'site_name=journal-a';
const ID = 'ids=%27a%27';

test.each([
  `${A}&${A}&${ID}`,
  `${A}&site_name=journal-b&${ID}`,
  `${A}&${ID}&%73ite_name=journal-b`,
  `${A}&${ID}&%2573ite_name=journal-b`,
  `${A}&${ID}&site%5Fname=journal-b`,
  `${A}&${ID}&SITE_NAME=journal-b`,
  `${A}&${ID}&site_name[]=journal-b`,
  `${A}&${ID}&site_name%00=journal-b`,
  `${A}&${ID}&+site_name=journal-b`,
  `${A}&${ID}&site.name=journal-b`,
  `${A}&${ID};site_name=journal-b`,
  `x=1;site_name=journal-b&${A}&${ID}`,
  `${A}&${ID}&${ID}`,
  `${A}&${ID}&ids`,
  `${A}&${ID}&%69ds=x`,
])('%s', async (query) => {
  const before = scene.arrived();
  const answer = await scene.ask(`GET ${ITEM}?${query}`);
  expect([answer.status, codeOf(answer)]).toEqual([400, 'parameter-invalid']);
  expect(scene.arrived()).toBe(before);
});

test('but others may be there as often as a client likes', async () => {
  const target = `${ITEM}?${A}&${ID}&x=1&x=2;x=3&X&=&&`;
  expect(echoOf(await scene.ask(`GET ${target}`)).url).toBe(target);
});

test('and where no rule reads the query, everything passes', async () => {
  const target = '/echo/x?site_name=a&site_name=b;%73ite_name=%ff&ids';
  expect(echoOf(await scene.ask(`GET ${target}`)).url).toBe(target);
});
