#!/usr/bin/env -S node --expose-gc --disable-sigusr1
// The first flag is for base/spent-buffers.ts; without the other one SIGUSR1 opens a debugger, which reads secrets.
// Plain JavaScript, and nothing imported before the check: a Node that is too old must get as far as
// the sentence that says so.
const OLDEST = 24;

// However the program was started, the signal opens no debugger.
process.on('SIGUSR1', () => {});

if (Number(process.versions.node.split('.')[0]) < OLDEST) {
  process.stderr.write(
    `digest-gateway needs Node.js ${OLDEST} or newer; this is v${process.versions.node}. ` +
      'Install a newer one from https://nodejs.org/, or, in a checkout, run it as: npm run -s gateway -- COMMAND\n',
  );
  process.exitCode = 2;
} else {
  import('./main.ts').then(({ main }) => main(process.argv.slice(2)));
}
