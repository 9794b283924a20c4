import { expect, test } from '@jest/globals';
import fc from 'fast-check';
import { usePoliced } from '../../support/policed.ts';
import { codeOf, echoOf } from '../../support/wire.ts';

const scene = usePoliced();

const piece = fc.constantFrom(
  ...['/', '/', '/', 'echo', 'strict', 'one', 'item', 'parts', 'x', '.', '..', 'ITEM', '%41', '%69tem'],
  ...[
    '%2f',
    '%2F',
    '%2e%2e',
    '%252e%252e',
    '%5c',
    '\\',
    ';',
    ';x',
    '//',
    '%00',
    '%c0%ae',
    '%',
    '%zz',
    '%u002e',
  ],
);
const path = fc
  .tuple(
    fc.constantFrom('/echo', '/echo/strict', '/echo/strict/item', '/echo/strict/parts/', '/echo/one/item'),
    fc.array(piece, { maxLength: 6 }),
  )
  .map(([start, pieces]) => start + pieces.join(''));
const parameter = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.constantFrom('site_name=journal-a', "ids='a'", 'ids=%27a%27,%27b%27', 'x=%zz', ''),
  },
  fc.constantFrom(
    ...['site_name=journal-b', 'site_name=Revue%20d%E2%80%99%C3%A9t%C3%A9', 'site_name=x', 'site_name='],
    ...[
      '%73ite_name=journal-b',
      'Site_Name=journal-a',
      'site_name[]=x',
      'ids=a',
      "ids='a'%0d%0aX:%20y",
      "ids='a",
    ],
  ),
);
const query = fc
  .array(fc.tuple(parameter, fc.constantFrom('&', '&', '&', '&', ';', '?')), { maxLength: 4 })
  .map((pairs) => pairs.map(([text, separator]) => text + separator).join(''));
const almost = fc
  .tuple(fc.constantFrom('/echo/strict/item', '/echo/strict/parts/x'), query)
  .map(([left, right]) => `${left}?site_name=journal-a&ids='a'&${right}`);
const anyTarget = fc
  .tuple(path, fc.option(query, { nil: undefined }))
  .map(([left, right]) => (right === undefined ? left : `${left}?${right}`));

const target = fc.oneof(anyTarget, almost);

/** One of each outcome, so that no run goes without. */
const EXAMPLES = [
  "/echo/strict/item?site_name=journal-a&ids='a'",
  '/echo/strict/parts/x?site_name=journal-b',
  '/echo/strict/other?site_name=journal-b',
  "/echo/one/item?ids='a'",
  '/echo/one/item?ids=a',
  '/echo/x',
  '/echo/x/../strict',
];

test('and what is allowed goes out exactly as it was judged, whatever the target', async () => {
  const outcomes = new Set<string>();
  await scene.ask('GET /echo');
  await fc.assert(
    fc.asyncProperty(target, async (asked) => {
      const before = scene.arrived();
      const explanation = scene.explained(asked);
      const answer = await scene.ask(`GET ${asked}`);
      outcomes.add(explanation.allowed ? explanation.deployment : explanation.code);
      if (!explanation.allowed) {
        expect([answer.status, codeOf(answer)]).toEqual([explanation.status, explanation.code]);
        expect(scene.arrived()).toBe(before);
        return;
      }
      const { url } = echoOf(answer);
      expect(explanation.sends).toMatch(/^GET https:\/\/127\.0\.0\.1:\d+\//);
      expect(explanation.sends.endsWith(url)).toBe(true);
      expect(explanation.siteAdded ? url.startsWith(asked) : url === asked).toBe(true);
    }),
    { numRuns: 600, examples: EXAMPLES.map((each) => [each]) },
  );
  // The targets are not all refused, nor for the same reason.
  const met = ['strict', 'one', 'free', 'bad-request', 'operation-unlisted', 'parameter-invalid'];
  expect([...outcomes]).toEqual(expect.arrayContaining(met));
});
