import { writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { type ServerProcess, startServer } from './server-process.ts';
import { needPackages } from './system-packages.ts';

/** A reverse proxy from the system's packages, which keeps its connections to one server and refuses one path. */
export interface ReverseProxy {
  readonly port: number;
  close(): Promise<void>;
}

export interface ProxyOptions {
  /** Port of the server behind it. */
  readonly to: number;
  /** Paths with this prefix get 403; left out: every path is served. */
  readonly refuses?: string;
}

/** nginx with one worker, which keeps one connection to its server. */
export function startNginx({ to, refuses }: ProxyOptions): Promise<ReverseProxy> {
  needPackages('nginx-light');
  return startProxy(
    (folder, port) => `
daemon off;
worker_processes 1;
pid ${folder}/pid;
error_log stderr;
events { worker_connections 256; }
http {
  access_log off;
  client_header_timeout 2s;
  client_body_timeout 2s;
  keepalive_timeout 2s;
  client_body_temp_path ${folder}/client;
  proxy_temp_path ${folder}/proxy;
  fastcgi_temp_path ${folder}/fastcgi;
  uwsgi_temp_path ${folder}/uwsgi;
  scgi_temp_path ${folder}/scgi;
  upstream server { server 127.0.0.1:${to}; keepalive 1; }
  server {
    listen 127.0.0.1:${port};
    ${refuses === undefined ? '' : `location ${refuses} { return 403; }`}
    location / {
      proxy_pass http://server;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $http_host;
    }
  }
}
`,
    (folder, file) => ['nginx', '-p', folder, '-c', file, '-e', 'stderr'],
  );
}

/** HAProxy, whose clients share its connections to its server. */
export function startHaproxy({ to, refuses }: ProxyOptions): Promise<ReverseProxy> {
  needPackages('haproxy');
  return startProxy(
    (_folder, port) => `
defaults
  mode http
  timeout connect 30s
  timeout client 2s
  timeout server 30s
  http-reuse always
frontend all
  bind 127.0.0.1:${port}
  ${refuses === undefined ? '' : `http-request deny deny_status 403 if { path_beg ${refuses} }`}
  default_backend server
backend server
  server one 127.0.0.1:${to} maxconn 4
`,
    (_folder, file) => ['haproxy', '-db', '-f', file],
  );
}

async function startProxy(
  configuration: (folder: string, port: number) => string,
  command: (folder: string, file: string) => readonly string[],
): Promise<ReverseProxy> {
  const server: ServerProcess = await startServer({
    async prepare({ folder, port }) {
      const file = join(folder, 'proxy.conf');
      await writeFile(file, configuration(folder, port));
      return command(folder, file);
    },
    answers: ({ port }) => accepts(port),
  });
  return { port: server.place.port, close: () => server.close() };
}

function accepts(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    const tell = (does: boolean) => () => {
      socket.destroy();
      resolve(does);
    };
    socket.once('connect', tell(true)).once('error', tell(false));
  });
}
