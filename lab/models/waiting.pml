/*
 * Requests of one process that wait for a challenge which another one obtains (docs/develop/nonces.md): none waits for
 * ever, whatever becomes of the other. A request that waits is in no end state, so that Spin reports it.
 *
 * A mutation is a macro, named as in lab/simulation/mutations.ts.
 */
#define REQUESTS 3

bool known;
/* True while one leads, and the number of requests that wait for it. */
bool leads;
byte followers;
/* True if the leader has passed its duty on to the first who waits. */
bool passed_on;

proctype Request() {
  if
  :: known -> goto done
  :: atomic { !known && !leads -> leads = true } goto lead
  :: atomic { !known && leads -> followers++ } goto follow
  fi;

lead:
  /* Asks whether another process is obtaining one. */
  if
  :: goto obtain
  :: true ->
     /* One is. It may crash, or its upstream may not respond. */
     if
     :: known = true
     :: true -> timeout
     fi
  :: true ->
     /* The call gets no reply: it is given up. */
#ifdef CALLS_OF_CHANNEL_PEND
     false
#else
     timeout
#endif
  fi;
obtain:
  if
  :: atomic { known = true; leads = false }
  /* No challenge came. */
  :: atomic { if :: followers > 0 -> passed_on = true :: else -> leads = false fi }
  :: goto end_unanswered
  fi;
  goto done;

follow:
  if
  :: atomic { known -> followers-- }
  :: atomic { !known && passed_on -> passed_on = false; followers-- } goto lead
  :: atomic { !known && !leads -> followers-- }
#ifndef WAITERS_FORGOTTEN
  /* It has waited long enough, and asks for a challenge of its own. */
  :: atomic { timeout -> followers-- }
#endif
  fi;
  goto done;

end_unanswered:
  /* The upstream does not respond. The deadline of the request is no part of this model. */
  false;
done:
  skip
}

init {
  byte count;
  atomic { for (count : 1 .. REQUESTS) { run Request() } }
}
