import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

/** Binds a datagram socket of Unix, which Node.js cannot, and prints each message in hex. */
const RECEIVER = `
  use Socket;
  $| = 1;
  socket(my $socket, PF_UNIX, SOCK_DGRAM, 0) or die;
  bind($socket, sockaddr_un($ARGV[0])) or die;
  print "\\n";
  while (defined recv($socket, my $message, 65536, 0)) { print unpack("H*", $message), "\\n" }
`;

/** The socket on which systemd hears of a service. */
export interface NotifySocket {
  readonly path: string;
  /** The messages so far, each with its assignments. */
  readonly messages: Readonly<Record<string, string>>[];
  close(): Promise<void>;
}

export async function openNotifySocket(): Promise<NotifySocket> {
  const folder = await mkdtemp(join(tmpdir(), 'notify-'));
  const path = join(folder, 'socket');
  const child = spawn('perl', ['-e', RECEIVER, path], { stdio: ['ignore', 'pipe', 'inherit'] });
  const messages: Record<string, string>[] = [];
  const lines = createInterface(child.stdout);
  const opened = once(lines, 'line');
  lines.on('line', (line) => {
    const text = Buffer.from(line, 'hex').toString();
    // systemd-notify waits with it until its message was read.
    if (text === '' || text.startsWith('BARRIER=1')) return;
    const assignments = text
      .trimEnd()
      .split('\n')
      .map((each) => each.split(/=(.*)/s, 2));
    messages.push(Object.fromEntries(assignments));
  });
  await opened;
  return {
    path,
    messages,
    async close() {
      child.kill();
      await once(child, 'close');
      await rm(folder, { recursive: true });
    },
  };
}
