import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { GatewayError } from '../../src/base/errors.ts';
import { decide, type Grant } from '../../src/policy/decide.ts';
import { compileRules } from '../../src/policy/rules.ts';
import { cpuMeter } from '../support/measure.ts';
import {
  AUTHORS,
  type ClientName,
  clientOf,
  type DeploymentName,
  deployments,
  REPORTS,
  rulesOf,
} from './world.ts';

function granted(client: ClientName, deployment: DeploymentName, target: string): Grant | undefined {
  try {
    const request = { method: 'GET', target, headers: [], hasBody: false };
    return decide(rulesOf(deployment), clientOf(client), request, 0);
  } catch (error) {
    if (error instanceof GatewayError) return undefined;
    throw error;
  }
}

const odd = fc.constantFrom(
  ...[
    '/',
    '.',
    '..',
    '%2e',
    '%2E%2e',
    '%252e',
    '%2f',
    '%5c',
    '\\',
    ';',
    '//',
    '%00',
    '%',
    '%c0%ae',
    'a',
    'B',
    '~',
  ],
);
const name = fc.constantFrom(
  ...[
    'site_name',
    'ids',
    '%73ite_name',
    'Site_Name',
    'site_name[]',
    'site%5fname',
    '%2573ite_name',
    'ID',
    'x',
    '',
  ],
);
const value = fc.constantFrom(
  ...[
    'journal-a',
    'journal-b',
    'journal%2da',
    'journal-a+',
    "'a'",
    "'a','b'",
    "'a','b','c'",
    '%27a%27',
    '%2527',
    '',
  ],
);
const query = fc
  .array(fc.tuple(name, value, fc.constantFrom('&', '&', '&', ';')), { maxLength: 6 })
  .map((pairs) => pairs.map(([left, right, end]) => `${left}=${right}${end}`).join(''));

/** How other servers read a query: at & alone or at ; too, names as they are or in lower case, decoded once or twice. */
function readings(text: string): { name: string; value: string }[][] {
  return [/&/, /[&;]/].flatMap((separator) =>
    [text, decodeURIComponent(text)].map((once) =>
      once.split(separator).flatMap((pair) =>
        [...new URLSearchParams(pair.replaceAll('&', '%26'))].map(([key, content]) => ({
          name: key.toLowerCase().replace(/\[.*/, ''),
          value: content,
        })),
      ),
    ),
  );
}

describe('however a server reads what was granted', () => {
  test('the site is the one that was judged, and allowed', () => {
    let grants = 0;
    fc.assert(
      fc.property(query, (text) => {
        const grant = granted('reporting', 'inject', `${REPORTS}/7?site_name=journal-a&${text}`);
        const injected = granted('reporting', 'inject', `${REPORTS}/7?${text}`);
        for (const { target, site } of [grant, injected].filter((each) => each !== undefined)) {
          grants += 1;
          expect(site).toBe('journal-a');
          for (const reading of readings(target.slice(target.indexOf('?') + 1))) {
            const sites = reading.filter(({ name: key }) => key === 'site_name');
            expect(sites.map(({ value: named }) => named)).toEqual(['journal-a']);
          }
        }
      }),
      { numRuns: 3000 },
    );
    expect(grants).toBeGreaterThan(100);
  });

  test('there are no more identifiers than allowed', () => {
    let grants = 0;
    fc.assert(
      fc.property(query, (text) => {
        const grant = granted('limited', 'bare', `/bare/?${text}`);
        if (grant === undefined) return;
        grants += 1;
        for (const reading of readings(text)) {
          const lists = reading.filter(({ name: key }) => key === 'ids');
          expect(lists.length).toBeLessThanOrEqual(1);
          for (const list of lists) expect(list.value.split(',').length).toBeLessThanOrEqual(2);
        }
      }),
      { numRuns: 3000 },
    );
    expect(grants).toBeGreaterThan(100);
  });

  test('the path is that of a listed operation', () => {
    let grants = 0;
    const path = fc
      .tuple(fc.constantFrom(AUTHORS, `${REPORTS}/`, REPORTS, '/api/'), fc.array(odd, { maxLength: 5 }))
      .map(([start, pieces]) => start + pieces.join(''));
    fc.assert(
      fc.property(path, (asked) => {
        const grant = granted('anonymous', 'strict', `${asked}?site_name=journal-a&ids='a'`);
        if (grant === undefined) return;
        grants += 1;
        const { pathname } = new URL(grant.target, 'https://strict.example.org');
        const plain = decodeURIComponent(pathname);
        expect(pathname).toBe(asked);
        expect(plain === AUTHORS || /^\/api\/v2\/reports\/[^/\\;%]+$/.test(plain)).toBe(true);
      }),
      { numRuns: 3000 },
    );
    expect(grants).toBeGreaterThan(100);
  });

  test('its bytes are those that were asked for', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary-ascii' }), query, (path, text) => {
        const target = `/bare/${path}?${text}`;
        expect(granted('anonymous', 'bare', target)?.target).toBe(target);
        const other = granted('anonymous', 'open', `/api/${path}?site_name=journal-a&x=${text}`);
        if (other !== undefined) expect(other.target).toBe(`/api/${path}?site_name=journal-a&x=${text}`);
      }),
    );
  });
});

describe('a target of 16 KiB is judged in no time', () => {
  const fill = (text: string) => text.repeat(Math.ceil(16_384 / text.length)).slice(0, 16_384);
  const parts = [
    '%25',
    '%',
    '%2',
    '../',
    '/',
    ';',
    '%c0%ae',
    'a',
    '\\',
    '%%32e',
    "'a',",
    "'",
    '&',
    '=',
    '&ids=',
    '[',
    '+',
    ':',
    '.',
    '. +',
    ':$',
    '%3A',
    '%0a',
    'a/',
    'a//',
    '/;',
  ];
  // Each slash is the end of a host, and each reading ends with the name.
  const half = fill('a/').slice(0, 8_192);
  const pairs = [
    `/;/${half}`,
    `//h;/${half}`,
    `/;/${half}x${'+'.repeat(8_000)}.a`,
    `/%2f${half}${'.'.repeat(8_000)}a.a`,
  ];

  test.each(pairs)('%.20s…', (path) => {
    const operations = Object.fromEntries(
      Array.from({ length: 500 }, (_, at) => [
        `o${at}`,
        { method: 'GET', path: `/${at}/{id}/a/a`, parameters: {} },
      ]),
    );
    const shared = { ...deployments.rest, operations };
    const rules = compileRules('rest', shared, { ...deployments, rest: shared });
    const own = compileRules('whole', { ...deployments.whole, operations }, deployments);
    const cpuMs = cpuMeter();
    for (const each of [rules, own]) {
      const request = { method: 'GET', target: path, headers: [], hasBody: false };
      expect(() => decide(each, clientOf('anonymous'), request, 0)).toThrow(GatewayError);
    }
    expect(cpuMs()).toBeLessThan(100);
  });

  test.each(parts)('%j', (part) => {
    const text = fill(part);
    const cpuMs = cpuMeter();
    for (const deployment of ['open', 'strict', 'inject', 'bare', 'v1'] as const) {
      granted('anonymous', deployment, `/api/${text}`);
      granted('anonymous', deployment, `${AUTHORS}?site_name=journal-a&ids=${text}`);
      granted('limited', deployment, `/bare/?${text}&ids=${text}`);
    }
    for (const deployment of ['rest', 'whole'] as const) {
      granted('anonymous', deployment, `//${text}`);
      granted('anonymous', deployment, `/%2f${text}`);
    }
    expect(cpuMs()).toBeLessThan(500);
  });
});
