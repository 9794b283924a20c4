/** The findings about time stamps of signed heads. */
export const timestampFindings = {
  'timestamp-invalid': {
    cause:
      'A time stamp beside the log is not one of its head by the given authorities, or the public key did not sign the head.',
    remedy: 'Give the right `--timestamp-ca` and `--public-key`. If they are right, the file was changed.',
    message: ({ file, at, reason }: { file: string; at: number; reason: string }) =>
      `line ${at} of ${file} is not a time-stamped head: ${reason}`,
  },
  'timestamp-certificate': {
    cause:
      'A time stamp beside the log does not name the certificate that signed it (RFC 3161, RFC 5816), or names another one.',
    remedy:
      'The gateway stores no such time stamp: the file was changed. Ask the authority which certificate made the time stamp.',
    message: ({ file, at, reason }: { file: string; at: number; reason: string }) =>
      `line ${at} of ${file} is not a time-stamped head: ${reason}`,
  },
  'timestamp-mismatch': {
    cause: 'A signed head with a time stamp is not one of this log: the log was cut off or written anew.',
    remedy: 'As for every integrity error. For a copy such as that in S3, give `--copy`.',
    message: ({ seq, time }: { seq: number; time: string }) =>
      `the time stamp of ${time} is of another log up to record ${seq}: this one was cut off or written anew`,
  },
  'timestamp-ahead': {
    note: true,
    cause: 'With `--copy`, a head with a time stamp is of a segment that is not copied yet.',
    message: ({ seq, time }: { seq: number; time: string }) =>
      `ends before record ${seq}, up to which there is a time stamp of ${time}`,
  },
  'timestamp-missing': {
    cause: 'No head of the log has a time stamp.',
    remedy:
      'If the log is younger than `audit.timestamps`, check it without `--timestamp-ca`. Otherwise its files `NUMBER.stamped` were removed.',
    message: () => 'has no time-stamped head',
  },
} as const;
