import { hash } from 'node:crypto';
import { chmod, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { blocksOf, commandsOf, type PageCommand, runInShell, type Step } from '../support/page-commands.ts';
import { runCommand } from '../support/program.ts';
import { repository } from '../support/repository.ts';
import { freePort, type ServerProcess, startServer } from '../support/server-process.ts';
import { needPackages } from '../support/system-packages.ts';

const KEY = 'dgk_0123456789abcdef0123456789abcdef01234567';
const HASH = hash('sha256', KEY);

const blocks = await blocksOf('docs/start/first-hour.md');
const [HASH_OF_PAGE = ''] = blocks.flatMap(({ text }) => text.match(/\b[0-9a-f]{64}\b/) ?? []);
const isUpstream = ({ text }: { text: string }): boolean => text.includes('/usr/sbin/apache2');
const at = blocks.findIndex(isUpstream);
const upstream = commandsOf(blocks[at] ?? { language: '', text: '' });
/** Commands and configurations behind those that make the upstream. */
const later = blocks.slice(at + 1);

let server: ServerProcess;
/** The ports of the page, and those in their place. */
const ports = new Map<string, string>();

beforeAll(async () => {
  needPackages('apache2-bin', 'openssl');
  server = await startServer({
    async prepare({ folder, port }) {
      const made = upstream.filter(({ command }) => /^(?:openssl|mkdir|user\(\))/.test(command));
      const script = [`cd ${folder}`, ...made.map(({ command }) => command)].join('\n');
      const { status, printed } = await runCommand('bash', ['-ec', script]);
      if (status !== 0) throw new Error(printed);
      const configuration = await readFile(join(repository, 'deploy/examples/apache/httpd.conf'), 'utf8');
      await writeFile(join(folder, 'httpd.conf'), configuration.replace('9943', String(port)));
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
  ports.set('9943', String(server.place.port));
  for (const port of ['8080', '8081']) ports.set(port, String(await freePort()));
});

afterAll(() => server.close());

function withOwnPorts(text: string): string {
  return [...ports].reduce((result, [shown, own]) => result.replaceAll(`:${shown}`, `:${own}`), text);
}

/** The page's configuration with this test's ports and key. `listen` stands where no line or column changes. */
function configuration(text: string): string {
  const listen = `listen: { port: ${ports.get('8080')} }\ncontrol: { port: ${ports.get('8081')} }\n`;
  const own = withOwnPorts(text)
    .replace(HASH_OF_PAGE, HASH)
    .replace('keyFile: audit.key }', 'keyFile: audit.key, replica: gateway-1 }');
  // The page adds a line to the end of its first configuration.
  return own.startsWith('anonymous') ? `${listen}${own}` : `${own}${listen}`;
}

/** Waits for a minute: if what is awaited does not come, what the page shows is not printed, which the test tells. */
const waitFor = (condition: string): string =>
  `for _ in $(seq 600); do ${condition} && break; sleep 0.1; done`;

const RELOADED = `grep -c '"configuration reloaded"' serve.log`;

/** A command of the page, which waits for what the operator of the page has seen before it. */
function stepOf({ command, shown }: PageCommand): Step {
  const own = withOwnPorts(command);
  if (own.endsWith('&')) {
    const isUp = `grep -q '"the gateway is up"' serve.log`;
    return { command: own, after: `SERVE=$!\n${waitFor(`{ ${isUp} || ! kill -0 $SERVE; }`)}` };
  }
  if (own.endsWith('kill -HUP $SERVE')) {
    return {
      command: own,
      before: `BEFORE=$(${RELOADED})`,
      after: waitFor(`[ "$(${RELOADED})" != "$BEFORE" ]`),
    };
  }
  if (own.endsWith('tail -n 1 serve.log')) {
    const [message = ''] = shown.match(/"msg":"[^"]*"/) ?? [];
    return { command: own, before: waitFor(`tail -n 1 serve.log | grep -qF '${message}'`) };
  }
  // The time in which the operator reads and types, and the limit of the client has room for its burst again.
  if (own.includes('rotation-')) return { command: own, before: 'sleep 1.5' };
  return { command: own };
}

/** Text without what differs from run to run. */
function comparable(text: string): string {
  const own = [...ports].reduce((result, [shown, port]) => result.replaceAll(port, shown), text);
  return (
    own
      .replaceAll(`${server.place.folder}/`, '')
      .replaceAll(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, 'TIME')
      .replaceAll(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g, 'ID')
      .replaceAll(/expires .* left/g, 'expires …')
      .replaceAll(/"(seq|durationMs)":[\d.]+/g, '"$1":N')
      // A part of the time below 0.1 ms is absent.
      .replaceAll(/"(queueMs|connectMs|earlierMs)":[\d.]+,/g, '')
      .replaceAll(/gateway-1:\d+:[\w-]+/g, 'HEAD')
      .replaceAll(/\d+ (MiB|records|seals)/g, 'N $1')
      .replaceAll(/ +\d+\.\d +- /g, ' N - ')
      .replaceAll(HASH.slice(0, 8), HASH_OF_PAGE.slice(0, 8))
      .replaceAll(/ +$/gm, '')
      // On a slow machine, a renewal of the nonce may meet the new password before the first request.
      .replaceAll(/"attempts":(?:1,"challenged":false|2,"challenged":true)/g, '"attempts":N')
      // On a slow machine, the limit has room again before the last of five requests.
      .replace(/^(200 200 200)(?: (?:200|429)){2}$/m, '$1 …')
      .replaceAll(/^TIME .* rate-limited .*\n/gm, '')
      .trimEnd()
  );
}

test('every command of docs/start/first-hour.md prints what the page shows', async () => {
  const shown: PageCommand[] = [];
  const steps: Step[] = [];
  const [user] = upstream.filter(({ command }) => command.startsWith('user()'));
  // What an earlier run of the test has left.
  let setUp = `rm -rf audit audit.key password* gateway.yaml serve.log\n${user?.command ?? ''}`;
  for (const block of later) {
    if (block.language === 'yaml') {
      setUp += `\ncat > gateway.yaml <<'END_OF_FILE'\n${configuration(block.text)}END_OF_FILE\n`;
    }
    for (const each of commandsOf(block)) {
      const { before = ':', ...step } = stepOf(each);
      steps.push({ ...step, before: `${setUp}\n${before}` });
      shown.push(each);
      setUp = '';
    }
  }
  const printed = await runInShell(server.place.folder, steps, { KEY });
  for (const [index, { command, shown: text }] of shown.entries()) {
    expect([command, comparable(printed[index] ?? '')]).toEqual([command, comparable(text)]);
  }
});
