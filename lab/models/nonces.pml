/*
 * Nonces with a count: who may use them, and that no nc goes out twice (docs/develop/nonces.md).
 *
 * Two processes share a store, one with two requests at a time and one with one. The upstream issues nonces, and refuses
 * a right answer once. The store is Redis, which can be emptied, or set back to an earlier state, as one that restarts or
 * fails over: each such begins another run of it. Or it is the memory of a primary process, which has one run.
 *
 * A mutation is a macro, named as in lab/simulation/mutations.ts where it is there, too. With TRACE, a run has to show
 * the events that lab/models/nonce-trace.ts has made of flight records, of one nonce; the processes take their steps only
 * in that order. What no record shows may happen at any time: a process leaves its nonce, or a challenge, to others.
 */
#define NOBODY 255

#ifdef TRACE
#include "trace.pml"
#define NONCES 1
#define REFUSALS 255
#define REQUESTS(p) MAX_REQUESTS
#else
#define PROCESSES 2
#define REQUESTS(p) (2 - p)
#define NONCES 2
#define COUNTS 3
#define REFUSALS 1
/* A run shows its events to nobody. */
#define SEES(p, kind, request, nc) true
#define advance(p) skip
#endif

#ifdef OWNERSHIP_OF_RUN
#define IS_OF_THIS_RUN true
#else
#define IS_OF_THIS_RUN (parked_run == store_run)
#endif
#ifdef OWNERSHIP_OF_PARKED
#define REDIS_KEEPS true
#else
#define REDIS_KEEPS false
#endif
#ifdef OWNERSHIP_IN_MEMORY
#define MEMORY_KEEPS true
#else
#define MEMORY_KEEPS false
#endif

/* What the upstream has seen: each nc of each nonce. */
bool used[NONCES * COUNTS];
byte issued;
byte refusals;

/*
 * True if others than the handshake that obtained the nonce may use it: the upstream has accepted an answer to it, or
 * that handshake cannot answer it.
 */
bool serves_others[NONCES];
/* True if the owner of the nonce knows that the upstream has refused it, or that a count of it was lost. */
bool spoiled[NONCES];

/* What each process knows: the nonce that its requests share, its last nc, and its attempts under way. */
byte known[PROCESSES];
short last[PROCESSES];
byte under_way[PROCESSES];
bool retired[PROCESSES];
/* True while the upstream would accept a nonce that it has accepted from this process. */
bool has_good[PROCESSES];

/* The store: one parked nonce with its count, and the run of the store in which it was parked. */
bool in_memory;
byte parked = NOBODY;
short parked_count;
byte parked_run;
byte store_run;
/* An earlier state of the store, to which it can be set back. */
byte kept = NOBODY;
short kept_count;
byte kept_run;
byte set_back;

inline use(nonce, nc) {
  assert(nc >= 1 && nc <= COUNTS);
  /* No nc is sent twice with a nonce, by whichever process. */
  assert(!used[nonce * COUNTS + nc - 1]);
  used[nonce * COUNTS + nc - 1] = true
}

inline count_attempt(p) {
#ifdef SAME_COUNT
  if :: under_way[p] < 2 || last[p] == 0 -> last[p]++ :: else fi
#else
  last[p]++
#endif
}

inline share(p, nonce, count) {
  if
  :: known[p] == NOBODY && !retired[p] ->
     has_good[p] = true;
#ifndef ACCEPTED_NOT_SHARED
     known[p] = nonce; last[p] = count
#endif
  /* Another request has obtained one meanwhile: this one serves nobody else. */
  :: else
  fi
}

/* The upstream has refused the nonce, or a count of it was lost. One that is being left to others is left all the same. */
inline spoil(p, nonce) {
  refusals++;
  if
  :: known[p] == nonce && !retired[p] ->
     spoiled[nonce] = true; has_good[p] = false;
#ifndef STALE_NONCE_KEPT
     known[p] = NOBODY; last[p] = 0
#endif
  :: else
  fi
}

proctype Request(byte p; byte me) {
  byte nonce; short nc;
end:
  do
  /* With the nonce that the process knows. */
  :: atomic {
       known[p] != NOBODY && !retired[p] && last[p] < COUNTS && SEES(p, BEGINS, me, last[p] + 1) ->
       nonce = known[p]; under_way[p]++;
       /* A nonce that was refused is not used again. */
       assert(!spoiled[nonce]);
       count_attempt(p);
       nc = last[p];
       advance(p)
#ifndef TRACE
     }
     /* Others take their steps before it leaves. */
     atomic {
#endif
       /* Only the handshake that obtained a nonce uses it before the upstream has accepted it. */
       assert(serves_others[nonce]);
       use(nonce, nc)
     }
     if
     :: atomic { SEES(p, ACCEPTED, me, 0) -> under_way[p]--; advance(p) }
     :: atomic { refusals < REFUSALS && SEES(p, REFUSED, me, 0) -> under_way[p]--; spoil(p, nonce); advance(p) }
     fi
  /* With one that it obtains. */
  :: atomic {
       known[p] == NOBODY && !retired[p] && issued < NONCES && SEES(p, BEGINS, me, 1) ->
       /* A nonce that the upstream has accepted serves further requests. */
       assert(!has_good[p]);
       nonce = issued; issued++; nc = 1;
#ifdef SHARED_BEFORE_ACCEPTED
       known[p] = nonce; last[p] = 1; under_way[p]++;
#endif
       advance(p)
#ifndef TRACE
     }
     atomic {
#endif
       use(nonce, nc)
     }
#ifdef SHARED_BEFORE_ACCEPTED
     under_way[p]--;
#endif
     if
     :: atomic { SEES(p, ACCEPTED, me, 0) -> serves_others[nonce] = true; share(p, nonce, 1); advance(p) }
     :: atomic { refusals < REFUSALS && SEES(p, REFUSED, me, 0) -> spoil(p, nonce); advance(p) }
     fi
  /* Its body is gone, so that it cannot answer the challenge: it leaves the nonce to the next one. */
  :: atomic {
       known[p] == NOBODY && !retired[p] && issued < NONCES ->
       nonce = issued; issued++; serves_others[nonce] = true; share(p, nonce, 0)
     }
  od
}

/* Ends one use of a process: leaves its nonce to another, or takes one over. */
proctype Life(byte p) {
end:
  do
  :: atomic { known[p] != NOBODY && !retired[p] -> retired[p] = true; has_good[p] = false }
     under_way[p] == 0;
     atomic {
       if
       :: parked == NOBODY ->
          parked = known[p]; parked_count = last[p]; parked_run = store_run;
          /* The next owner does not know of it. */
          spoiled[parked] = false
       :: else
       fi;
#ifndef PARKED_IN_USE
       known[p] = NOBODY; last[p] = 0;
#endif
       retired[p] = false
     }
  :: atomic {
       known[p] == NOBODY && !retired[p] && parked != NOBODY && IS_OF_THIS_RUN && SEES(p, TAKES, 0, parked_count) ->
       known[p] = parked;
#ifdef COUNT_GOES_BACK
       last[p] = (parked_count > 0 -> parked_count - 1 : 0);
#else
       last[p] = parked_count;
#endif
       if
       :: (in_memory -> MEMORY_KEEPS : REDIS_KEEPS)
       :: else -> parked = NOBODY
       fi;
       advance(p)
     }
  od
}

/* Faults of Redis. */
proctype Faults() {
end:
  do
  :: atomic { kept == NOBODY && parked != NOBODY -> kept = parked; kept_count = parked_count; kept_run = parked_run }
  :: atomic { set_back < 1 -> set_back++; store_run++; parked = kept; parked_count = kept_count; parked_run = kept_run }
  :: atomic { set_back < 1 -> set_back++; store_run++; parked = NOBODY }
  od
}

init {
  byte p; byte me;
  atomic {
#ifdef TRACE
    choose_trace();
#endif
    for (p : 0 .. PROCESSES - 1) {
      known[p] = NOBODY;
      for (me : 0 .. REQUESTS(p) - 1) { run Request(p, me) }
      run Life(p)
    }
#ifndef TRACE
    if :: in_memory = true :: run Faults() fi
#endif
  }
}
