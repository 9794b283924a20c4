import { expect, test } from '@jest/globals';
import {
  alwaysStale,
  cannotRepeat,
  credentialRefused,
  noDigest,
  outOfBodyMemory,
  refusedAgain,
} from '../../src/handshake/errors.ts';

test.each([
  [credentialRefused(), 'upstream-credential-refused', 'digest.attemptsWhenRefused'],
  [noDigest(), 'upstream-no-digest', 'digest.algorithms'],
  [alwaysStale(), 'upstream-protocol', 'stale'],
  [refusedAgain(), 'upstream-protocol', 'Send the request again'],
  [cannotRepeat(), 'upstream-protocol', 'body.replayUpTo'],
  [outOfBodyMemory(), 'overloaded', 'listen.limits.bodyMemory'],
])('%s has its code, and names what to look at', (error, code, part) => {
  expect([error.code, error.detail]).toEqual([code, expect.stringContaining(part)]);
});
