import { afterEach } from '@jest/globals';
import { closeAll, closing } from '../closing.ts';

// A helper cannot register this itself: its module is loaded once, and only for the first file of a process.
afterEach(() => closeAll(closing));
