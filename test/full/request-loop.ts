import { Agent, get } from 'node:http';

/** The output of a run of this program, as JSON. */
export interface RequestLoopResult {
  /** Number of responses by status. */
  readonly statuses: Readonly<Record<string, number>>;
  /** Content of the last response. */
  readonly content: string;
  readonly milliseconds: number;
}

// A client for a container of its own, where only Node.js is: node request-loop.ts URL [COUNT [CONCURRENCY]]
const [url = '', count = '1', concurrency = '16'] = process.argv.slice(2);
const agent = new Agent({ keepAlive: true, maxSockets: Number(concurrency) });
const statuses: Record<string, number> = {};
let content = '';
let left = Number(count);

async function send(): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  get(url, { agent }, (response) => {
    let text = '';
    response.setEncoding('utf8').on('data', (piece: string) => {
      text += piece;
    });
    response.on('error', reject).on('end', () => {
      const status = String(response.statusCode);
      statuses[status] = (statuses[status] ?? 0) + 1;
      content = text;
      resolve();
    });
  }).on('error', reject);
  await promise;
}

const start = performance.now();
await Promise.all(
  Array.from({ length: Number(concurrency) }, async () => {
    while (left > 0) {
      left -= 1;
      await send();
    }
  }),
);
agent.destroy();
const result: RequestLoopResult = { statuses, content, milliseconds: performance.now() - start };
process.stdout.write(JSON.stringify(result));
