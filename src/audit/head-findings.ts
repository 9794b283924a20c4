/** The findings about signed heads and what they prove. */
export const signatureFindings = {
  'checkpoint-malformed': {
    cause: 'A signed head does not have the form of one.',
    message: () => 'is a signed head that was changed',
  },
  'checkpoint-invalid': {
    cause: 'None of the given public keys signed the head.',
    remedy:
      'Give the public key of that time with `--public-key`. If there never was such a key, the head is forged.',
    message: () => 'is a head that none of the given public keys signed',
  },
  'signing-ended': {
    cause: 'A segment without signed heads follows one with them: `audit.signingKeyFile` was removed.',
    remedy:
      'Check the segment with the key of the seals (`--config`). If signing was never turned off, it is forged.',
    message: () => 'has no tree: heads are not signed from here on',
  },
  'segment-unsigned': {
    note: true,
    cause: 'The segment is older than `audit.signingKeyFile`: only the key of the seals can check it.',
    remedy:
      'If the log began with signed heads, somebody with the key of the seals wrote it anew: `--witness-heads` and `--head` find that.',
    message: () => 'has no tree: heads are not signed yet, so nothing in it was checked',
  },
  'checkpoint-missing': {
    cause: 'No signed head of the given keys is in the log of this replica or worker.',
    remedy: 'Check the log with the key of the seals (`--config`), or give the right public key.',
    message: () => 'has no signed head: nothing in it is proven',
  },
  'end-unsigned': {
    note: true,
    cause: 'The last records are under no signed head yet: the gateway is writing, or was killed.',
    message: ({ records }: { records: number }) =>
      `ends with ${records} records under no signed head: the gateway is writing, or was killed; they are not proven`,
  },
  'heads-missing': {
    cause:
      'More records at the end are under no signed head than a gateway that is killed can leave: heads were removed, or these records were written anew.',
    message: ({ records, seconds }: { records: number; seconds: number }) =>
      `ends with ${records} records of ${seconds} s under no signed head, which a gateway makes each second: heads were removed, or these records were written anew`,
  },
  'signing-key-changed': {
    note: true,
    cause: 'A start had another signing key than the heads before it, so it could not check them.',
    remedy: 'If the key was not changed then, the log before that start is forged.',
    message: () => 'says that another key had signed the heads before this start, which could not check them',
  },
  'signed-at-start': {
    note: true,
    cause:
      'A start signed records that it found under no head: the process before was killed, or lost its disk.',
    remedy: 'If no process ended so at that time, these records are forged.',
    message: ({ from, to }: { from: number; to: number }) =>
      `says that the start signed records ${from} to ${to}, which it had found under no signed head`,
  },
  'admin-unsigned': {
    cause: 'The log has more admin records in a row under no signed head than a gateway leaves.',
    message: () => 'has more admin records in a row under no signed head than a gateway leaves',
  },
  'head-unproven': {
    cause: 'With `--public-key`, the record of a head given with `--head` is under no signed head.',
    remedy: 'If the gateway is running, try again a second later. Otherwise check with the key of the seals.',
    message: ({ seq }: { seq: number }) =>
      `record ${seq} of --head is under no signed head: it may be forged`,
  },
  'worker-head-unproven': {
    note: true,
    cause: 'The same of a head that the primary process recorded: the worker may have been killed.',
    message: ({ seq, source }: { seq: number; source: string }) =>
      `record ${seq} of ${source} is under no signed head: it may be forged`,
  },
} as const;

/** The last record of a cosigned head, and when it was cosigned. */
interface CosignedFacts {
  readonly seq: number;
  readonly at: string;
}

/** The findings about heads that witnesses cosigned. */
export const witnessFindings = {
  'cosigned-rewritten': {
    cause:
      'A witness cosigned a head with another tree than the log has there, or the log has none there: it was written anew.',
    message: ({ seq, at }: CosignedFacts) =>
      `a witness cosigned another log up to record ${seq} (${at}): this one was written anew, or an old copy continued`,
  },
  'cosigned-truncated': {
    cause: 'A witness cosigned more records than the log has: its end was cut off, or it is an old copy.',
    remedy: 'As for every integrity error. For a copy such as that in S3, give `--copy`.',
    message: ({ seq, at, end }: CosignedFacts & { end: number }) =>
      `the end is cut off: a witness cosigned record ${seq} (${at}), and the log ends with ${end}`,
  },
  'cosigned-ahead': {
    note: true,
    cause: 'With `--copy`, a cosigned head is of a segment that is not copied yet.',
    message: ({ seq, at, end }: CosignedFacts & { end: number }) =>
      `ends with record ${end}, before record ${seq}, which a witness cosigned (${at})`,
  },
  'cosigned-retired': {
    note: true,
    cause: 'The records of a cosigned head were removed for their age.',
    remedy:
      'Compare its time: no gateway removes records before `audit.segment.keep`. A younger head is that of a log that was written anew.',
    message: ({ seq, at }: CosignedFacts) => `record ${seq}, cosigned ${at}, is before the oldest one`,
  },
  'cosignature-missing': {
    cause: 'No head of the log has a cosignature of the given witnesses.',
    remedy: 'Give the right `--witness-key`. If the log is younger than `audit.witness`, check it without.',
    message: () => 'has no cosigned head: no witness has seen it',
  },
  'end-uncosigned': {
    note: true,
    cause: 'The last records are under no cosigned head yet: the witness is behind, or was away.',
    message: ({ records, at }: { records: number; at: string }) =>
      `ends with ${records} records that no witness has cosigned; the last cosignature is of ${at}`,
  },
} as const;

function wrongStamp({ file, at, reason }: { file: string; at: number; reason: string }): string {
  return `line ${at} of ${file} is not a time-stamped head: ${reason}`;
}

/** The findings about time stamps of signed heads. */
export const timestampFindings = {
  'timestamp-invalid': {
    cause:
      'A time stamp beside the log is not one of its head by the given authorities, or the public key did not sign the head.',
    remedy: 'Give the right `--timestamp-ca` and `--public-key`. If they are right, the file was changed.',
    message: wrongStamp,
  },
  'timestamp-certificate': {
    cause:
      'A time stamp beside the log does not name the certificate that signed it (RFC 3161, RFC 5816), or names another one.',
    remedy:
      'The gateway stores no such time stamp: the file was changed. Ask the authority which certificate made the time stamp.',
    message: wrongStamp,
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
