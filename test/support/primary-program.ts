import process from 'node:process';
import { ipcPort } from '../../src/base/ipc-port.ts';
import { PrimaryChallenges } from '../../src/challenges/store/primary.ts';

// Without the parent, nothing keeps this process alive.
const port = ipcPort(process);
new PrimaryChallenges().serve(port);
process.send?.('ready');
