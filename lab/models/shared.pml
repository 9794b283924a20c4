/*
 * Nonces without a count, which all processes share (docs/develop/nonces.md).
 *
 * A challenge is the number with which the upstream issued it, so that a higher one is younger; 0: there is none.
 *
 * The mutation is a macro, named as in lab/simulation/mutations.ts.
 */
#define PROCESSES 3
#define CHALLENGES 4

byte issued;
byte stored;
/* The challenge that each process uses, and the one that the store held when the process last looked. */
byte known[PROCESSES];
byte seen[PROCESSES];

proctype Process(byte p) {
  byte expected; byte next;
end:
  do
  /* A new one is used at once, and offered to the others. */
  :: atomic { issued < CHALLENGES -> issued++; known[p] = issued; expected = seen[p]; next = known[p] }
     goto offers
  :: atomic {
       seen[p] = (stored != 0 -> stored : seen[p]);
       if
       :: stored > known[p] -> known[p] = stored
       :: known[p] != 0 && stored < known[p] -> expected = seen[p]; next = known[p]; goto offers
       :: else
       fi
     }
  od;
offers:
  atomic {
    if
#ifndef COMPARE_AND_SET
    /* Somebody was quicker. */
    :: stored != 0 && stored != expected ->
       seen[p] = stored;
       if :: known[p] == next -> known[p] = stored :: else fi
#endif
    :: else ->
       /* A challenge never takes the place of a younger one. */
       assert(next >= stored);
       stored = next; seen[p] = next
    fi;
    goto end
  }
}

/* What the others announce reaches a process between any two of its steps. */
proctype Listener(byte p) {
end:
  do
  :: atomic { stored > known[p] -> seen[p] = stored; known[p] = stored }
  od
}

init {
  byte p;
  atomic { for (p : 0 .. PROCESSES - 1) { run Process(p); run Listener(p) } }
}
