import { generateKeyPairSync } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { verificationKey, witnessKey } from '../audit/checkpoint.ts';
import { checkProof, LARGEST_PROOF, ProofError } from '../audit/proof.ts';
import { NotProvableError, prove } from '../audit/reader/prove.ts';
import { createDurably } from '../base/durable-file.ts';
import { fileMessageOf, messageOf } from '../base/error-code.ts';
import { printable, printableLines } from '../base/printable.ts';
import { count, formatTime } from '../base/units.ts';
import { auditDirectory, collectFiles, replicaOption, requireReplica } from './audit-log.ts';
import { CommandError, type ExitStatus, type Io, print, type Run, readBounded } from './io.ts';

interface ProveArguments {
  readonly config?: string;
  readonly directory?: string;
  readonly replica?: string;
  readonly record?: number;
}

/** Registers the commands for signed heads: `audit key new`, `audit prove` and `audit check-proof`. */
export function registerProof(audit: Command, run: Run): void {
  audit
    .command('key')
    .description('make keys of signed heads')
    .command('new')
    .description('make a key for audit.signingKeyFile: FILE, and FILE.pub for those who check')
    .requiredOption('--out <file>', 'the file of the private key; it must not exist')
    .action(run(newKey));
  audit
    .command('prove')
    .argument('<request-id>', 'the X-Request-Id of the response')
    .description('print a proof that the audit log has the records of a request, without those of others')
    .option('--config <file>', 'the configuration (YAML); none of its secrets is read')
    .option('--directory <directory>', 'the audit directory, or a copy, instead of --config')
    .addOption(replicaOption('the log'))
    .option(
      '--record <number>',
      'number of its access record, where several requests have the id',
      wholeNumber,
    )
    .action(run(runProve));
  audit
    .command('check-proof')
    .argument('<file>', 'what audit prove has printed')
    .description('check a proof, with nothing but the public key, and print its records')
    .requiredOption('--public-key <file>', 'FILE.pub of audit key new; can be repeated', collectFiles, [])
    .addOption(witnessKeyOption())
    .action(run(runCheckProof));
}

async function newKey(io: Io, { out }: { readonly out: string }): Promise<void> {
  const { privateKey, publicKey } = generateKeyPairSync('ed25519');
  // The public key first: a private key without it would have to be made again.
  await writeNew(`${out}.pub`, publicKey.export({ type: 'spki', format: 'pem' }), 0o644);
  try {
    await writeNew(out, privateKey.export({ type: 'pkcs8', format: 'pem' }), 0o600);
  } catch (error) {
    // Beside a private key that is there already, it would look like that one's.
    await rm(`${out}.pub`);
    throw error;
  }
  await print(io, `${out} (private: audit.signingKeyFile)\n${out}.pub (public: for those who check)\n`);
}

async function writeNew(file: string, content: string | Buffer, mode: number): Promise<void> {
  await createDurably(file, content, mode).catch((error) => {
    throw new CommandError(1, fileMessageOf(error, file), error);
  });
}

async function runProve(io: Io, requestId: string, options: ProveArguments): Promise<void> {
  const { replica, record } = options;
  const directory = await auditDirectory(options);
  await requireReplica(directory, replica);
  try {
    const proof = await prove({ directory, requestId, replica, record });
    await print(io, `${printableLines(JSON.stringify(proof, undefined, 2))}\n`);
  } catch (error) {
    throw error instanceof NotProvableError ? new CommandError(1, error.message, error) : error;
  }
}

async function runCheckProof(
  io: Io,
  file: string,
  {
    publicKey,
    witnessKey: files,
  }: { readonly publicKey: readonly string[]; readonly witnessKey: readonly string[] },
): Promise<ExitStatus> {
  const keys = await readKeys(publicKey, verificationKey);
  const witnesses = await readKeys(files, witnessKey);
  const text = await readBounded(file, LARGEST_PROOF, 'it is too large for a proof');
  try {
    const { requestId, origin, records, cosignatures } = checkProof(text, keys, witnesses);
    const seen = cosignatures
      .slice(0, 1)
      .map(({ name, time }) => `, cosigned by ${name} at ${formatTime(time)}`);
    const found = `${count(records.length, 'record')} of request ${requestId} in ${origin}${seen.join('')}`;
    await print(io, `${[...records, `${file}: ok — ${found}`].map(printable).join('\n')}\n`);
    return 0;
  } catch (error) {
    if (!(error instanceof ProofError)) throw error;
    await print(io, `${printable(`${file}: REFUSED — it ${error.message}`)}\n`);
    return 1;
  }
}

/** The option `--witness-key`. */
export function witnessKeyOption(): Option {
  const description =
    'check cosignatures by a witness key in a file (NAME+ID+BASE64, or PEM); can be repeated';
  return new Option('--witness-key <file>', description).argParser(collectFiles).default([]);
}

/** The largest file of a key that is read, in bytes. */
const LARGEST_KEY = 65_536;

/**
 * Reads public keys. `parse` throws a RangeError for the content of another file.
 * @throws CommandError that names the file
 */
export function readKeys<T>(files: readonly string[], parse: (text: string) => T): Promise<T[]> {
  return Promise.all(
    files.map(async (file) => {
      const text = await readBounded(file, LARGEST_KEY);
      try {
        return parse(text);
      } catch (error) {
        const reason = error instanceof RangeError ? error.message : `cannot be read: ${messageOf(error)}`;
        throw new CommandError(2, `${file} ${reason}`, error);
      }
    }),
  );
}

function wholeNumber(value: string): number {
  if (!/^[1-9]\d{0,14}$/.test(value)) throw new InvalidArgumentError('A record has a number from 1 on.');
  return Number(value);
}
