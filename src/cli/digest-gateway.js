#!/usr/bin/env -S node --expose-gc
// The flag is for base/spent-buffers.ts.
// Plain JavaScript, and nothing imported before the check: a Node that is too old must get as far as
// the sentence that says so.
const OLDEST = 24;

if (Number(process.versions.node.split('.')[0]) < OLDEST) {
  process.stderr.write(
    `digest-gateway needs Node.js ${OLDEST} or newer; this is v${process.versions.node}. ` +
      'Install a newer one from https://nodejs.org/, or, in a checkout, run it as: npm run -s gateway -- COMMAND\n',
  );
  process.exitCode = 2;
} else {
  import('./main.ts').then(({ main }) => main(process.argv.slice(2)));
}
