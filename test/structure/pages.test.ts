import { existsSync, globSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { generatedPages } from '../../docs/generate/pages.ts';
import { errorKinds } from '../../src/base/errors.ts';
import { parseConfig } from '../support/parsed-config.ts';
import { repository } from '../support/repository.ts';

const generated = await generatedPages();

describe('every page', () => {
  const pages = globSync(['*.md', '{docs,lab,deploy}/**/*.md', 'test/*/*.md'], { cwd: repository });
  const textOf = (page: string): string => readFileSync(join(repository, page), 'utf8');
  const withoutCode = (text: string): string => text.replace(/^ *```[\s\S]*?^ *```/gm, '');

  /** The anchors of a page, as GitHub makes them of its headings. */
  function anchorsOf(page: string): string[] {
    const headings = withoutCode(textOf(page)).match(/(?<=^#{1,6} ).*$/gm) ?? [];
    return headings.map((heading) =>
      heading
        .toLowerCase()
        .replace(/[^\p{L}\p{N} _-]/gu, '')
        .replaceAll(' ', '-'),
    );
  }

  /** The links of a page that lead nowhere. */
  function brokenLinks(page: string): string[] {
    const links = Array.from(withoutCode(textOf(page)).matchAll(/\]\(([^)\s]+)\)/g), ([, link = '']) => link);
    return links.filter((link) => {
      if (/^https?:/.test(link)) return false;
      const [file = '', anchor] = link.split('#');
      const target = file === '' ? page : join(dirname(page), file);
      if (!existsSync(join(repository, target))) return true;
      return anchor !== undefined && !anchorsOf(target).includes(anchor);
    });
  }

  describe('the pages', () => {
    test.each(pages)('every link of %s leads somewhere', (page) => expect(brokenLinks(page)).toEqual([]));
  });

  describe('the README', () => {
    const readme = textOf('README.md');

    test('has at most 110 lines', () => expect(readme.split('\n').length).toBeLessThanOrEqual(111));

    test('names scripts of the package', () => {
      const { scripts } = JSON.parse(textOf('package.json'));
      const named = Array.from(readme.matchAll(/npm run (?:-s )?([\w:]+)/g), ([, name = '']) => name);
      expect(named).toContain('demo');
      expect(named.filter((name) => !(name in scripts))).toEqual([]);
    });

    test('has a configuration that is accepted', () => {
      const [, indent = '', yaml = ''] = /^( *)```yaml\n([\s\S]*?)^ *```/m.exec(readme) ?? [];
      const { deployments } = parseConfig(yaml.replaceAll(new RegExp(`^${indent}`, 'gm'), ''), 'README.md');
      expect(deployments['submissions']?.tls.caFile).toBeDefined();
    });
  });

  test('the map in CONTRIBUTING.md has every folder, each once', () => {
    const folders = readdirSync(join(repository, 'src'), { withFileTypes: true }).filter((each) =>
      each.isDirectory(),
    );
    const [, map = ''] = /## The map\n([\s\S]*?)\n## /.exec(textOf('CONTRIBUTING.md')) ?? [];
    const named = Array.from(
      map.matchAll(/^\| \d+ \| ([^|]+) \|/gm),
      ([, cell = '']) => cell.match(/\w+(?=\/)/g) ?? [],
    );
    expect(named.flat().toSorted()).toEqual(folders.map(({ name }) => name).toSorted());
  });

  test('"How a request walks" in CONTRIBUTING.md has every error code, at the steps that it leaves', () => {
    const [, walk = ''] = /## How a request walks\n([\s\S]*?)\n## /.exec(textOf('CONTRIBUTING.md')) ?? [];
    const missing = errorKinds().filter(([code]) => !walk.includes(`\`${code}\``));
    expect(missing.map(([code]) => code)).toEqual([]);
  });
});

describe('the generated pages', () => {
  test.each([...generated])('%s is what "npm run docs" writes', (name, text) => {
    expect(readFileSync(join(repository, name), 'utf8')).toBe(text);
  });

  test('docs/configure/errors.md has a section for every code', () => {
    const headings = (generated.get('docs/configure/errors.md') ?? '').match(/(?<=^## ).*$/gm) ?? [];
    expect(headings.toSorted()).toEqual(
      errorKinds()
        .map(([code]) => code)
        .toSorted(),
    );
  });
});

describe('a page that names tests', () => {
  /** Names in code spans of a line; one without a folder is in the folder of the one before. */
  function testsIn(line: string): string[] {
    let folder = '';
    return Array.from(line.matchAll(/`([\w\-./]+(?:\.test\.ts|\/))`/g), ([, name = '']) => {
      if (!name.startsWith('test/')) return join(folder, name);
      folder = name.endsWith('/') ? name : dirname(name);
      return name;
    });
  }

  test.each(['security/promises.md', 'operate/faults.md'])('names tests that exist: docs/%s', (name) => {
    const page = readFileSync(join(repository, 'docs', name), 'utf8');
    const named = page.split('\n').flatMap(testsIn);
    expect(named.length).toBeGreaterThan(20);
    expect(named.filter((name) => !existsSync(join(repository, name)))).toEqual([]);
  });
});
