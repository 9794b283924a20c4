import type { KeyObject } from 'node:crypto';
import { signingKey, verificationKey, witnessKeyText } from '../audit/checkpoint.ts';
import { fileMessageOf, messageOf } from '../base/error-code.ts';
import { readGuardedFile } from '../base/guarded-file.ts';
import type { Log } from '../base/log.ts';
import type { OpenAddress } from '../base/open-port.ts';
import { ConfigError, type Issue } from '../config/issues.ts';
import { loadSettings } from '../config/load.ts';
import { type ProcessContext, SourceReader } from '../credentials/sources.ts';
import { readSigningKey } from '../setup/audit.ts';
import { readListenTls, watchListenTls } from '../setup/listen-tls.ts';
import { HeadStore } from './head-store.ts';
import { serveMetrics, WitnessMetrics } from './metrics.ts';
import { serveHeads } from './server.ts';
import { type WitnessSettings, witnessSettings } from './settings.ts';
import { Witness } from './witness.ts';

/** A witness that listens. */
export interface RunningWitness {
  readonly address: OpenAddress;
  /** Undefined: there is no listener for metrics. */
  readonly metricsAddress: OpenAddress | undefined;
  readonly isTls: boolean;
  /** Its public key as others take it: `NAME+ID+BASE64`. */
  readonly publicKey: string;
  close(): Promise<void>;
}

/**
 * Starts the witness of a file of settings.
 * @throws ConfigError if the settings, or what they name, cannot be used; Error if its port cannot
 */
export async function startWitness(file: string, context: ProcessContext, log: Log): Promise<RunningWitness> {
  const { settings, locate } = await loadSettings(file, witnessSettings(), context);
  const issues: Issue[] = [];
  const reader = new SourceReader(context, undefined);
  const key = await readSigningKey(settings.keyFile, reader).catch((error: unknown) => {
    issues.push({ path: ['keyFile'], message: messageOf(error) });
  });
  const logs = await readLogs(settings, context, issues);
  const { tls, issues: tlsIssues } = await readListenTls(settings.listen.tls, 0, context.uid);
  // The single listener has no index in the name of its setting.
  issues.push(
    ...tlsIssues.map(({ path: [, , ...rest], message }) => ({ path: ['listen', ...rest], message })),
  );
  if (key === undefined || issues.length > 0) throw new ConfigError(issues.map(locate));
  const { name, directory, listen } = settings;
  const own = signingKey(key);
  // Closed in the reverse order.
  await using opened = new AsyncDisposableStack();
  const store = await HeadStore.open(directory, { publicKey: own.publicKey, name }).catch(
    (error: unknown) => {
      throw new ConfigError([locate({ path: ['directory'], message: fileMessageOf(error) })]);
    },
  );
  opened.defer(() => store.close());
  const witness = new Witness({ name, key: own, logs }, store);
  const metrics = new WitnessMetrics(store);
  const server = await serveHeads({ witness, store, metrics, tls, log }, listen);
  opened.defer(() => server.close());
  const exposed = settings.metrics && (await serveMetrics(metrics, settings.metrics));
  opened.defer(() => exposed?.close());
  const watch = watchListenTls([listen], 0, tls, {
    log,
    uid: context.uid,
    renew: (_listener, renewed) => server.renewTls(renewed),
  });
  opened.defer(() => watch.close());
  const running = opened.move();
  return {
    address: server.address,
    metricsAddress: exposed?.address,
    isTls: tls !== undefined,
    publicKey: witnessKeyText(name, own.publicKey),
    close: () => running.disposeAsync(),
  };
}

/** Maximum size of the file of a public key, in bytes. */
const MAX_KEY_BYTES = 64 * 1024;

async function readLogs(
  settings: WitnessSettings,
  { uid }: ProcessContext,
  issues: Issue[],
): Promise<Map<string, KeyObject>> {
  const logs = new Map<string, KeyObject>();
  const guard = { uid, readableByOthers: true, largest: MAX_KEY_BYTES };
  for (const [index, { replica, publicKeyFile }] of settings.logs.entries()) {
    try {
      const { bytes } = await readGuardedFile(publicKeyFile, guard);
      logs.set(replica, verificationKey(bytes.toString('latin1')));
    } catch (error) {
      const message = error instanceof RangeError ? `${publicKeyFile} ${error.message}` : messageOf(error);
      issues.push({ path: ['logs', index, 'publicKeyFile'], message });
    }
  }
  return logs;
}
