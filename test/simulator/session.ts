import { type Dispatcher, Pool } from 'undici';
import { type DeploymentSettings, defaultSettings } from '../../src/simulator/settings.ts';
import type { Simulator } from '../../src/simulator/simulator.ts';
import { closing } from '../support/closing.ts';
import { type AnswerParts, answer, type Challenge, readChallenges } from '../support/digest-client.ts';
import { startSimulator } from '../support/simulator.ts';

export const user = { username: 'demo-user', password: 'demo-api-key' };
export const authorsPath = '/api/manuscripts/v2/submissions/full/contributors/authors/submissionids';
export const authors = `${authorsPath}?ids=%27DEMO-2026-0001%27&site_name=demo`;

export interface Seen {
  readonly status: number;
  readonly headers: Dispatcher.ResponseData['headers'];
  readonly trailers: Dispatcher.ResponseData['trailers'];
  readonly body: Buffer;
  /** Challenges of its WWW-Authenticate. */
  readonly challenges: readonly Challenge[];
}

export interface Ask {
  readonly method?: string;
  readonly headers?: Record<string, string>;
  readonly body?: string;
}

/** A simulator whose submissions deployment is set as said, and a client of it. */
export interface Session {
  readonly simulator: Simulator<'submissions' | 'abstracts'>;
  readonly pool: Pool;
  /** Moves the simulator's clock. */
  advance(ms: number): void;
  ask(target: string, ask?: Ask): Promise<Seen>;
  /** The challenge of a request without Authorization. */
  challenge(target?: string): Promise<Challenge>;
  /** The same request with an answer to the challenge. */
  answered(challenge: Challenge, parts?: Partial<AnswerParts>, ask?: Ask): Promise<Seen>;
}

/** Opens a session, which is closed after the test. */
export async function openSession(
  settings: Partial<DeploymentSettings> = {},
  options: Pool.Options = {},
): Promise<Session> {
  let time = Date.now();
  const { deployments } = defaultSettings();
  const submissions = { ...deployments.submissions, testPaths: true, ...settings };
  const simulator = await startSimulator(
    { deployments: { ...deployments, submissions } },
    { now: () => time },
  );
  const pool = connect(simulator, options);
  const ask = async (target: string, { method = 'GET', headers = {}, body }: Ask = {}): Promise<Seen> => {
    const answered = await pool.request({
      path: target,
      method: method as Dispatcher.HttpMethod,
      headers,
      ...(body !== undefined && { body }),
    });
    const bytes = Buffer.from(await answered.body.arrayBuffer());
    const lines = answered.headers['www-authenticate'] ?? [];
    return {
      status: answered.statusCode,
      headers: answered.headers,
      trailers: answered.trailers,
      body: bytes,
      challenges: readChallenges([lines].flat()),
    };
  };
  closing.push(async () => {
    await pool.destroy();
    await simulator.close();
  });
  return {
    simulator,
    pool,
    advance: (ms) => {
      time += ms;
    },
    ask,
    challenge: async (target = authors) => {
      const [challenge] = (await ask(target)).challenges;
      if (challenge === undefined) throw new Error('There was no challenge.');
      return challenge;
    },
    answered: (challenge, parts = {}, { headers, ...rest } = {}) => {
      const method = rest.method ?? 'GET';
      const body = rest.body === undefined ? {} : { body: rest.body };
      const whole = { method, target: authors, ...user, ...body, ...parts };
      return ask(whole.target, { ...rest, headers: { ...headers, authorization: answer(challenge, whole) } });
    },
  };
}

/** A pool that trusts the simulator's authority. */
export function connect(simulator: Session['simulator'], options: Pool.Options = {}): Pool {
  return new Pool(simulator.deployments.submissions.origin, {
    connect: { ca: simulator.ca },
    connections: 1,
    ...options,
  });
}
