/*
 * Nonces with a count: who may use them, and that no nc goes out twice (docs/develop/nonces.md).
 *
 * Two processes share a store, each with two requests at a time. The upstream issues nonces. The store can be emptied, or
 * set back to an earlier state, as a Redis that restarts or fails over; each such begins another run of it.
 * Each mutation is a macro, named as in lab/simulation/mutations.ts where it is there, too.
 */
#define PROCESSES 2
#define NONCES 2
#define COUNTS 3
#define NOBODY 255

#ifdef OWNERSHIP_OF_RUN
#define IS_OF_THIS_RUN true
#else
#define IS_OF_THIS_RUN (parked_run == store_run)
#endif

/* What the upstream has seen: each nc of each nonce. */
bool used[6];
/* True once the upstream has accepted an answer to the nonce. */
bool accepted[NONCES];
byte issued;

/* What each process knows: the nonce that its requests share, its last nc, and its attempts under way. */
byte known[PROCESSES];
byte last[PROCESSES];
byte under_way[PROCESSES];
bool retired[PROCESSES];

/* The store: one parked nonce with its count, and the run of the store in which it was parked. */
byte parked = NOBODY;
byte parked_count;
byte parked_run;
byte store_run;
/* An earlier state of the store, to which it can be set back. */
byte kept = NOBODY;
byte kept_count;
byte kept_run;
byte set_back;

inline use(nonce, nc) {
  assert(nc >= 1 && nc <= COUNTS);
  /* No nc is sent twice with a nonce, by whichever process. */
  assert(!used[nonce * COUNTS + nc - 1]);
  used[nonce * COUNTS + nc - 1] = true;
}

proctype Request(byte p) {
  byte nonce; byte nc; bool fresh;
end:
  do
  :: atomic {
       known[p] != NOBODY && !retired[p] && last[p] < COUNTS ->
       nonce = known[p]; fresh = false; under_way[p]++;
#ifdef SAME_COUNT
       if :: under_way[p] < 2 -> last[p]++ :: else -> if :: last[p] == 0 -> last[p] = 1 :: else -> skip fi fi;
#else
       last[p]++;
#endif
       nc = last[p]
     }
     /* Only the handshake that obtained a nonce uses it before the upstream has accepted it. */
     atomic { assert(accepted[nonce]); use(nonce, nc) }
     under_way[p]--
  :: atomic {
       known[p] == NOBODY && !retired[p] && issued < NONCES ->
       nonce = issued; issued++; fresh = true; nc = 1;
#ifdef SHARED_BEFORE_ACCEPTED
       known[p] = nonce; last[p] = 1; under_way[p]++
#endif
     }
     atomic { use(nonce, nc) }
     atomic {
       accepted[nonce] = true;
#ifdef SHARED_BEFORE_ACCEPTED
       under_way[p]--
#else
       /* Another request may have obtained one meanwhile: then this one serves nobody else. */
       if :: known[p] == NOBODY && !retired[p] -> known[p] = nonce; last[p] = 1 :: else fi
#endif
     }
  od
}

/* Ends one use of a process: leaves its nonce to another, or takes one over. */
proctype Life(byte p) {
end:
  do
  :: atomic { known[p] != NOBODY && !retired[p] -> retired[p] = true }
     under_way[p] == 0;
     atomic {
       if
       :: parked == NOBODY -> parked = known[p]; parked_count = last[p]; parked_run = store_run
       :: else
       fi;
#ifndef PARKED_IN_USE
       known[p] = NOBODY; last[p] = 0;
#endif
       retired[p] = false
     }
  :: atomic {
       known[p] == NOBODY && !retired[p] && parked != NOBODY && IS_OF_THIS_RUN ->
       known[p] = parked;
#ifdef COUNT_GOES_BACK
       last[p] = parked_count - 1;
#else
       last[p] = parked_count;
#endif
#ifndef OWNERSHIP_OF_PARKED
       parked = NOBODY
#endif
     }
  od
}

proctype Faults() {
end:
  do
  :: atomic { kept == NOBODY && parked != NOBODY -> kept = parked; kept_count = parked_count; kept_run = parked_run }
  :: atomic { set_back < 1 -> set_back++; store_run++; parked = kept; parked_count = kept_count; parked_run = kept_run }
  :: atomic { set_back < 1 -> set_back++; store_run++; parked = NOBODY }
  od
}

init {
  byte p;
  atomic {
    for (p : 0 .. PROCESSES - 1) {
      known[p] = NOBODY;
      run Request(p); run Request(p); run Life(p)
    }
    run Faults()
  }
}
