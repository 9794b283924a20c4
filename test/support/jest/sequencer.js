import { sep } from 'node:path';
import Sequencer from '@jest/test-sequencer';

/** Folders of tests that start servers and wait for them. Some of these files are short and take half a minute. */
const FIRST = ['deploy', 'scenarios'];

/** Puts files that take long first, so that none of them runs alone at the end. */
export default class LongestFirst extends Sequencer {
  sort(tests) {
    const rank = ({ path, context }) => {
      const [, folder] = path.slice(context.config.rootDir.length + 1).split(sep);
      return FIRST.includes(folder) ? FIRST.indexOf(folder) : FIRST.length;
    };
    return super.sort(tests).sort((one, other) => rank(one) - rank(other));
  }
}
