import {
  account,
  apacheUsers,
  type RealServer,
  type ServerKind,
  startRealServer,
} from '../../support/real-server.ts';
import type { Place } from '../../support/server-process.ts';
import { needPackages } from '../../support/system-packages.ts';

/** Compiles the program in the file `$1` with these libraries, then becomes it. */
const COMPILED = 'file=$1; shift; gcc -O1 -x c "$file" -o "$file.program" "$@" && exec "$file.program"';

/** What both programs share: the account, the access log and the echo. */
const common = ({ folder, port }: Place): string => String.raw`
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <gnutls/gnutls.h>
#include <gnutls/crypto.h>
#define FOLDER "${folder}"
#define PORT ${port}
#define REALM "${account.realm}"
#define USER "${account.username}"
#define PASSWORD "${account.password}"
static FILE *access_log;
static void record(int status, const char *method, const char *authorization) {
  fprintf(access_log, "%d\t%s\t%s\n", status, method, authorization ? authorization : "-");
}
static void open_log(void) {
  access_log = fopen(FOLDER "/access.log", "a");
  setvbuf(access_log, NULL, _IOLBF, 0);
}
static char *echo_of(const char *method, const char *target, gnutls_hash_hd_t hash) {
  unsigned char sum[32];
  char *text = malloc(strlen(method) + strlen(target) + 80), *at = text;
  gnutls_hash_output(hash, sum);
  at += sprintf(at, "%s %s ", method, target);
  for (int i = 0; i < 32; i += 1) at += sprintf(at, "%02x", sum[i]);
  strcpy(at, "  -\n");
  return text;
}
`;

function startC(
  libraries: readonly string[],
  kind: Pick<ServerKind, 'users' | 'plaintext'>,
  program: (place: Place) => string,
): Promise<RealServer> {
  return startRealServer({
    ...kind,
    command: (file) => ['sh', '-c', COMPILED, 'sh', file, ...libraries],
    configuration: (place) => `${common(place)}${program(place)}`,
  });
}

export interface MicrohttpdOptions {
  readonly algorithm: 'MD5' | 'SHA-256';
  /** Seconds of a nonce; 300 when left out. */
  readonly nonceLifetime?: number;
}

/** GNU libmicrohttpd with its Digest (qop=auth, nc in a window of 64), in a thread for each connection. */
export function startMicrohttpd({ algorithm, nonceLifetime = 300 }: MicrohttpdOptions): Promise<RealServer> {
  needPackages('gcc', 'libmicrohttpd-dev');
  const name = algorithm === 'MD5' ? 'MHD_DIGEST_ALG_MD5' : 'MHD_DIGEST_ALG_SHA256';
  return startC(
    ['-lmicrohttpd', '-lgnutls'],
    { users: '' },
    () => String.raw`
#include <microhttpd.h>
struct request { char *target; gnutls_hash_hd_t hash; };
static char key[65536], certificate[65536];
static void *begin(void *none, const char *target, struct MHD_Connection *connection) {
  struct request *request = malloc(sizeof *request);
  request->target = strdup(target);
  gnutls_hash_init(&request->hash, GNUTLS_DIG_SHA256);
  return request;
}
static void end(void *none, struct MHD_Connection *connection, void **state, enum MHD_RequestTerminationCode code) {
  struct request *request = *state;
  if (!request) return;
  gnutls_hash_deinit(request->hash, NULL);
  free(request->target);
  free(request);
}
static enum MHD_Result handle(void *none, struct MHD_Connection *connection, const char *url, const char *method,
                              const char *version, const char *data, size_t *size, void **state) {
  /* The first call for a request has its head only. */
  static __thread void *seen;
  struct request *request = *state;
  if (seen != request && *size == 0) { seen = request; return MHD_YES; }
  seen = request;
  if (*size > 0) {
    gnutls_hash(request->hash, data, *size);
    *size = 0;
    return MHD_YES;
  }
  seen = NULL;
  const char *authorization = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Authorization");
  int verdict = MHD_digest_auth_check2(connection, REALM, USER, PASSWORD, ${nonceLifetime}, ${name});
  record(verdict == MHD_YES ? 200 : 401, method, authorization);
  char *text = verdict == MHD_YES ? echo_of(method, request->target, request->hash) : strdup("refused\n");
  struct MHD_Response *response = MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
  MHD_add_response_header(response, "Content-Type", "text/plain");
  enum MHD_Result queued = verdict == MHD_YES
    ? MHD_queue_response(connection, 200, response)
    : MHD_queue_auth_fail_response2(connection, REALM, "opaque", response, verdict == MHD_INVALID_NONCE, ${name});
  MHD_destroy_response(response);
  return queued;
}
static void load(const char *file, char *text, size_t room) {
  FILE *from = fopen(file, "r");
  text[fread(text, 1, room - 1, from)] = 0;
  fclose(from);
}
int main(void) {
  char seed[32];
  gnutls_rnd(GNUTLS_RND_RANDOM, seed, sizeof seed);
  open_log();
  load(FOLDER "/key.pem", key, sizeof key);
  load(FOLDER "/cert.pem", certificate, sizeof certificate);
  struct MHD_Daemon *daemon = MHD_start_daemon(
    MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_TLS | MHD_USE_ERROR_LOG, PORT, NULL, NULL,
    &handle, NULL, MHD_OPTION_HTTPS_MEM_KEY, key, MHD_OPTION_HTTPS_MEM_CERT, certificate,
    MHD_OPTION_URI_LOG_CALLBACK, &begin, NULL, MHD_OPTION_NOTIFY_COMPLETED, &end, NULL,
    MHD_OPTION_DIGEST_AUTH_RANDOM, sizeof seed, seed, MHD_OPTION_NONCE_NC_SIZE, 300, MHD_OPTION_END);
  if (!daemon) return 1;
  for (;;) pause();
}
`,
  );
}

/** CivetWeb with a passwords file: MD5, qop=auth, nonces without end, nc unchecked; Debian builds it without TLS. */
export function startCivetWeb(): Promise<RealServer> {
  needPackages('gcc', 'libcivetweb-dev', 'libmicrohttpd-dev');
  return startC(
    ['-lcivetweb', '-lgnutls'],
    { users: apacheUsers(account.password), plaintext: true },
    ({ port }) => `
#include <civetweb.h>
static int handle(struct mg_connection *connection, void *none) {
  const struct mg_request_info *info = mg_get_request_info(connection);
  const char *authorization = mg_get_header(connection, "Authorization");
  if (mg_check_digest_access_authentication(connection, REALM, FOLDER "/users") <= 0) {
    record(401, info->request_method, authorization);
    mg_send_digest_access_authentication_request(connection, REALM);
    return 401;
  }
  char part[4096], target[4096];
  gnutls_hash_hd_t hash;
  gnutls_hash_init(&hash, GNUTLS_DIG_SHA256);
  for (int got; (got = mg_read(connection, part, sizeof part)) > 0;) gnutls_hash(hash, part, got);
  const char *query = info->query_string;
  snprintf(target, sizeof target, "%s%s%s", info->request_uri, query ? "?" : "", query ? query : "");
  char *text = echo_of(info->request_method, target, hash);
  gnutls_hash_deinit(hash, NULL);
  record(200, info->request_method, authorization);
  mg_send_http_ok(connection, "text/plain", strlen(text));
  if (strcmp(info->request_method, "HEAD")) mg_write(connection, text, strlen(text));
  free(text);
  return 200;
}
int main(void) {
  struct mg_callbacks callbacks = {0};
  open_log();
  const char *options[] = {"listening_ports", "127.0.0.1:${port}", "enable_keep_alive", "yes", "num_threads", "64",
    "error_log_file", FOLDER "/error.log", NULL};
  mg_init_library(0);
  struct mg_context *context = mg_start(&callbacks, NULL, options);
  if (!context) return 1;
  mg_set_request_handler(context, "**", handle, NULL);
  for (;;) pause();
}
`,
  );
}
