import { afterEach } from '@jest/globals';
import { closing } from '../closing.ts';

// A helper cannot register this itself: its module is loaded once, and only for the first file of a process.
afterEach(async () => {
  const errors = [];
  for (const close of closing.splice(0).reverse()) {
    try {
      await close();
    } catch (error) {
      // The others are closed all the same.
      errors.push(error);
    }
  }
  if (errors.length > 0) throw errors.length === 1 ? errors[0] : new AggregateError(errors);
});
