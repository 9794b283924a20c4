import { sep } from 'node:path';
import Sequencer from '@jest/test-sequencer';
import { seededRandom, shuffled } from '../../bench/compare/statistics.ts';

/** Folders of tests that start servers and wait for them. Some of these files are short and take half a minute. */
const FIRST = ['full', 'scenarios'];

/**
 * Puts files that take long first, so that none of them runs alone at the end. With `--randomize`, files are in random
 * order, too, by jest's `--seed`.
 */
export default class LongestFirst extends Sequencer {
  #random;

  constructor(options) {
    super(options);
    const { randomize, seed } = options.globalConfig;
    if (randomize) this.#random = seededRandom(seed);
  }

  sort(tests) {
    if (this.#random !== undefined) return shuffled(tests, this.#random);
    const rank = ({ path, context }) => {
      const [, folder] = path.slice(context.config.rootDir.length + 1).split(sep);
      return FIRST.includes(folder) ? FIRST.indexOf(folder) : FIRST.length;
    };
    return super.sort(tests).sort((one, other) => rank(one) - rank(other));
  }
}
