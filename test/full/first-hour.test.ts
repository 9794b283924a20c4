import { chmod, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { gateway, runCommand } from '../support/program.ts';
import { repository } from '../support/repository.ts';
import { type Place, type ServerProcess, startServer } from '../support/server-process.ts';
import { needPackages } from '../support/system-packages.ts';

const page = await readFile(join(repository, 'docs/start/first-hour.md'), 'utf8');
const PORT = '9943';

/** The blocks of the page in this language. */
function blocks(language: string): string[] {
  return Array.from(
    page.matchAll(new RegExp(`^\`\`\`${language}\\n([\\s\\S]*?)^\`\`\``, 'gm')),
    ([, text = '']) => text,
  );
}

const [anonymous = '', whole = ''] = blocks('yaml');
const transcript = blocks('console').join('');
const commands = transcript.match(/(?<=^\$ ).*$/gm) ?? [];

/** What the page shows below each such command, without the dates of the certificate. */
function shownBelow(command: string): string[] {
  const [, ...parts] = transcript.split(`$ ${command}\n`);
  return parts.map((part) => withoutDates(part.replace(/^\$ [\s\S]*/m, '')));
}

function withoutDates(text: string): string {
  return text.replace(/expires .* left/, 'expires …');
}

let server: ServerProcess;
let place: Place;
const file = (name: string): string => join(place.folder, name);

beforeAll(async () => {
  needPackages('apache2-bin', 'openssl');
  server = await startServer({
    async prepare({ folder, port }) {
      const made = commands.filter((command) =>
        /^(?:openssl|mkdir -p|user\(\)|\(umask 077; printf first)/.test(command),
      );
      const { status, printed } = await runCommand('bash', ['-ec', [`cd ${folder}`, ...made].join('\n')]);
      if (status !== 0) throw new Error(printed);
      const configuration = await readFile(join(repository, 'deploy/examples/apache/httpd.conf'), 'utf8');
      await writeFile(join(folder, 'httpd.conf'), configuration.replace(PORT, String(port)));
      await chmod(folder, 0o755);
      return [
        'env',
        `PWD=${folder}`,
        '/usr/sbin/apache2',
        '-D',
        'FOREGROUND',
        '-f',
        join(folder, 'httpd.conf'),
      ];
    },
    async answers({ folder, port }) {
      const url = `https://localhost:${port}/reports/1.xml`;
      return (await runCommand('curl', ['-s', '--cacert', join(folder, 'cert.pem'), url])).status === 0;
    },
  });
  place = server.place;
});

afterAll(() => server.close());

/** Runs a command on a configuration of the page; returns what it prints, with the port and the names of the page. */
async function run(command: string, configuration: string): Promise<string> {
  await writeFile(file('gateway.yaml'), configuration.replace(PORT, String(place.port)));
  const { stdout, stderr } = await gateway([command, '--config', file('gateway.yaml')]);
  const printed = `${stdout}${stderr}`
    .replaceAll(String(place.port), PORT)
    .replaceAll(`${place.folder}/`, '');
  return withoutDates(printed);
}

describe('the commands of docs/start/first-hour.md print what the page shows', () => {
  test('doctor without and with the authority', async () => {
    const [unknown = '', trusted = ''] = shownBelow('digest-gateway doctor --config gateway.yaml');
    expect(await run('doctor', anonymous)).toBe(unknown);
    const authority = commands.find((command) => command.startsWith('echo'))?.match(/(?<=').*(?=')/)?.[0];
    expect(await run('doctor', `${anonymous}${authority}\n`)).toBe(trusted);
  });

  test('check without and with the key of the audit log', async () => {
    const [ok = '', issue = ''] = shownBelow('digest-gateway check --config gateway.yaml');
    await runCommand('mkdir', [file('audit')]);
    expect(await run('check', whole)).toBe(issue);
    await writeFile(file('audit.key'), 'ab'.repeat(32), { mode: 0o600 });
    expect(await run('check', whole)).toBe(ok);
  });
});
