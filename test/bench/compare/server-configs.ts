import type { Place } from '../../support/server-process.ts';
import type { BenchUpstream } from './upstream.ts';

/*
 * Servers from the system's packages as reverse proxies: one process or thread that does the work, connections kept
 * open on both sides, the upstream's certificate verified, HTTP/1.1, no access log, nothing written to disk.
 */

const ROOT = process.getuid?.() === 0;

/** The upstream's certificate is for localhost and 127.0.0.1; these servers verify names only. */
const UPSTREAM_NAME = 'localhost';

export function nginxConfig({ folder, port }: Place, upstream: BenchUpstream, connections: number): string {
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
    (name) => `${name}_temp_path ${folder}/${name};`,
  );
  return `
daemon off;
${ROOT ? 'user nobody nogroup;' : ''}
worker_processes 1;
worker_rlimit_nofile 8192;
pid ${folder}/nginx.pid;
error_log stderr;
events { worker_connections 4096; }
http {
  access_log off;
  ${temporary.join('\n  ')}
  keepalive_timeout 600s;
  keepalive_requests 1000000000;
  upstream bench {
    server 127.0.0.1:${upstream.port};
    keepalive ${connections};
    keepalive_timeout 600s;
    keepalive_requests 1000000000;
  }
  server {
    listen 127.0.0.1:${port} backlog=2048;
    location / {
      proxy_pass https://bench;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host ${UPSTREAM_NAME};
      proxy_max_temp_file_size 0;
      proxy_ssl_verify on;
      proxy_ssl_trusted_certificate ${upstream.caFile};
      proxy_ssl_name ${UPSTREAM_NAME};
    }
  }
}
`;
}

export function haproxyConfig({ port }: Place, upstream: BenchUpstream, connections: number): string {
  return `
global
  nbthread 1
  maxconn 4000
defaults
  mode http
  option http-keep-alive
  http-reuse always
  timeout connect 10s
  timeout client 600s
  timeout server 600s
  timeout http-keep-alive 600s
frontend clients
  bind 127.0.0.1:${port} backlog 2048
  default_backend bench
backend bench
  server bench 127.0.0.1:${upstream.port} maxconn ${connections} pool-max-conn ${connections} pool-purge-delay 600s ssl verify required ca-file ${upstream.caFile} verifyhost ${UPSTREAM_NAME}
`;
}

const APACHE_MODULES = {
  mpm_event_module: 'mod_mpm_event',
  authz_core_module: 'mod_authz_core',
  proxy_module: 'mod_proxy',
  proxy_http_module: 'mod_proxy_http',
  ssl_module: 'mod_ssl',
};

/** Apache needs a thread for each request under way: as many as connections to the upstream. */
export function apacheConfig({ folder, port }: Place, upstream: BenchUpstream, connections: number): string {
  return `
${Object.entries(APACHE_MODULES)
  .map(([name, file]) => `LoadModule ${name} /usr/lib/apache2/modules/${file}.so`)
  .join('\n')}
${ROOT ? 'User nobody\nGroup nogroup' : ''}
ServerName ${UPSTREAM_NAME}
Listen 127.0.0.1:${port}
ListenBacklog 2048
DefaultRuntimeDir ${folder}
PidFile ${folder}/pid
Mutex file:${folder}
ErrorLog ${folder}/error.log
LogLevel error
StartServers 1
ServerLimit 1
ThreadLimit ${connections}
ThreadsPerChild ${connections}
MaxRequestWorkers ${connections}
MaxSpareThreads ${2 * connections}
AsyncRequestWorkerFactor 64
KeepAlive On
KeepAliveTimeout 600
MaxKeepAliveRequests 0
SSLSessionCache none
SSLProxyEngine on
SSLProxyVerify require
SSLProxyCheckPeerName on
SSLProxyCACertificateFile ${upstream.caFile}
ProxyPass / https://${UPSTREAM_NAME}:${upstream.port}/ keepalive=On ttl=600 max=${connections}
`;
}
