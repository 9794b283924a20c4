import { z } from 'zod';
import { isGuardedUrl } from '../base/network.ts';
import { source } from './secret-source.ts';
import { duration, fileName, flag, isOrigin, listOf, oneOf, section, text, whole } from './value-schemas.ts';

/** Actions that can need a second person. Doctor changes nothing. */
const FOUR_EYES_ACTIONS = ['reload', 'drain', 'promote', 'roll-back', 'retry', 'withdraw'] as const;
/** Each puts any version of a credential in use: with one of them free, the other would need no second person. */
const VERSION_ACTIONS = ['promote', 'roll-back'] as const;
const CLAIM_LENGTH = 256;

/** OpenID Connect Discovery 1.0 §2: a URL without user, query and fragment. */
function isIssuer(value: string): boolean {
  if (!isGuardedUrl(value)) return false;
  const { username, password, search, hash } = new URL(value);
  return username + password + search + hash === '' && !/[?#]/.test(value);
}

const claimValue = () => text(`a text of at most ${CLAIM_LENGTH} characters`, isClaimText);
const claimName = () => text('the name of a claim', isClaimText);

function isClaimText(value: string): boolean {
  return value !== '' && value.length <= CLAIM_LENGTH && !/\p{Cc}/u.test(value);
}

const roleValues = (role: string) =>
  listOf(claimValue(), 'a list of at least one value of the claim').exactOptional().describe(role);

const roles = () =>
  section({
    claim: claimName()
      .default('groups')
      .describe(
        'The claim that decides: a text or a list of texts. `realm_access.roles` stands for the member `roles` of the claim `realm_access`. It is looked up in the ID token, then at the provider’s userinfo endpoint.',
      ),
    viewer: roleValues('Values of the claim that open the console, without the records of the audit log.'),
    operator: roleValues('Values of the claim that open the console and allow the actions.'),
    auditor: roleValues(
      'Values of the claim that open the console and the audit log: records, search, usage and export.',
    ),
    nameClaim: claimName()
      .default('sub')
      .describe(
        'The claim by which the console and the audit log name a person, such as `email`. Two people are distinguished by `sub`, whatever this claim says.',
      ),
  });

/** Schema of the sign-in with OpenID Connect. */
export const oidcSchema = () =>
  section({
    issuer: text(
      'the https:// URL of the issuer, without query; http:// on a loopback address only',
      isIssuer,
    ).describe('The issuer, exactly as its discovery document and its ID tokens have it.'),
    clientId: text('the id of the client', isClaimText).describe(
      'The id under which the provider knows the console.',
    ),
    clientSecret: source()
      .exactOptional()
      .describe('The secret of the client. Without it the console is a public client.'),
    publicUrl: text(
      'the https:// address of the console with nothing after host and port; http:// on a loopback address only',
      (value) => isOrigin(value) && isGuardedUrl(value),
    ).describe(
      'The address of the console in browsers, such as `https://console.example.org`. Register `/login/callback` under it as redirect URI at the provider, and `/login` as the address after signing out.',
    ),
    scopes: listOf(text('a scope', /^[\x21\x23-\x5b\x5d-\x7e]+$/), 'a list of at least one scope')
      .default(['profile', 'email'])
      .describe('The scopes that are requested besides `openid`. Some providers need `groups` here.'),
    caFile: fileName()
      .exactOptional()
      .describe(
        'PEM: the authorities of the certificate of the provider, instead of those that Node.js has.',
      ),
    roles: roles().describe(
      'Who may do what. Give at least one of `viewer`, `operator` and `auditor`. A person can have several roles; a person without one is not admitted.',
    ),
  });

/** Schema of the bounds of sessions. */
export const sessionSchema = () =>
  section({
    idle: duration()
      .default(1_800_000)
      .describe(
        'A session without a request for this long ends. A visible page of the console sends requests.',
      ),
    life: duration()
      .default(43_200_000)
      .describe('A session ends this long after the sign-in. Roles are those of the sign-in until then.'),
    max: whole(1, 100_000)
      .default(1_000)
      .describe('Open sessions of people. A sign-in above it is refused; a person has at most 10.'),
  });

/** Schema of the actions that need a second person. */
export const fourEyesSchema = () =>
  z.union(
    [
      flag(),
      section({
        actions: listOf(oneOf(FOUR_EYES_ACTIONS), `a list of ${FOUR_EYES_ACTIONS.join(', ')}`)
          .default([...FOUR_EYES_ACTIONS])
          .describe('The actions that need a second person. `promote` and `roll-back` stand for each other.'),
        within: duration().default(600_000).describe('How long a proposal waits for the second person.'),
      }),
    ],
    { error: 'true, false, or { actions: [promote], within: 10m }' },
  );

/** The actions that need a second person; undefined: none does. */
export interface FourEyes {
  readonly actions: ReadonlySet<string>;
  /** How long a proposal waits, in milliseconds. */
  readonly withinMs: number;
}

/** Returns the rule that a configuration states. */
export function fourEyesOf(written: z.output<ReturnType<typeof fourEyesSchema>>): FourEyes | undefined {
  if (written === false) return undefined;
  const { actions, within } = written === true ? { actions: FOUR_EYES_ACTIONS, within: 600_000 } : written;
  const listed = new Set<string>(actions);
  const isVersionListed = VERSION_ACTIONS.some((action) => listed.has(action));
  return { actions: new Set([...listed, ...(isVersionListed ? VERSION_ACTIONS : [])]), withinMs: within };
}
