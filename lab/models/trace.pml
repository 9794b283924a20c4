/*
 * The events that a run of a model has to show, from flight records: `events` of events.h, which lab/models/traces.ts
 * writes, has for each trace and process the events in their order. Processes have no common clock: Spin finds the order
 * between them, if there is one.
 */
short which;
short position[PROCESSES];
/* The next event of each process; kind 0: its trace is over. */
byte next_kind[PROCESSES];
byte next_subject[PROCESSES];
int next_value[PROCESSES];

#define SEES(p, kind, subject, value) (next_kind[p] == kind && next_subject[p] == subject && next_value[p] == value)

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
      now.next_subject[p] = event->subject;
      now.next_value[p] = event->value;
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
