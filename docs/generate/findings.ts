import { findingKinds } from '../../src/audit/findings.ts';
import { generatedFrom, page, wrap } from './markdown.ts';

const INTRODUCTION = [
  generatedFrom('the table of findings'),
  '# Findings in the audit log',
  wrap(
    '`digest-gateway audit verify` prints a line for each finding: the place, a sentence, and the kind in brackets. An integrity error makes the exit status 1; a note does not. With `--json`, `alterations` has the errors and `notes` the notes, each with `replica` (the folder), `segment` (the file, or empty), `line` (or 0), `kind`, `facts` (what the sentence says, by name) and `message`.',
  ),
  wrap(
    'Programs should read `kind` and `facts`; `message` is a sentence for people and may change. `error` of an admin record `segment-damaged` is one of these kinds, too. So is `code` of a record `audit-resumed`, and of the log line of the outage before it, if somebody changed the file; otherwise it is the code of the system error, such as `ENOSPC`, or `disk-timeout`, or `pseudonym-keys`: the folder with the keys of pseudonyms cannot be used. `audit search` and `audit export` print what they leave out in the same form, to stderr.',
  ),
  wrap(
    'For every integrity error: keep the files as they are, and find out who could write to the folder, or whether the disk failed. Compare with what sinks, the stream and copies have. [The audit log](format.md) describes the format.',
  ),
];

/** The text of docs/audit/findings.md. */
export function findingsPage(): string {
  const rows = findingKinds().map(([kind, { note, cause, remedy }]) => {
    const todo = remedy ?? (note === true ? 'Nothing.' : 'As for every integrity error.');
    return `| \`${kind}\`${note === true ? ' (note)' : ''} | ${cause} | ${todo} |`;
  });
  const table = ['| Kind | What happened | What to do |', '|---|---|---|', ...rows];
  return page([...INTRODUCTION, table.join('\n')]);
}
