/** A change of the program that breaks a promise of it. */
export interface Mutation {
  readonly name: string;
  /** The promise that it breaks. */
  readonly breaks: string;
  /** From the root of the repository. */
  readonly file: string;
  /** Text that the file has exactly once. */
  readonly find: string;
  readonly replace: string;
  /** The seed to begin with, of a defect that takes more than 1,000 to be found; left out: 1. */
  readonly first?: number;
}

/** Each has to be found by an invariant: an invariant that finds none of them would prove nothing. */
export const MUTATIONS: readonly Mutation[] = [
  {
    name: 'ownership-of-parked',
    breaks: 'a nonce with a count belongs to one process: Redis gives a parked one away and keeps it',
    file: 'src/challenges/store/redis-scripts.ts',
    find: `  redis.call('ZREM', KEYS[2], waiting[1])
`,
    replace: '',
  },
  {
    name: 'ownership-of-run',
    breaks: 'what was parked in another run of Redis is not taken: it may have been taken before',
    file: 'src/challenges/store/redis-scripts.ts',
    find: 'if left == run and age',
    replace: 'if age',
    first: 3_601,
  },
  {
    name: 'ownership-in-memory',
    breaks:
      'a nonce with a count belongs to one process: the primary process gives a parked one away and keeps it',
    file: 'src/challenges/store/memory.ts',
    find: '    const youngest = waiting.pop();',
    replace: '    const youngest = waiting.at(-1);',
  },
  {
    name: 'parked-in-use',
    breaks: 'a nonce is left to another process only when no request uses it',
    file: 'src/challenges/pool.ts',
    find: `    nonce.retire();
    const { sharedChallenges, clock } = this.#options;`,
    replace: '    const { sharedChallenges, clock } = this.#options;',
  },
  {
    name: 'same-count',
    breaks: 'each attempt has an nc of its own',
    file: 'src/challenges/nonce.ts',
    find: `    this.#counter.last += 1;
    return new`,
    replace: `    if (this.#underWay < 2) this.#counter.last += 1;
    return new`,
  },
  {
    name: 'count-goes-back',
    breaks: 'a nonce that another process left goes on with its count',
    file: 'src/challenges/nonce.ts',
    find: '    counter.last = Math.max(counter.last, count);',
    replace: '    counter.last = Math.max(counter.last, count - 1);',
  },
  {
    name: 'compare-and-set',
    breaks: 'a challenge without a count replaces only the one that its process has seen',
    file: 'src/challenges/store/redis-scripts.ts',
    find: "if held and held[4] ~= '' and held[4] ~= ARGV[1] then return held end",
    replace: '',
  },
  {
    name: 'attempt-budget',
    breaks: 'a request makes two authenticated attempts at most',
    file: 'src/handshake/attempt-budget.ts',
    find: "constructor(method: string, retries: Retries = ONE_REPEAT, attempts = ATTEMPTS, client = '') {",
    replace:
      "constructor(method: string, retries: Retries = ONE_REPEAT, attempts = 2 * ATTEMPTS, client = '') {",
  },
  {
    name: 'answer-strays',
    breaks: 'an answer goes out on the connection that brought its challenge: others lead to other servers',
    file: 'src/transport/idle-connections.ts',
    find: 'this.#idle.find(({ challenge }) => challenge === follows)',
    replace: 'this.#idle.find(() => false)',
  },
  {
    name: 'own-head-closes',
    breaks: 'the next version answers a refusal on its connection: others lead to other servers',
    file: 'src/transport/request-writer.ts',
    find: `isLastRequest({ method, body, request }: Message): boolean {
  return (method === 'HEAD' && request.client !== '')`,
    replace: `isLastRequest({ method, body, request, answers }: Message): boolean {
  return (method === 'HEAD' && (request.client !== '' || answers !== undefined))`,
  },
  {
    name: 'closing-forgotten',
    breaks: 'a repeated answer crosses no end of a connection, where the upstream closes behind a 401',
    file: 'src/transport/idle-connections.ts',
    find: "behind401 === 'closed' ? now + CLOSES_MS : Number.NEGATIVE_INFINITY",
    replace: 'Number.NEGATIVE_INFINITY',
  },
  {
    name: 'connection-shared',
    breaks: 'a connection carries one request at a time',
    file: 'src/transport/idle-connections.ts',
    find: `    if (last === undefined) return undefined;
    this.#takeOut(last);`,
    replace: '    if (last === undefined) return undefined;',
  },
  {
    name: 'credential-circuit',
    breaks: 'a refused credential is tried attemptsWhenRefused times a minute',
    file: 'src/upstream/credential-circuit.ts',
    find: '    if (now < due) throw credentialRefused();',
    replace: '',
  },
  {
    name: 'circuit-without-window',
    breaks: 'no minute has more attempts with a refused credential than allowed',
    file: 'src/upstream/credential-circuit.ts',
    find: 'const due = Math.max(last + MINUTE_MS / this.#perMinute, full ? first + MINUTE_MS : last);',
    replace: 'const due = full ? last + MINUTE_MS / (2 * this.#perMinute) : last;',
  },
  {
    name: 'permit-not-released',
    breaks: 'a request that has ended gives its place in the limits back',
    file: 'src/limits/limits.ts',
    find: '    releaseOne(this.#first);',
    replace: '    if (Math.random() > 0.2) releaseOne(this.#first);',
  },
  {
    name: 'no-lower-share',
    breaks: 'a process admits no more than the limit, whatever the store says',
    file: 'src/limits/slots.ts',
    find: 'return Math.min(this.#allowed, this.#limit) - this.inFlight;',
    replace: 'return Math.min(this.#allowed, this.#limit) - this.inFlight + 1;',
  },
  {
    name: 'rate-not-spent',
    breaks: 'each request takes a token',
    file: 'src/limits/local-limit.ts',
    find: '    this.#bucket?.spend();',
    replace: '    if (this.#total % 4 !== 0) this.#bucket?.spend();',
  },
  {
    name: 'stale-nonce-kept',
    breaks: 'a nonce that was refused is not used again',
    file: 'src/challenges/pool.ts',
    find: `    if (!nonce.retired) this.#refusedInARow += 1;
    nonce.retire();`,
    replace: `    if (!nonce.retired) this.#refusedInARow += 1;
    this.#known ??= nonce;`,
  },
  {
    name: 'accepted-not-shared',
    breaks: 'a nonce that the upstream has accepted serves further requests',
    file: 'src/challenges/pool.ts',
    find: `      this.#publish(next);
    }
  }

  /** The nonce of a handshake serves`,
    replace: `      pending.nonce = next;
    }
  }

  /** The nonce of a handshake serves`,
  },
  {
    name: 'no-probe',
    breaks: 'a credential that was accepted is refused by a probe only',
    file: 'src/upstream/verification.ts',
    find: '  const isAsked = wasAccepted || evidence === undefined;',
    replace:
      "  if (evidence) return { kind: 'refused', attempt: evidence.attempt, successor: undefined };\n  const isAsked = wasAccepted || evidence === undefined;",
  },
  {
    name: 'waiters-forgotten',
    breaks: 'requests that wait for a challenge go on when it does not come',
    file: 'src/base/single-flight.ts',
    find: "setTimeout(() => follower('late'), timerDelay(patienceMs))",
    replace: 'setTimeout(() => undefined, timerDelay(patienceMs))',
  },
  {
    name: 'probe-never-lands',
    breaks: 'requests that wait for a probe go on when it has ended',
    file: 'src/upstream/verification.ts',
    find: "        versions.note('settled', [version]);\n        flight.land('check');",
    replace: '',
  },
  {
    name: 'unclear-probe-refuses',
    breaks: 'a probe without a verdict leaves a credential unknown',
    file: 'src/upstream/verification.ts',
    find: "      } else if (verdict.kind === 'unclear') {\n        versions.reset(version, 'verdict');",
    replace:
      "      } else if (verdict.kind === 'unclear') {\n        versions.refuse(version, version.health.attempt(), 'verdict');",
    first: 801,
  },
  {
    name: 'refused-while-unknown',
    breaks: 'a request fails as refused only if every version of its credential is',
    file: 'src/upstream/credential.ts',
    find: '    if (this.versions.areRefused) {',
    replace: '    if (version.health.refused) {',
  },
  {
    name: 'heartbeat-goes-on',
    breaks: 'nothing is left of a gateway that has ended',
    file: 'src/redis/session.ts',
    find: '    clearInterval(this.#timer);',
    replace: '',
  },
  {
    name: 'tickets-stay',
    breaks: 'nothing grows: a ticket in Redis expires',
    file: 'src/challenges/store/redis.ts',
    find: "await commands.set(ticket, '', 'PX', this.#timeoutMs);\n      signal.throwIfAborted();",
    replace:
      // biome-ignore lint/suspicious/noTemplateCurlyInString: it is the text of a program
      "await commands.set(`${ticket}:`, '');\n      await commands.set(ticket, '', 'PX', this.#timeoutMs);\n      signal.throwIfAborted();",
  },
  {
    name: 'calls-of-channel-pend',
    breaks: 'a call that has no reply is given up',
    file: 'src/base/message-calls.ts',
    find: 'const deadline = Number.isFinite(deadlineMs) ? setTimeout(late, deadlineMs) : undefined;',
    replace: 'const deadline = Number.isFinite(deadlineMs) ? setTimeout(() => late, deadlineMs) : undefined;',
  },
];
