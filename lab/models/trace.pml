/*
 * The events that a run of nonces.pml has to show, from flight records: `events` of events.h, which lab/models/trace.ts
 * writes, has for each trace and process the events in their order. A trace is of one nonce. Its processes have no
 * common clock: Spin finds the order between them, if there is one.
 *
 * What no record shows may happen at any time: a process leaves its nonce, or a challenge, to others.
 */
#define NONCES 1
#define REFUSALS 255
#define REQUESTS(p) MAX_REQUESTS

/* 0: the trace of this process is over. */
#define BEGINS 1
#define ACCEPTED 2
#define REFUSED 3
#define TAKES 4

short which;
short position[PROCESSES];
/* The next event of each process. */
byte next_kind[PROCESSES];
byte next_request[PROCESSES];
short next_nc[PROCESSES];

#define SEES(p, kind, request, nc) (next_kind[p] == kind && next_request[p] == request && next_nc[p] == nc)

c_decl {
\#include "events.h"
}

c_code {
  static int shown[TRACES];

  static void show_next(void) {
    int p, sum = 0;
    for (p = 0; p < PROCESSES; p++) {
      const struct event *event = &events[now.which][p][now.position[p]];
      now.next_kind[p] = event->kind;
      now.next_request[p] = event->request;
      now.next_nc[p] = event->nc;
      sum += now.position[p];
    }
    if (sum <= shown[now.which]) return;
    shown[now.which] = sum;
    printf("trace %d shows %d\n", now.which, sum);
  }
}

inline advance(p) { position[p]++; c_code { show_next(); } }

inline choose_trace() {
  do :: which < TRACES - 1 -> which++ :: break od;
  c_code { show_next(); }
}
