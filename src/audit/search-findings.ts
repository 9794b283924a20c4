/** The findings of a search, a count or an export. */
export const searchFindings = {
  'records-retired': {
    note: true,
    cause: 'A search reaches back to before the log begins: earlier records were removed for their age.',
    remedy: 'Search in the copies of the log that you keep.',
    message: ({ first, opened }: { first: number; opened: string }) =>
      `the log begins with record ${first}, at ${opened}: earlier records were removed for their age`,
  },
  'records-altered': {
    cause: 'A search left records out, since no seal covers them as they are.',
    remedy: 'Run `audit verify`.',
    message: ({ records }: { records: number }) =>
      `${records} records are not as a seal covers them, and left out: run audit verify`,
  },
  'record-altered': {
    cause: 'A search found a record that cannot be read as JSON.',
    remedy: 'Run `audit verify`.',
    message: ({ seq }: { seq: number }) => `record ${seq} was changed: run audit verify`,
  },
  'segment-unchecked': {
    cause: 'A search did not check the seals of a segment, since it lacks the key.',
    remedy: 'Give the key with `--key`.',
    message: ({ key }: { key: string }) => `is sealed with key ${key}, and not checked: give it as --key`,
  },
  'bytes-unsealed': {
    cause: 'A search left bytes out at the end of a segment, since no seal covers them.',
    remedy: 'Run `audit verify`. In the newest segment it is a note: the gateway is writing, or was killed.',
    message: ({ bytes }: { bytes: number }) => `${bytes} bytes at its end are under no seal, and left out`,
  },
} as const;
