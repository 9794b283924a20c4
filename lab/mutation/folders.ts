/** A folder of `src/` whose code is mutated, and the tests that are to notice. */
export interface MutatedFolder {
  readonly name: string;
  /** Patterns of files in the folder that are left out. */
  readonly leftOut?: readonly string[];
  /** Patterns of test files, below the root of the repository. They run in one process, one after the other. */
  readonly tests: readonly string[];
}

/** In the order in which they run. */
export const folders: readonly MutatedFolder[] = [
  { name: 'digest', tests: ['test/digest/!(linear-time).test.ts'] },
  {
    name: 'handshake',
    // The owner of a credential runs the recipe as it is used.
    tests: ['test/handshake/*.test.ts', 'test/upstream/{credential,credential-version}.test.ts'],
  },
  {
    name: 'audit/journal',
    tests: [
      'test/audit/{batches,chain-writer,file-audit,head,journal,outage,record,recovery,write-failure}.test.ts',
      'test/audit/{pseudonyms,signed-tree}.test.ts',
      'test/full/signed-heads.test.ts',
    ],
  },
  {
    name: 'upstream',
    // What runs before all tests of a file counts for every mutant. Requests of `handshake` are sent by a credential.
    tests: ['test/upstream/!(attempts-property).test.ts', 'test/handshake/handshake.test.ts'],
  },
  {
    name: 'challenges',
    leftOut: ['store/redis*.ts'],
    tests: [
      'test/challenges/!(channel).test.ts',
      'test/contracts/{channel,memory,unreliable-store}.test.ts',
      'test/handshake/*.test.ts',
    ],
  },
  {
    name: 'challenges/store',
    // The scripts are texts, which Redis runs; the other files are judged with `challenges`, whose tests are quick.
    leftOut: ['!(redis).ts'],
    tests: ['test/contracts/redis{,-store}.test.ts', 'test/full/untrusted-redis.test.ts'],
  },
];
