import { jest } from '@jest/globals';

// environment.js decides which failure is final.
jest.retryTimes(3, { logErrorsBeforeRetry: true, retryImmediately: true });
