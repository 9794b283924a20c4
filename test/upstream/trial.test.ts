import { expect, test } from '@jest/globals';
import { Cancellation } from '../../src/base/cancellation.ts';
import type { Question, Reply } from '../../src/upstream/credential-version.ts';
import { tryCandidate } from '../../src/upstream/trial.ts';

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
  ['HEAD is not supported', { HEAD: unclear(405), GET: accepted(200) }, {}, 'accepted'],
  ['neither method is', { HEAD: unclear(405), GET: unclear(501) }, {}, 'unclear'],
])('%s', async (_what, ofCandidate, ofOther, kind) => {
  const [candidate, inUse] = [versionOf(ofCandidate), versionOf(ofOther)];
  expect((await tryCandidate(candidate, inUse, questions)).kind).toBe(kind);
  expect([candidate.asked, inUse.asked]).toEqual([Object.keys(ofCandidate), Object.keys(ofOther)]);
});
