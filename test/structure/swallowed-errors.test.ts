import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from '@jest/globals';

/** Why code may go on after any error at all. */
const PARSES = 'the only call that throws reads what somebody else wrote';
const RETURNED = 'the caller gets the same error, and may look at it later';
const LAST = 'nobody is left to report to';

/** Files with code that does not look at an error, and why it need not. */
const REASONS: Readonly<Record<string, readonly string[]>> = {
  'app/compose.ts': [LAST],
  'audit/reader/query.ts': [PARSES],
  'audit/reader/search.ts': [PARSES],
  'audit/record.ts': [PARSES],
  'audit/checkpoint.ts': [PARSES, PARSES],
  'audit/shipping/s3.ts': ['it quotes a secret; the error that is thrown in its place does not'],
  'base/guarded-file.ts': [PARSES, PARSES],
  'base/json.ts': [PARSES],
  'cli/audit-tail.ts': [PARSES],
  'cli/demo.ts': [LAST],
  'cli/digest-gateway.js': ['no start fails for what only limits a core dump'],
  'config/yaml-source.ts': [PARSES],
  'control/console/app.tsx': [PARSES],
  'credentials/sealed-file.ts': [PARSES, PARSES, PARSES],
  'fleet/activation.ts': [RETURNED],
  'fleet/fleet.ts': [RETURNED],
  'identity/certificates.ts': [PARSES],
  'identity/token-issuer.ts': [PARSES],
  'policy/path.ts': [PARSES],
  'policy/query.ts': [PARSES],
  'setup/content.ts': [PARSES],
  'setup/listen-tls.ts': [PARSES, PARSES],
  'simulator/settings.ts': [PARSES],
  'simulator/verification.ts': [PARSES],
  'transport/upstream-tls.ts': [PARSES],
  'upstream/outcomes.ts': [PARSES],
  'witness/witness.ts': ['the request of the head gets the error; the next one only waits'],
};

/** Forms of code that goes on after an error without a look at it. */
const FORMS = [
  /\bcatch \{/g,
  /\.catch\(\s*(?:async )?\(\s*\)\s*=>/g,
  /\.catch\(\s*\(\s*_\w*(?:: \w+)?\s*\)\s*=>/g,
  // One function for both ends.
  /\.then\(\s*([\w.#]+),\s*\1\s*,?\s*\)/g,
];

function blindCatches(text: string): number {
  const code = text.replaceAll(/^\s*(?:\*|\/\/|\/\*).*$/gm, '');
  const named = Array.from(code.matchAll(/^( *)\} catch \((\w+)\) \{\n([\s\S]*?)^\1\}/gm)).filter(
    ([, , name = '', body = '']) => !new RegExp(`\\b${name}\\b`).test(body),
  );
  return FORMS.reduce((sum, form) => sum + Array.from(code.matchAll(form)).length, named.length);
}

test('no code goes on after an error that it has not looked at, unless there is a reason', () => {
  const root = fileURLToPath(new URL('../../src', import.meta.url));
  const found = globSync('**/*.{ts,tsx,js}', { cwd: root }).flatMap((file) => {
    const count = blindCatches(readFileSync(join(root, file), 'utf8'));
    return count === 0 ? [] : [[file, count] as const];
  });
  const allowed = Object.entries(REASONS).map(([file, reasons]) => [file, reasons.length] as const);
  expect(Object.fromEntries(found)).toEqual(Object.fromEntries(allowed));
});

test.each([
  'try { a() } catch { return 1 }',
  'void a().catch(() => undefined);',
  'void a().catch((_error: unknown) => {});',
  'a().then(land, land);',
  'try {\n  a();\n} catch (error) {\n  return undefined;\n}\n',
])('finds %j', (text) => {
  expect(blindCatches(text)).toBe(1);
});

test.each([
  'try {\n  a();\n} catch (error) {\n  if (error instanceof A) return;\n  throw error;\n}\n',
  'void a().catch(ignoreAbort);',
  'a().then(resolve, reject);',
  '// try { a() } catch { return 1 }',
])('accepts %j', (text) => {
  expect(blindCatches(text)).toBe(0);
});
