/*
 * Verification and rotation of a credential with two versions (docs/develop/evidence.md, rotation.md).
 *
 * Two clients send requests with the version in use. The upstream changes its password once at most, to that of the other
 * version or to an unknown one. Once at most it has a trouble: it drops its nonces, so that it refuses a right answer and
 * does not say why, or a question gets no verdict. One request has a target that the upstream refuses, whatever the
 * password. Time is a number of half minutes.
 *
 * A mutation is a macro, named as in lab/simulation/mutations.ts where it is there, too. With TRACE, a run has to show the
 * events that lab/models/credential-trace.ts has made of flight records, by the steps in credential-trace.pml.
 */
#ifdef TRACE
#include "trace.pml"
#else
#define VERSIONS 2
#endif
/* The password of no version. */
#define NEITHER 2
#define HALF_MINUTES 5
/* attemptsWhenRefused */
#define ALLOWED 1
/* Attempts of a request that the upstream answers; a rotation adds as many. */
#define MAX_ATTEMPTS 2

#define REFUSED 0
#define ACCEPTED 1
#define UNCLEAR 2

#define CALM 0
#define DROPS 1
#define SILENT 2

#ifdef NO_SINGLE_FLIGHT
#define IS_FREE true
#else
#define IS_FREE (!verifying)
#endif
#ifdef ATTEMPT_BUDGET
#define BUDGET (2 * MAX_ATTEMPTS)
#else
#define BUDGET MAX_ATTEMPTS
#endif
#ifdef REFUSED_WHILE_UNKNOWN
#define FAILS_AS_REFUSED(version) refused[version]
#else
#define FAILS_AS_REFUSED(version) ALL_REFUSED
#endif
#define ALL_REFUSED (refused[0] && refused[1])

#ifdef CREDENTIAL_CIRCUIT
#define IS_DUE true
#else
#ifdef CIRCUIT_WITHOUT_WINDOW
#define IS_DUE (since_attempt >= 1)
#else
#define IS_DUE (since_attempt >= 2)
#endif
#endif

/* The upstream: the version that it accepts, and its trouble. */
byte right;
byte trouble = CALM;
bool may_change = true;
bool may_have_trouble = true;
bool may_refuse_target = true;

byte in_use;
bool accepted[VERSIONS];
bool refused[VERSIONS];
/* True if the upstream has accepted an answer of this version, ever. */
bool proven[VERSIONS];
/* True if the upstream has refused one because of its password, ever. */
bool seen_wrong[VERSIONS];
bool verifying;
byte verifications;

byte half_minutes;
/* Half minutes since the last attempt while every version is refused; no more than two count. */
byte since_attempt = 2;
/* Such attempts in this half minute, and in the one before. */
byte attempts;
byte attempts_before;

inline ask(version, reply) {
  d_step {
    if
    :: trouble == SILENT -> reply = UNCLEAR
    :: trouble == DROPS -> reply = REFUSED
    :: trouble == CALM && version != right -> reply = REFUSED; seen_wrong[version] = true
    :: else -> reply = ACCEPTED; proven[version] = true
    fi;
    trouble = CALM
  }
}

inline promote(version) {
  /* Only a version that the upstream has accepted takes over. */
  assert(proven[version]);
  in_use = version
}

inline accept(version) { accepted[version] = true; refused[version] = false }

inline refuse(version) { refused[version] = true; accepted[version] = false; is_right_or_wrong(version) }

/* A right password is not called wrong, though the upstream drops its nonces, or does not respond. */
inline is_right_or_wrong(version) {
#ifdef TRACE
  /* No record shows which password is right. */
  skip
#else
  assert(!refused[version] || version != right || seen_wrong[version])
#endif
}

inline forget(version) { accepted[version] = false; refused[version] = false }

#ifdef TRACE
#include "credential-trace.pml"
#else
/*
 * The gateway asks with requests of its own; `version` is in use, and `other` can take its place. `counts`: the client's
 * request was refused for its password, or for its nonce.
 */
inline verify(version, other, counts, reply) {
  ask(version, reply);
  if
  :: reply == ACCEPTED -> d_step { accept(version) }
  :: reply == UNCLEAR ->
#ifdef UNCLEAR_PROBE_REFUSES
     atomic { refuse(version) }
#else
     d_step { forget(version) }
#endif
  :: reply == REFUSED ->
#ifdef PROMOTED_UNTRIED
     atomic { refuse(version); promote(other) }
#else
     ask(other, reply);
     if
     :: reply == ACCEPTED -> atomic { accept(other); refuse(version); promote(other) }
     :: else ->
        if :: reply == REFUSED -> refused[other] = true :: else -> d_step { forget(other) } fi;
        /* Each that was refused once only is asked again: the upstream may have dropped its nonce in between. */
        if
        :: counts
        :: else -> ask(version, reply)
        fi;
        if
        :: !counts && reply == ACCEPTED -> d_step { accept(version) }
        :: !counts && reply == UNCLEAR -> d_step { forget(version) }
        :: else ->
#ifndef ASKED_ONCE
           if
           :: refused[other] ->
              ask(other, reply);
              if
              :: reply == ACCEPTED -> atomic { accept(other); refuse(version); promote(other) }
              :: reply == UNCLEAR -> atomic { forget(other); refuse(version) }
              :: reply == REFUSED -> atomic { refuse(other); refuse(version) }
              fi
           :: else -> atomic { refuse(version) }
           fi
#else
           atomic { is_right_or_wrong(other); refuse(version) }
#endif
        fi
     fi
#endif
  fi
}

proctype Client() {
  byte version; byte reply; byte other; byte answered; byte limit; bool is_rotated; bool has_bad_target;
end:
  do
  :: atomic {
       !verifying && !refused[in_use] ->
       version = in_use; answered = 0; limit = BUDGET; is_rotated = false; has_bad_target = false;
       if :: may_refuse_target -> may_refuse_target = false; has_bad_target = true :: true fi
     }
attempt:
     if
     :: has_bad_target -> reply = REFUSED
     :: else -> ask(version, reply)
     fi;
     /* A request makes two attempts at most, and two more in a rotation. */
     atomic { answered++; assert(answered <= (is_rotated -> 2 * MAX_ATTEMPTS : MAX_ATTEMPTS)) }
     if
     :: reply == ACCEPTED -> d_step { accept(version) } goto responded
     :: reply == UNCLEAR -> goto responded
     :: reply == REFUSED
     fi;
#ifdef NO_PROBE
     atomic { refuse(version) }
#endif
     /* One verification at a time: whoever comes later waits for its verdict. */
     if
     :: atomic { IS_FREE && !refused[version] && version == in_use -> verifying = true; verifications++ };
        assert(verifications == 1);
        other = 1 - version;
        verify(version, other, !has_bad_target, reply);
#ifdef PROBE_NEVER_LANDS
        atomic { verifications-- }
#else
        atomic { verifying = false; verifications-- }
#endif
     :: !IS_FREE || refused[version] || version != in_use
     fi;
waits:
     atomic {
       !verifying ->
       if
       :: version != in_use -> version = in_use; is_rotated = true; limit = 2 * BUDGET
       :: else
       fi;
       if
       :: !refused[version] && answered < limit -> goto attempt
       /* A request fails as refused only if every version is. */
       :: refused[version] && FAILS_AS_REFUSED(version) -> assert(ALL_REFUSED)
       :: else
       fi
     }
responded:
     skip
  /* The version in use is refused, and nothing is known of the other one. */
  :: atomic { refused[in_use] && !refused[1 - in_use] && !verifying -> verifying = true; other = 1 - in_use };
     ask(other, reply);
     atomic {
       if
       :: reply == ACCEPTED -> accept(other); promote(other)
       :: reply == REFUSED -> refused[other] = true
       :: else
       fi;
       verifying = false
     }
  /* Every version is refused: an attempt goes out only if one is due. */
  :: atomic {
       ALL_REFUSED && !verifying && IS_DUE ->
       verifying = true; since_attempt = 0; attempts++;
       /* No minute has more of them than allowed. */
       assert(attempts + attempts_before <= ALLOWED)
     };
     if :: version = 0 :: version = 1 fi;
     ask(version, reply);
     atomic {
       if :: reply == ACCEPTED -> accept(version); promote(version) :: else fi;
       verifying = false
     }
  od
}

proctype Upstream() {
end:
  do
  :: atomic { may_change -> may_change = false; if :: right = 1 :: right = NEITHER fi }
  :: atomic { may_have_trouble -> may_have_trouble = false; if :: trouble = DROPS :: trouble = SILENT fi }
  :: atomic {
       half_minutes < HALF_MINUTES ->
       half_minutes++; attempts_before = attempts; attempts = 0;
       if :: since_attempt < 2 -> since_attempt++ :: else fi
     }
  od
}

init { atomic { run Client(); run Client(); run Upstream() } }
#endif
