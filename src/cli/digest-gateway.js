#!/usr/bin/env -S node --expose-gc --disable-sigusr1 --min-semi-space-size=8 --max-semi-space-size=8
// --expose-gc is for base/buffer-gc.ts. Without --disable-sigusr1, SIGUSR1 opens a debugger, which can
// read secrets. --max-semi-space-size saves 40 MiB under load and costs no time; half of it does. Without
// --min-semi-space-size, the collection after the start shrinks that space, which costs 3 % of a request.
// Plain JavaScript without static imports, so that an old Node gets as far as the version check.
const OLDEST = 24;
const V8_FLAGS = [
  // Otherwise V8 drops code after some seconds without requests, and the next requests cost up to three times as much
  // while it compiles again.
  '--no-flush-bytecode',
  // Otherwise the threads that compile keep some 10 MiB that they need no longer.
  '--no-maglev-destroy-on-background',
  // In percent of the room between the heap and its limit. Left alone, V8 can take the room itself, as soon as that is as
  // small as the young generation, for a reason to mark the heap: it then does so 20 times a second, for good, and a
  // request costs up to twice as much.
  '--incremental-marking-soft-trigger=60',
  '--incremental-marking-hard-trigger=80',
];

// If the flag is missing, this keeps the signal from opening a debugger.
process.on('SIGUSR1', () => {});

// While the program is loaded, a reload or an upgrade that somebody asks for would end it. Nothing has been read by then.
if (['serve', 'witness', 'worker'].includes(process.argv[2])) {
  for (const signal of ['SIGHUP', 'SIGUSR2']) process.on(signal, () => {});
}

// The first process of a container ignores these signals unless it listens to them. A command that ends in order does so
// itself.
if (process.pid === 1) {
  for (const signal of ['SIGTERM', 'SIGINT']) {
    process.on(signal, (_name, number) => {
      if (process.listenerCount(signal) === 1) process.exit(128 + number);
    });
  }
}

if (Number(process.versions.node.split('.')[0]) < OLDEST) {
  process.stderr.write(
    `digest-gateway needs Node.js ${OLDEST} or newer; this is v${process.versions.node}. ` +
      'Install a newer one from https://nodejs.org/, or, in a checkout, run it as: npm run -s gateway -- COMMAND\n',
  );
  process.exitCode = 2;
} else {
  process.getBuiltinModule('node:v8').setFlagsFromString(V8_FLAGS.join(' '));
  // A diagnostic report (--report-on-fatalerror and the like) would contain the environment with its
  // secrets.
  process.report.excludeEnv = true;
  leaveMemoryOutOfCoreDumps();
  // The status must not be 0 then: what the command found is not printed, and what it changes may be half done.
  process.stdout.on('error', ({ code, message }) => {
    // A reader such as `| head` may close the pipe early.
    if (code !== 'EPIPE') {
      const reason = code === 'ENOSPC' ? 'the disk is full; make room on it' : message;
      process.stderr.write(`stdout cannot be written: ${reason}\n`);
    }
    process.exit(1);
  });
  enterFolderOfUser();
  import('./main.ts')
    .then(({ main }) => main(process.argv.slice(2), process))
    .then((status) => {
      process.exitCode = status;
    })
    .catch((error) => {
      if (process.argv[2] !== 'worker' || process.send === undefined) throw error;
      // An incomplete installation. `serve` logs the reason; a stack trace would be no line of its log.
      process.exitCode = 1;
      process.send({ startError: String(error) }, () => process.disconnect());
    });
}

/**
 * A core dump would contain the environment and the secrets that were read. Only Linux has this file; workers inherit
 * what it holds. Where it cannot be written, as with a read-only /proc, core dumps stay as they are.
 */
function leaveMemoryOutOfCoreDumps() {
  try {
    process.getBuiltinModule('node:fs').writeFileSync('/proc/self/coredump_filter', '0');
  } catch {
    // Systems refuse this in different ways.
  }
}

/**
 * npm runs the script `gateway` in the folder of the package. Names of files on the command line start where the user
 * called it.
 */
function enterFolderOfUser() {
  const { npm_lifecycle_event: script, npm_package_json: file, INIT_CWD: folder } = process.env;
  if (script !== 'gateway' || file === undefined || folder === undefined) return;
  const { realpathSync } = process.getBuiltinModule('node:fs');
  const own = new URL('../../package.json', import.meta.url);
  if (realpathSync(file) === realpathSync(own)) process.chdir(folder);
}
