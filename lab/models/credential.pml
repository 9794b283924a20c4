/*
 * Verification and rotation of a credential with two versions (docs/develop/evidence.md, rotation.md).
 *
 * Two requests go out again and again with the version in use. The upstream changes its password once at most, and drops
 * its nonces once at most, so that it refuses a right answer and does not say why. Time is a number of minutes.
 */
#define VERSIONS 2
#define MINUTES 3
/* attemptsWhenRefused */
#define ALLOWED 1

#ifdef NO_SINGLE_FLIGHT
#define IS_FREE true
#else
#define IS_FREE (!verifying)
#endif
#ifdef NO_CIRCUIT
#define HAS_ROOM true
#else
#define HAS_ROOM (attempts < ALLOWED)
#endif

/* The upstream: the version that it accepts, and whether it refuses the next right answer. */
byte right;
bool may_change = true;
bool may_drop = true;
bool drops;

byte in_use;
bool accepted[VERSIONS];
bool refused[VERSIONS];
/* True if the upstream has accepted an answer of this version, ever. */
bool proven[VERSIONS];
bool verifying;
byte verifications;

byte minute;
/* Attempts in this minute while every version is refused. */
byte attempts;
bool was_ever_wrong;

inline ask(version, reply) {
  d_step {
    if :: version == right && !drops -> reply = 1; proven[version] = true :: else -> reply = 0 fi;
    drops = false
  }
}

inline promote(version) {
  /* Only a version that the upstream has accepted takes over. */
  assert(proven[version]);
  in_use = version
}

inline refuse(version) {
  refused[version] = true; accepted[version] = false;
  /* A right password is not called wrong, though the upstream drops its nonces. */
  assert(was_ever_wrong || version != right)
}

proctype Request() {
  byte version; byte reply; byte other;
end:
  do
  :: atomic { !verifying && !(refused[0] && refused[1]) -> version = in_use };
     ask(version, reply);
     if
     :: reply == 1 -> d_step { accepted[version] = true; refused[version] = false }
     :: else ->
#ifdef NO_PROBE
        atomic { refuse(version) }
#endif
        /* One verification at a time: whoever comes later waits for its verdict. */
        if
        :: atomic { IS_FREE && !refused[version] && version == in_use -> verifying = true; verifications++ };
           assert(verifications == 1);
           other = 1 - version;
           ask(version, reply);
           if
           :: reply == 1 -> d_step { accepted[version] = true }
           :: else ->
#ifdef PROMOTED_UNTRIED
              atomic { refuse(version); promote(other) }
#else
              ask(other, reply);
              if
              :: reply == 1 -> atomic { accepted[other] = true; refuse(version); promote(other) }
              :: else -> 
                 /* The only one left is asked once more: the upstream may have dropped its nonce in between. */
                 ask(version, reply);
                 if
                 :: reply == 1 -> d_step { accepted[version] = true }
                 :: else -> atomic { refuse(version); refused[other] = true }
                 fi
              fi
#endif
           fi;
           atomic { verifying = false; verifications-- }
        :: !IS_FREE || refused[version] || version != in_use
        fi
     fi
  /* Every version is refused: an attempt goes out only if this minute may have one. */
  :: atomic { refused[0] && refused[1] && !verifying && HAS_ROOM -> verifying = true; attempts++; assert(attempts <= ALLOWED) };
     if :: version = 0 :: version = 1 fi;
     ask(version, reply);
     atomic {
       if :: reply == 1 -> accepted[version] = true; refused[version] = false; promote(version) :: else fi;
       verifying = false
     }
  od
}

proctype Upstream() {
end:
  do
  :: atomic { may_change -> may_change = false; right = 1; was_ever_wrong = true }
  :: atomic { may_drop -> may_drop = false; drops = true }
  :: atomic { minute < MINUTES -> minute++; attempts = 0 }
  od
}

init { atomic { run Request(); run Request(); run Upstream() } }
