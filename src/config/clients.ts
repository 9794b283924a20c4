import { isIP } from 'node:net';
import { z } from 'zod';
import { parseName } from '../base/distinguished-name.ts';
import { isGuardedUrl } from '../base/network.ts';
import { ANONYMOUS, type ParameterLimit, type Rule } from '../policy/rules.ts';
import { apiKeySha256Schema, apiKeysSchema } from './api-keys.ts';
import { limitsSchema } from './limits.ts';
import { isMethod } from './operations.ts';
import {
  instant,
  listOf,
  NAME,
  NAME_FORM,
  network,
  oneOrMore,
  PARAMETER_NAMES,
  record,
  section,
  text,
  whole,
} from './value-schemas.ts';

const FINGERPRINT = /^(?:[0-9a-fA-F]{2}:?){31}[0-9a-fA-F]{2}$/;

/** A value is empty where a variable was not set. */
const SUBJECT = /^[\s\w.]+=\s*\S/u;

const certificate = () =>
  section({
    fingerprint256: oneOrMore(
      text('64 hex digits', FINGERPRINT).transform((hex) => hex.replaceAll(':', '').toLowerCase()),
      'the SHA-256 fingerprint of a certificate, 64 hex digits with or without colons; or a list of them',
    )
      .exactOptional()
      .describe('The fingerprint of the certificate.'),
    subject: text('the attributes of a subject, such as CN=reporting, O=Example', SUBJECT)
      .refine((value) => !SUBJECT.test(value) || parseName(value) !== undefined, {
        error:
          'is no subject that a certificate can have: write it as OpenSSL prints it, with \\, for a comma in a value',
      })
      .exactOptional()
      .describe('All attributes of the subject, in any order.'),
    san: text(
      'an alternative name after its kind: dns:reporting.internal, uri:spiffe://…, email:… or ip:…',
      isAlternativeName,
    )
      .exactOptional()
      .describe('One of the alternative names of the certificate.'),
  }).refine(isNotEmpty, { error: 'says nothing of the certificate: give fingerprint256, subject or san' });

function isAlternativeName(value: string): boolean {
  const [, kind = '', name = ''] = /^(dns|uri|email|ip):(.+)$/is.exec(value) ?? [];
  return name !== '' && (kind.toLowerCase() !== 'ip' || isIP(name) !== 0);
}

const scalar = () => {
  const error = 'a text, a number, true or false';
  return z.union([z.string(), z.number(), z.boolean()], { error });
};

const jwt = () =>
  section({
    issuer: text('the issuer of tokens, one of jwt.issuers').describe('The issuer (`iss`) of the tokens.'),
    audience: text('the audience (aud) of tokens for this gateway').describe(
      'The audience (`aud`) of the tokens.',
    ),
    subject: text('the subject (sub) of tokens of this client')
      .exactOptional()
      .describe('The subject (`sub`) of the tokens. Without it any.'),
    claims: record(scalar())
      .exactOptional()
      .describe('Further claims by name. Each equals the value, or is a list that holds it.'),
  });

const identify = () =>
  section({
    addresses: listOf(network(), 'a list of at least one network, such as [10.1.0.0/16]')
      .exactOptional()
      .describe('The networks from which the client calls.'),
    apiKeySha256: apiKeySha256Schema()
      .exactOptional()
      .describe(
        'The hash of the API key, which the client sends as `X-Api-Key`, or as the password of Basic with its id as user name.',
      ),
    apiKeys: apiKeysSchema()
      .exactOptional()
      .describe('API keys that end or have a note. One of these, or of `apiKeySha256`, must be sent.'),
    certificate: certificate()
      .exactOptional()
      .describe('The certificate of the client. It needs `listen.tls.clientCaFile`.'),
    jwt: jwt().exactOptional().describe('The Bearer token of the client.'),
  }).refine(isNotEmpty, {
    error:
      'has nothing that identifies the client: give addresses, apiKeySha256, apiKeys, certificate or jwt',
  });

const mode = () =>
  section({
    observe: z
      .literal(true, { error: 'true; leave mode out for rules that refuse' })
      .describe('Serves what the rules of the client would refuse, and records it.'),
    until: instant().describe(
      'The time from which the rules refuse again, without a reload: a date, which is its first instant in UTC, or an RFC 3339 time. At most 90 days ahead.',
    ),
  });

/** Schema of a client. `client-issues.ts` checks clients against each other. */
export const clientSchema = () =>
  section({
    id: text(`a name: ${NAME_FORM}; not anonymous`, isClientId).describe(
      'The name of the client in metrics, logs and the audit log.',
    ),
    identify: identify().describe(
      'How a request of this client is recognised. All that is given here must hold. A request that presents another API key, token or certificate is not of this client.',
    ),
    allow: allowSchema().describe(
      'The rules of the client. A request is served if one of them holds as a whole; without a rule nothing is.',
    ),
    limits: limitsSchema()
      .exactOptional()
      .describe('What this client may send. Without it there is no limit.'),
    mode: mode()
      .exactOptional()
      .describe(
        'Tries the rules without refusing anything: a request that they would refuse is served as if the client had a rule for everything of that deployment, with the credential of its site or deployment. The audit record says so (`wouldRefuse`), and `digest_gateway_would_refuse_total` counts it. What the deployment itself refuses is still refused.',
      ),
  });

export type Client = z.output<ReturnType<typeof clientSchema>>;

/** Schema of the trusted token issuers and the URLs of their public keys. */
export const jwtSchema = () =>
  section({
    issuers: listOf(
      section({
        issuer: text('the issuer, as tokens have it in iss').describe(
          'The issuer, exactly as tokens have it in `iss`.',
        ),
        jwksUrl: text(
          'the https:// address of its key set; http:// on a loopback address only',
          isKeySetUrl,
        ).describe(
          'The key set of the issuer. The gateway keeps the keys and renews them in the background.',
        ),
      }),
      'a list of at least one issuer',
    ).describe('The issuers whose tokens are accepted.'),
  });

/** Requires https, or http to a loopback host: an attacker who replaces the keys could forge tokens. */
function isKeySetUrl(value: string): boolean {
  if (!isGuardedUrl(value)) return false;
  const { username, password } = new URL(value);
  return username + password === '';
}

function isNotEmpty(section: object): boolean {
  return Object.keys(section).length > 0;
}

/** True if the text is a valid client id. */
export function isClientId(text: string): boolean {
  return NAME.test(text) && text !== ANONYMOUS.id;
}

const EVERYTHING = '*';

/** The rules of one client; one of them must hold for a request. */
const allowSchema = () => z.array(rule(), { error: 'a list of rules' }).default([]);

const rule = () =>
  section({
    deployment: text('the name of a deployment').describe('The deployment that the rule is about.'),
    sites: names(text('the name of a site')).describe('The sites that the client may name.'),
    operations: names(text('the name of an operation')).describe(
      'The operations that the client may use. `["*"]` includes requests that no listed operation matches.',
    ),
    methods: names(
      text('an HTTP method in capitals, or "*"', (name) => name === EVERYTHING || isMethod(name)),
    ).describe('The methods that the client may use.'),
    parameters: parameters()
      .prefault({})
      .describe('Limits of query parameters, by name, for every request under this rule.'),
    credential: text('the name of a credential')
      .exactOptional()
      .describe(
        'The credential for requests under this rule. Without it that of the site, or of the deployment.',
      ),
    ends: instant()
      .exactOptional()
      .describe(
        'When the rule ends: a date, from whose beginning in UTC it allows nothing, or a time of RFC 3339. Without it the rule has no end.',
      ),
  });

const parameters = () =>
  record(limit(), PARAMETER_NAMES).transform((limits) =>
    Object.entries(limits).map(
      ([name, { max, values }]): ParameterLimit => ({ name, max, values: values && new Set(values) }),
    ),
  );

const limit = () =>
  section({
    max: whole(1, 10_000).exactOptional().describe('The most items of a quoted list.'),
    values: z
      .array(text('text in quotes'), { error: 'a list of values, each in quotes' })
      .nonempty({ error: 'a list of at least one value' })
      .exactOptional()
      .describe(
        'The values that the parameter, or each item of its list, may have. The parameter must then be present.',
      ),
  }).refine(({ max, values }) => max !== undefined || values !== undefined, {
    error: 'has neither max nor values: give at least one, or leave the parameter out',
  });

const names = (name: z.ZodType<string>) =>
  z
    .array(name, { error: 'a list of names, or ["*"]' })
    .nonempty({ error: 'a list of at least one name, or ["*"]' })
    .refine((list) => list.length === 1 || !list.includes(EVERYTHING), {
      error: 'has "*" beside names: keep "*", which is everything, or the names',
    })
    .transform((list): Rule['sites'] => (list.includes(EVERYTHING) ? EVERYTHING : new Set(list)))
    .prefault([EVERYTHING]);
