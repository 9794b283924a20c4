import { mkdtemp, rename, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

/** Files as Kubernetes mounts a secret: a link that is exchanged leads to all of them at once. */
export async function exchangeSecrets(folder: string, password: string, next: string): Promise<void> {
  const version = await mkdtemp(join(folder, 'version-'));
  await writeFile(join(version, 'password'), password, { mode: 0o600 });
  await writeFile(join(version, 'next'), next, { mode: 0o600 });
  await symlink(version, join(folder, 'new'));
  await rename(join(folder, 'new'), join(folder, 'now'));
}

/** The credential, as the configuration has it, whose password and next password are in such files. */
export function mountedCredential(folder: string): Record<string, unknown> {
  const file = (name: string) => ({ file: join(folder, 'now', name) });
  return {
    username: { value: 'demo-user' },
    password: file('password'),
    next: { password: file('next') },
  };
}
