import type { z } from 'zod';
import { crossChecked, repeatedIssues } from '../config/cross-check.ts';
import { listener, listenTls } from '../config/listen.ts';
import { isExposedAddress } from '../config/listener-issues.ts';
import { fileName, listOf, NAME, NAME_FORM, section, text, tokenHash } from '../config/value-schemas.ts';

const TOKEN =
  'The SHA-256 of a token (Bearer) for reading the metrics. Required unless `metrics.address` is loopback.';
const LOGS = 'a list of at least one mapping of replica and publicKeyFile';

/** Schema of the settings of a witness. */
export const witnessSettings = () =>
  crossChecked(settings(), ({ logs }) =>
    repeatedIssues(logs, 'replica', ['logs'], 'is that of another log, too: name each replica once'),
  );

const settings = () =>
  section({
    name: text(
      'a name without spaces and "+", 200 characters at most, such as witness.example.org',
      /^[^\s+]{1,200}$/,
    ).describe('The name in its cosignatures, such as the host and path of its URL.'),
    listen: section({
      ...listener(8090),
      tls: listenTls()
        .omit({ clientCaFile: true, crlFile: true })
        .exactOptional()
        .describe('TLS for gateways. Changed files are used for new connections within seconds.'),
    })
      .prefault({})
      .describe('Where gateways send their heads.'),
    metrics: section({ ...listener(8091), tokenSha256: tokenHash().exactOptional().describe(TOKEN) })
      .superRefine(({ address, tokenSha256 }, context) => {
        if (tokenSha256 !== undefined || !isExposedAddress(address)) return;
        const message =
          'is missing: an address that is not loopback needs a token; give its SHA-256, or listen on 127.0.0.1';
        context.addIssue({ code: 'custom', path: ['tokenSha256'], message });
      })
      .exactOptional()
      .describe('Where Prometheus reads `/metrics`. By default there are none.'),
    keyFile: fileName().describe(
      'A file with the private key of the cosignatures (Ed25519, PEM), which `audit key new` makes. No gateway has it.',
    ),
    directory: fileName().describe(
      'The folder of its state: the last head of each log. A witness that loses it cosigns a log that was cut off.',
    ),
    logs: listOf(
      section({
        replica: text(`the name of a replica: ${NAME_FORM}`, NAME).describe(
          'The `audit.replica` of a gateway. Its workers belong to it.',
        ),
        publicKeyFile: fileName().describe(
          'A file with the public key (PEM) of its `audit.signingKeyFile`, which only the user of the witness or root may write.',
        ),
      }),
      LOGS,
    ).describe('The logs whose heads it cosigns.'),
  });

export type WitnessSettings = z.output<ReturnType<typeof witnessSettings>>;
