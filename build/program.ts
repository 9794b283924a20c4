import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Plugin, rolldown } from 'rolldown';

// `npm run build` writes the program into dist/cli. Tests and benchmarks run what the same function builds.

/** What the processes and threads of the program load, by the names that they load it by. */
const ENTRIES = {
  main: 'src/cli/main.ts',
  'load-worker': 'src/config/load-worker.ts',
  'sink-thread': 'src/audit/shipping/sink-thread.ts',
  'search-worker': 'src/audit/reader/search-worker.ts',
};

/** A folder of a package below node_modules, at the start of a file's path. */
const PACKAGE = /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+/;

/** Files of packages without what a start would load of them and the program never uses. */
const REDUCED: readonly (readonly [file: RegExp, reduce: (code: string) => string])[] = [
  // It takes 20 ms of a start, for exemplars of the time of the processor, which the gateway does not have.
  [
    /\/prom-client\/lib\/metrics\/processCpuTotal\.js$/,
    (code) => code.replace("require('@opentelemetry/api')", 'undefined'),
  ],
  // Tables of Chinese, Japanese and Korean encodings. express refuses bodies in them (415) before it looks for one.
  [/\/iconv-lite\/encodings\/dbcs-data\.js$/, () => 'module.exports = {};'],
  // Types of files that no page has.
  [/\/mime-db\/db\.json$/, (code) => JSON.stringify(typesOfPages(JSON.parse(code)))],
];

const withoutUnused: Plugin = {
  name: 'without-unused',
  transform: {
    filter: { id: REDUCED.map(([file]) => file) },
    handler: (code, id) => REDUCED.find(([file]) => file.test(id))?.[1](code),
  },
};

/** Text, images and fonts, and what has a charset, as JSON has. */
function typesOfPages(types: Readonly<Record<string, { readonly charset?: string }>>): object {
  const isOfPages = (name: string): boolean => /^(?:text|image|font)\//.test(name);
  return Object.fromEntries(
    Object.entries(types).filter(([name, { charset }]) => charset !== undefined || isOfPages(name)),
  );
}

/**
 * Writes the program of a checkout into few files in `folder`, which is two folders below that of package.json, because
 * a process would spend more time loading a thousand modules than on all else of its start. Packages that package.json
 * names as dependencies stay outside: what only some configurations need, and what a program shares with its host. All
 * others become part of the program, with their licences in `licences.txt`.
 */
export async function buildProgram(checkout: string, folder: string): Promise<void> {
  const { dependencies } = JSON.parse(readFileSync(join(checkout, 'package.json'), 'utf8'));
  const input = Object.fromEntries(
    Object.entries(ENTRIES).map(([name, file]) => [name, join(checkout, file)]),
  );
  const external = Object.keys(dependencies).map((name) => new RegExp(`^${name}(?:/|$)`));
  // The warnings are about code of packages.
  const build = await rolldown({ input, platform: 'node', external, plugins: [withoutUnused], onLog() {} });
  const { output } = await build.write({
    dir: folder,
    entryFileNames: '[name].js',
    chunkFileNames: '[name]-[hash].js',
    // Those of packages are for their callers; licences have their own file.
    comments: false,
    sourcemap: true,
    // With them, the package would be twice as large.
    sourcemapExcludeSources: true,
  });
  for (const file of output)
    if (file.type === 'chunk') writeFileSync(join(folder, file.fileName), inAscii(file.code));
  const modules = output.flatMap((file) => (file.type === 'chunk' ? file.moduleIds : []));
  await writeFile(join(folder, 'licences.txt'), licencesOf(modules));
  // Not bundled: it has to start on a Node.js that cannot read the rest.
  const entry = readFileSync(join(checkout, 'src/cli/digest-gateway.js'), 'utf8');
  await writeFile(join(folder, 'digest-gateway.js'), entry.replace('./main.ts', './main.js'), {
    mode: 0o755,
  });
}

/** With one character beyond Latin-1, V8 keeps two bytes for each of a file. Lines and most columns stay as they are. */
function inAscii(code: string): string {
  const escaped = (unit: string): string => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`;
  return code.replace(/[\u0080-\uffff]/g, escaped);
}

/** Returns the notices that the licences of the packages of these modules ask for. */
function licencesOf(modules: readonly string[]): string {
  const folders = new Set(modules.flatMap((file) => PACKAGE.exec(file) ?? []));
  return [...folders].sort().map(noticeOf).join('\n');
}

function noticeOf(folder: string): string {
  const { name, version, license } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
  const file = readdirSync(folder).find((each) => /^licen[cs]e/i.test(each));
  const text = file === undefined ? '' : `\n${readFileSync(join(folder, file), 'utf8').trim()}\n`;
  return `# ${name} ${version} (${license})\n${text}`;
}

if (import.meta.main) {
  const checkout = join(import.meta.dirname, '..');
  const dist = join(checkout, 'dist');
  await rm(dist, { recursive: true, force: true });
  await buildProgram(checkout, join(dist, 'cli'));
}
