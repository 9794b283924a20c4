import { inspect } from 'node:util';
import { runInSlices } from '../../src/base/steps.ts';
import { ConfigError, formatIssue, type LocatedIssue } from '../../src/config/issues.ts';
import { type CheckedConfig, locatedAlone } from '../../src/config/load.ts';
import { fromPieces, toPieces } from '../../src/config/transfer.ts';
import { must, mustEqual, resultOf, withoutWarning } from './violation.ts';

/*
 * An input is the content of a configuration file. Words that begin with `hunter2` are secrets wherever a secret can
 * stand: behind `value:`, `password:` and the like.
 */

const FILE = '/etc/gateway/config.yaml';
const SECRET_LINE = /(?:password|value|username|md5|sha256|tokenSha256):[ ]*["'!*&]?(hunter2\w*)/g;
/** Issues of one file: each takes at least a character of it, and each key at most a few cross-checks. */
const MOST_ISSUES_PER_BYTE = 4;
const LONGEST_MESSAGE = 4_000;

export async function check(input: Buffer): Promise<void> {
  const outcome = withoutWarning(() => resultOf(() => locatedAlone(input, FILE), ConfigError));
  const again = resultOf(() => locatedAlone(input, FILE), ConfigError);
  mustEqual(shown(again), shown(outcome), 'two readings of a file are equal');
  checkSecrets(input.toString('utf8'), shown(outcome));
  if (outcome instanceof ConfigError) {
    checkIssues(outcome.issues, input);
    mustEqual(outcome.message, outcome.issues.map(formatIssue).join('\n'), 'the message has every issue');
  } else {
    await checkConfig(outcome);
  }
}

/** Everything about a result that could reach a screen or a log. */
function shown(outcome: CheckedConfig | ConfigError): string {
  return outcome instanceof ConfigError
    ? `${outcome.message} ${JSON.stringify(outcome)}`
    : inspect(outcome.config, { depth: null });
}

function checkSecrets(text: string, shownText: string): void {
  const elsewhere = text.replaceAll(SECRET_LINE, '');
  for (const [, secret = ''] of text.matchAll(SECRET_LINE)) {
    must(elsewhere.includes(secret) || !shownText.includes(secret), 'no message holds a secret');
  }
}

function checkIssues(issues: readonly LocatedIssue[], input: Buffer): void {
  const text = input.toString('utf8');
  const lines = text.split('\n');
  must(issues.length > 0, 'an invalid file has an issue');
  must(
    issues.length <= 8 + MOST_ISSUES_PER_BYTE * input.length,
    'the number of issues is bounded by the file',
  );
  for (const { line, column, message, file } of issues) {
    must(file === FILE, 'an issue names the file');
    must(line >= 1 && line <= lines.length, 'an issue is on a line of the file');
    must(column >= 1 && column <= (lines[line - 1]?.length ?? 0) + 1, 'an issue is in its line');
    must(message !== '' && message.length <= LONGEST_MESSAGE, 'a message says something, and not too much');
    const [foreign = ''] = /undefined|\[object |NaN|RangeError|call stack/.exec(message) ?? [];
    // A message can name a key of the file.
    must(text.includes(foreign), 'a message is a sentence');
  }
  const places = issues.map((issue) => issue.line * 1e6 + issue.column);
  mustEqual(
    places,
    places.toSorted((a, b) => a - b),
    'issues are in the order of the file',
  );
}

async function checkConfig({ config, tree }: CheckedConfig): Promise<void> {
  const transferred = await runInSlices(fromPieces(toPieces(tree), FILE));
  mustEqual(
    inspect(transferred, { depth: null }),
    inspect(config, { depth: null }),
    'a configuration reaches another thread as it is',
  );
}
