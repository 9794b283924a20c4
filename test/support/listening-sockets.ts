import { readdir, readFile, readlink } from 'node:fs/promises';

const LISTEN = '0A';

/** The addresses and ports that a process listens on with TCP, as the kernel writes them. Linux only. */
export async function listeningSockets(pid: number): Promise<string[]> {
  const own = new Set<string>();
  for (const fd of await readdir(`/proc/${pid}/fd`)) {
    own.add(await readlink(`/proc/${pid}/fd/${fd}`).catch(() => 'closed meanwhile'));
  }
  const tables = await Promise.all(
    ['tcp', 'tcp6'].map((name) => readFile(`/proc/${pid}/net/${name}`, 'utf8')),
  );
  const rows = tables.flatMap((table) => table.trim().split('\n').slice(1));
  return rows.flatMap((row) => {
    const [, local = '', , state, , , , , , inode] = row.trim().split(/\s+/);
    return state === LISTEN && own.has(`socket:[${inode}]`) ? [local] : [];
  });
}
