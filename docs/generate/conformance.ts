import { readdirSync, readFileSync } from 'node:fs';
import { parse } from 'yaml';
import { z } from 'zod';
import { page, wrap } from './markdown.ts';

const FOLDER = new URL('conformance/', import.meta.url);

const requirement = z
  .strictObject({
    section: z.string(),
    /** The key word in the spelling of the RFC; `-`: it has none. */
    keyword: z.string(),
    /** In our words. */
    requirement: z.string(),
    /** `path › title`: the title of the test alone, or that of its table with `%s` for what differs. */
    tests: z
      .array(z.string().regex(/^[^›]+\.test\.ts › [^›]+$/))
      .nonempty()
      .optional(),
    notMet: z.string().optional(),
    doesNotApply: z.string().optional(),
    note: z.string().optional(),
  })
  .refine(
    ({ tests, notMet, doesNotApply }) =>
      [tests, notMet, doesNotApply].filter((each) => each !== undefined).length === 1,
    'has one of tests, notMet and doesNotApply',
  );

const rfc = z.strictObject({
  title: z.string(),
  /** The role in which the gateway is under the RFC. */
  role: z.string(),
  /** How the text of the RFC was read. */
  text: z.string(),
  requirements: z.array(requirement).nonempty(),
});

export type Requirement = z.output<typeof requirement>;

/** One RFC with its requirements. */
export interface Conformance extends z.output<typeof rfc> {
  /** For example 9110. */
  readonly number: number;
}

/** The order of the page: Digest, then HTTP. */
const ORDER = [7616, 7615, 2617, 2069, 9110, 9112, 9111, 9209, 9457];

/** Reads the requirements of every RFC. @throws ZodError if a file is malformed */
export function readConformance(): Conformance[] {
  return readdirSync(FOLDER)
    .map((name) => ({
      number: Number(/^rfc(\d+)\.yaml$/.exec(name)?.[1]),
      ...rfc.parse(parse(readFileSync(new URL(name, FOLDER), 'utf8'))),
    }))
    .sort((one, other) => ORDER.indexOf(one.number) - ORDER.indexOf(other.number));
}

const INTRODUCTION = [
  '<!-- Generated from docs/generate/conformance/ by "npm run docs". Do not edit. -->',
  '# Conformance',
  wrap(
    'What the RFCs that the gateway implements require of it, in the roles that it has, and the tests that show it. A requirement is said in our words, with the key word of the RFC; with MUST NOT and SHOULD NOT it says what is not to be done, and `-` stands for a rule without key word. Requirements that are not met, and those that do not apply, say why. A run of a test file fails if it lacks a test that is named here.',
  ),
];

/** The text of docs/security/conformance.md. */
export function conformancePage(): string {
  const all = readConformance();
  return page([...INTRODUCTION, summary(all), '## Not met', notMet(all), ...all.flatMap(section)]);
}

function summary(all: readonly Conformance[]): string {
  const rows = all.map(({ number, title, requirements }) => {
    const count = (key: 'tests' | 'notMet' | 'doesNotApply') =>
      requirements.filter((each) => each[key] !== undefined).length;
    return `| [RFC ${number}](#rfc-${number}) | ${title} | ${count('tests')} | ${count('notMet')} | ${count('doesNotApply')} |`;
  });
  return [
    '| RFC | Title | Shown by tests | Not met | Does not apply |',
    '|---|---|---|---|---|',
    ...rows,
  ].join('\n');
}

function notMet(all: readonly Conformance[]): string {
  const items = all.flatMap(({ number, requirements }) =>
    requirements.flatMap(({ section, keyword, requirement, notMet: why }) =>
      why === undefined
        ? []
        : [wrap(`- RFC ${number} §${section}, ${keyword}: ${requirement} **But:** ${why}`, '  ')],
    ),
  );
  return items.join('\n');
}

function section({ number, title, role, text, requirements }: Conformance): string[] {
  const rows = requirements.map(
    (each) => `| ${each.section} | ${each.keyword} | ${each.requirement} | ${shownBy(each)} |`,
  );
  return [
    `## RFC ${number}`,
    wrap(`${title}. Role of the gateway: ${role}. Text: ${text}.`),
    ['| § | Key word | Requirement | Shown by |', '|---|---|---|---|', ...rows].join('\n'),
  ];
}

function shownBy({ tests, notMet: missing, doesNotApply, note }: Requirement): string {
  if (missing !== undefined) return `**Not met.** ${missing}`;
  if (doesNotApply !== undefined) return `Does not apply. ${doesNotApply}`;
  const named = (tests ?? []).map((test) => {
    const [path, title = ''] = test.split(' › ');
    return `\`${path}\`: ${cell(title)}`;
  });
  return [...named, ...(note === undefined ? [] : [note])].join('<br>');
}

/** Text that Markdown would read otherwise, in a code span; a pipe would end the cell. */
function cell(text: string): string {
  return `\`${text.replaceAll('|', '\\|').replaceAll('`', "'")}\``;
}
