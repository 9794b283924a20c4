import process from 'node:process';
import { ipcPort } from '../../src/base/message-calls.ts';
import { primaryChallenges } from '../../src/challenges/store/channel.ts';
import { primaryLimits } from '../../src/limits/channel.ts';

// Without the parent, nothing keeps this process alive.
const port = ipcPort(process);
primaryChallenges().serve(port);
primaryLimits({ now: () => performance.now(), epoch: () => Date.now() }).serve(port);
process.send?.('ready');
