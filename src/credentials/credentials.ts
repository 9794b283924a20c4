import { isNativeError } from 'node:util/types';
import type { Secret } from '../base/secret.ts';
import { readSource, type Source, type Surroundings } from './sources.ts';

/** A user name and password for an upstream. */
export interface Credential {
  name: string;
  username: string;
  password: Secret;
  /** Changes whenever username or password does; says nothing about either. */
  version: string;
}

/** Something about a part of the configuration's `credentials`, never with a secret in it. */
export interface CredentialFinding {
  path: readonly string[];
  message: string;
}

/** Credentials that cannot be used. The message holds every finding, one a line. */
export class CredentialError extends Error {
  override readonly name = 'CredentialError';
  readonly findings: readonly CredentialFinding[];

  constructor(findings: readonly CredentialFinding[]) {
    super(findings.map(({ path, message }) => `${path.join('.')}: ${message}`).join('\n'));
    this.findings = findings;
  }
}

export interface Credentials {
  byName: ReadonlyMap<string, Credential>;
  /** What works, and should not stay as it is. */
  warnings: readonly CredentialFinding[];
}

type Sources = Readonly<Record<string, { username: Source; password: Source }>>;

/** Reads every credential. Throws a CredentialError with all that is wrong. */
export async function readCredentials(sources: Sources, surroundings: Surroundings): Promise<Credentials> {
  const byName = new Map<string, Credential>();
  const warnings: CredentialFinding[] = [];
  const faults: CredentialFinding[] = [];

  const read = async (path: readonly string[], source: Source): Promise<Secret | undefined> => {
    try {
      return await readSource(source, surroundings);
    } catch (error) {
      faults.push({ path, message: isNativeError(error) ? error.message : 'cannot be read' });
      return undefined;
    }
  };

  for (const [name, { username: usernameSource, password: passwordSource }] of Object.entries(sources)) {
    const usernamePath = ['credentials', name, 'username'];
    const passwordPath = ['credentials', name, 'password'];
    if ('value' in passwordSource) {
      warnings.push({ path: passwordPath, message: 'stands in the configuration itself: use env or file' });
    }
    const username = (await read(usernamePath, usernameSource))?.reveal();
    const password = await read(passwordPath, passwordSource);
    if (username !== undefined && /\p{Cc}/u.test(username)) {
      // RFC 7616 section 3.4: it goes into a quoted string of a header, which holds no controls.
      faults.push({
        path: usernamePath,
        message: 'holds a control character, such as a line break: remove it',
      });
    } else if (username !== undefined && password !== undefined) {
      byName.set(name, { name, username, password, version: '1' });
    }
  }

  if (faults.length > 0) {
    throw new CredentialError(faults);
  }
  return { byName, warnings };
}
