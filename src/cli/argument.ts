import { InvalidArgumentError } from 'commander';

/** Makes the parser of an option's value from one that throws a RangeError with the right form. */
export function argument<T>(parse: (text: string) => T): (text: string) => T {
  return (text) => {
    try {
      return parse(text);
    } catch (error) {
      throw error instanceof RangeError ? new InvalidArgumentError(error.message) : error;
    }
  };
}
