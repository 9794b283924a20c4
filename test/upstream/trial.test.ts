import { setImmediate as turn } from 'node:timers/promises';
import { describe, expect, test } from '@jest/globals';
import { Cancellation } from '../../src/base/cancellation.ts';
import { MemoryChallengeStore } from '../../src/challenges/store/memory.ts';
import type { Question, Reply } from '../../src/upstream/credential-version.ts';
import { tryCandidate } from '../../src/upstream/trial.ts';
import {
  answered,
  challenge,
  credential,
  HandshakeScene,
  held,
  type SceneOptions,
  type Reply as SceneReply,
} from '../handshake/scene.ts';

const questions: Question[] = ['HEAD', 'GET'].map((method) => ({
  method,
  target: '/x',
  cancellation: new Cancellation(),
}));
const refused: Reply = { kind: 'refused', attempt: 1, attempts: 1, inHand: undefined };
const accepted = (status: number): Reply => ({ kind: 'accepted', status });
const unclear = (status: number): Reply => ({ kind: 'unclear', status, isUnprotected: false });

/** A version that replies so to each method, and what it was asked. */
function versionOf(replies: Partial<Record<string, Reply>>) {
  const asked: string[] = [];
  return {
    asked,
    ask: async ({ method }: Question): Promise<Reply> => {
      asked.push(method);
      const reply = replies[method];
      if (reply === undefined) throw new Error(`no reply to ${method}`);
      return reply;
    },
  };
}

type Replies = Partial<Record<string, Reply>>;

test.each<[string, Replies, Replies, string]>([
  ['its Digest is refused', { HEAD: refused }, {}, 'refused'],
  ['it succeeds', { HEAD: accepted(204) }, {}, 'accepted'],
  ['it fails where the version in use succeeds', { HEAD: accepted(404) }, { HEAD: accepted(200) }, 'worse'],
  [
    'it is forbidden where the version in use succeeds',
    { HEAD: unclear(403) },
    { HEAD: accepted(200) },
    'worse',
  ],
  ['both fail in the same way', { HEAD: accepted(404) }, { HEAD: accepted(400) }, 'accepted'],
  ['only it meets an error', { HEAD: accepted(500) }, { HEAD: accepted(200) }, 'worse'],
  ['both meet an error', { HEAD: accepted(500) }, { HEAD: accepted(500) }, 'unclear'],
  ['both are forbidden', { HEAD: unclear(403) }, { HEAD: unclear(403) }, 'unclear'],
  ['they fail in different ways', { HEAD: accepted(404) }, { HEAD: accepted(302) }, 'unclear'],
  ['the version in use is refused meanwhile', { HEAD: accepted(404) }, { HEAD: refused }, 'unclear'],
  ['the upstream is overloaded', { HEAD: unclear(503) }, {}, 'unclear'],
  ['there is no response', { HEAD: unclear(0) }, {}, 'unclear'],
  ['it succeeds, and nothing was asked of it', { HEAD: unclear(200) }, {}, 'unclear'],
  ['HEAD is not supported', { HEAD: unclear(405), GET: accepted(200) }, {}, 'accepted'],
  ['neither method is', { HEAD: unclear(405), GET: unclear(501) }, {}, 'unclear'],
])('%s', async (_what, ofCandidate, ofOther, kind) => {
  const [candidate, inUse] = [versionOf(ofCandidate), versionOf(ofOther)];
  expect((await tryCandidate(candidate, inUse, questions)).kind).toBe(kind);
  expect([candidate.asked, inUse.asked]).toEqual([Object.keys(ofCandidate), Object.keys(ofOther)]);
});

describe('trials', () => {
  const NEW = { ...credential, version: '8', username: 'new' };
  const LATER = { ...credential, version: '9', username: 'later' };
  const ONLY = { name: 'main', current: credential, next: undefined };

  async function warm(options?: SceneOptions): Promise<HandshakeScene> {
    const scene = new HandshakeScene(options);
    await scene.warmUp();
    return scene;
  }

  /** Also what follows the last reply. */
  async function settle(): Promise<void> {
    for (let turns = 0; turns < 50; turns += 1) await turn();
  }

  /** The requests and what came of them. */
  async function outcome(scene: HandshakeScene) {
    await settle();
    const trials = scene.events.filter((event) => event.startsWith('version'));
    return [scene.sent.splice(0), trials];
  }

  /** A version that the upstream accepts, or refuses. */
  const reply = (nonce: string, answer: SceneReply): SceneReply[] => [challenge(nonce), answer];

  test('go on with the next candidate when one is decided', async () => {
    const scene = await warm();
    scene.replies.push(...reply('n2', challenge('n3')), ...reply('n4', answered()));
    scene.credential.offer({ ...ONLY, current: NEW, next: LATER });
    expect(await outcome(scene)).toEqual([
      ['HEAD /x', 'HEAD /x n2:1 new', 'HEAD /x', 'HEAD /x n4:1 later'],
      ['version 8 refused', 'version 8 refused', 'version 9 promoted'],
    ]);
  });

  test('reject a version that fails where the one in use is served', async () => {
    const scene = await warm();
    scene.replies.push(...reply('n2', answered(404)), ...reply('n3', answered()));
    scene.credential.offer({ ...ONLY, current: NEW });
    expect(await outcome(scene)).toEqual([
      ['HEAD /x', 'HEAD /x n2:1 new', 'HEAD /x', 'HEAD /x n3:1'],
      ['version 8 refused'],
    ]);
  });

  test('run one at a time, whatever requests show meanwhile', async () => {
    const scene = await warm();
    const first = held(challenge('n2'));
    scene.replies.push(first.reply, answered(), answered());
    scene.credential.offer({ ...ONLY, current: NEW });
    await first.came;
    await scene.send();
    await settle();
    expect(scene.sent).toEqual(['HEAD /x', 'GET /x n1:2']);
    first.release();
    expect((await outcome(scene))[1]).toEqual(['version 8 promoted']);
  });

  test('begin anew at once when the sources have changed', async () => {
    const scene = await warm();
    scene.replies.push(...reply('n2', answered(503)));
    scene.credential.offer({ ...ONLY, current: NEW });
    await settle();
    scene.replies.push(...reply('n3', answered()));
    scene.credential.offer({ ...ONLY, current: NEW });
    expect((await outcome(scene))[1]).toEqual(['version 8 promoted']);
  });

  test('say nothing of a version that the sources no longer hold', async () => {
    const scene = await warm();
    const answer = held(challenge('n3'));
    scene.replies.push(challenge('n2'), answer.reply);
    scene.credential.offer({ ...ONLY, current: NEW });
    await answer.came;
    scene.credential.offer(ONLY);
    answer.release();
    expect((await outcome(scene))[1]).toEqual([]);
  });

  test('that are refused count among the attempts that a minute may have', async () => {
    const scene = await warm({ attemptsWhenRefused: 1 });
    scene.replies.push(...reply('n2', challenge('n3')));
    scene.credential.offer({ ...ONLY, current: NEW });
    await settle();
    expect(await scene.credential.test('7', '/', scene.transport)).toBe('spent');
  });

  test('of the next version are made by one of several gateways', async () => {
    const place = new MemoryChallengeStore();
    const [first, second] = [await warm({ store: place.join() }), await warm({ store: place.join() })];
    const begun = held(challenge('n2'));
    first.replies.push(begun.reply, challenge('n3'));
    first.credential.offer({ ...ONLY, next: NEW });
    await begun.came;
    second.credential.offer({ ...ONLY, next: NEW });
    expect(await outcome(second)).toEqual([[], []]);
    begun.release();
    expect((await outcome(first))[1]).toEqual(['version 8 refused', 'version 8 waiting']);
  });
});
