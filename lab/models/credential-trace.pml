/*
 * The rules of credential.pml for any number of versions, step by step, with the events that flight records have of a
 * credential (docs/develop/flight-recorder.md): each step takes place only as the next event. A trace is of one credential
 * in one process. The versions in its rotation are a set of bits.
 *
 * News of another process, and actions of an operator, may come at any time.
 */
#define NEXT next_kind[0]
#define SUBJECT next_subject[0]
#define VALUE next_value[0]
#define IS_MEMBER(version) ((members >> (version)) & 1)

#define NOBODY 255
/* No reply. */
#define NONE 3

#define MINUTE_MS 60000
/* Times are rounded. */
#define ROUNDED_MS 1

#define BY_VERDICT 1
#define BY_QUESTION 2

int members;
byte subject = NOBODY;
byte verifies_by;
/* Findings of the verification under way about each version: the last reply, and answers that were refused. */
byte replied[VERSIONS] = NONE;
byte refusals[VERSIONS];
byte tried[VERSIONS] = NONE;
byte tested[VERSIONS] = NONE;
/* Versions that can take the place of the one that is verified. */
int others;
bool was_accepted;
byte evidence;
byte verdict = NONE;
bool is_admitted;
bool was_admitted;
int admitted_at;

bool are_all_refused;
bool is_successor_found;
bool are_all_asked;

/* True if every version in the rotation is refused. */
inline judge_all(version) {
  d_step {
    are_all_refused = true;
    for (version : 0 .. VERSIONS - 1) {
      if :: IS_MEMBER(version) && !refused[version] -> are_all_refused = false :: else fi
    }
    version = 0
  }
}

/*
 * Findings of the verification about the other versions: whether one is accepted, and whether each was asked until its
 * refusal is certain. One whose nonce may have been dropped is asked twice, if a minute may have more than one attempt.
 */
inline judge_others(version) {
  d_step {
    is_successor_found = false; are_all_asked = true;
    for (version : 0 .. VERSIONS - 1) {
      if
      :: (others >> version) & 1 ->
         if :: replied[version] == ACCEPTED -> is_successor_found = true :: else fi;
         if
         :: replied[version] == NONE || (replied[version] == REFUSED && refusals[version] < 2 && VALUE > 1) ->
            are_all_asked = false
         :: else
         fi
      :: else
      fi
    }
    version = 0
  }
}

inline forget_replies(version) {
  d_step {
    for (version : 0 .. VERSIONS - 1) { replied[version] = NONE; refusals[version] = 0 }
    version = 0;
    verdict = NONE
  }
}

/* Versions that were not in the rotation before are unknown. */
inline set_members(set, version) {
  d_step {
    for (version : 0 .. VERSIONS - 1) {
      if
      :: ((set >> version) & 1) && !IS_MEMBER(version) ->
         accepted[version] = false; refused[version] = false; proven[version] = false;
         tried[version] = NONE; tested[version] = NONE
      :: else
      fi
    }
    version = 0;
    members = set
  }
}

inline take_reply(reply) {
  replied[SUBJECT] = reply;
  if :: reply == REFUSED -> refusals[SUBJECT] = refusals[SUBJECT] + VALUE :: else fi
}

/* One that was accepted is refused by a question only; for another one, the client's request was the first. */
#define IS_SUBJECT_REFUSED (refusals[subject] > (was_accepted -> evidence : 0))
/* A second answer was refused, too, or says nothing. */
#define IS_REFUSAL_CERTAIN (refusals[subject] >= 2 || replied[subject] == UNCLEAR || (VALUE == 1 && replied[subject] != NONE))

inline end_verdict(result) { verdict = result; advance(0) }

proctype Follower() {
  byte version;
end:
  do
  :: atomic {
       NEXT == OFFER ->
       if :: in_use == NOBODY -> in_use = SUBJECT :: else fi;
       set_members(VALUE | (1 << in_use), version); advance(0)
     }
  :: atomic { NEXT == IS_ACCEPTED && !accepted[SUBJECT] -> accept(SUBJECT); proven[SUBJECT] = true; advance(0) }

  /* One verification at a time. */
  :: atomic {
       NEXT == VERIFIES && IS_FREE && !refused[SUBJECT] ->
       verifying = true; verifies_by = BY_VERDICT; subject = SUBJECT; was_accepted = accepted[subject];
       forget_replies(version); evidence = VALUE; refusals[subject] = evidence;
       others = (subject == in_use -> members & ~(1 << in_use) : 0);
       advance(0)
     }
  /* Questions without a verdict: every version is refused, or nothing is known of one that is not in use. */
  :: atomic {
       NEXT == QUESTIONS && IS_FREE -> judge_all(version);
       if
       :: is_admitted || !are_all_refused ->
          is_admitted = false; verifying = true; verifies_by = BY_QUESTION; subject = SUBJECT;
          forget_replies(version); others = members & ~(1 << subject);
          advance(0)
       :: else -> goto stuck
       fi
     }
  /* Another version is asked after the refusal of the one that is verified, and none after one that is accepted. */
  :: atomic {
       (NEXT == REPLY_ACCEPTED || NEXT == REPLY_REFUSED || NEXT == REPLY_UNCLEAR) && verifying && verdict == NONE &&
       (SUBJECT == subject || verifies_by == BY_QUESTION || ((others >> SUBJECT) & 1) && IS_SUBJECT_REFUSED) ->
       judge_others(version);
       if :: is_successor_found -> goto stuck :: else fi;
       if
       :: NEXT == REPLY_ACCEPTED && proven[SUBJECT] -> take_reply(ACCEPTED)
       :: NEXT == REPLY_REFUSED -> take_reply(REFUSED)
       :: NEXT == REPLY_UNCLEAR -> take_reply(UNCLEAR)
       fi;
       advance(0)
     }
  :: atomic { NEXT == VERDICT_ACCEPTED && SUBJECT == subject && replied[subject] == ACCEPTED -> end_verdict(ACCEPTED) }
  :: atomic { NEXT == VERDICT_UNCLEAR && SUBJECT == subject && replied[subject] == UNCLEAR -> end_verdict(UNCLEAR) }
  /* A version is refused for another one that is accepted, or if the refusal of each is certain. */
  :: atomic {
       NEXT == VERDICT_REFUSED && SUBJECT == subject && verifying && verifies_by == BY_VERDICT && IS_SUBJECT_REFUSED ->
       judge_others(version);
       if
       :: is_successor_found || (are_all_asked && IS_REFUSAL_CERTAIN) -> end_verdict(REFUSED)
       :: else -> goto stuck
       fi
     }
  :: atomic { NEXT == SETTLED && verifying && SUBJECT == subject -> verifying = false; subject = NOBODY; advance(0) }

  /* A version counts as refused by a verdict, by a question of the gateway's own, or as a candidate. */
  :: atomic {
       (NEXT == REFUSED_BY_VERDICT && verdict == REFUSED && SUBJECT == subject ||
        NEXT == REFUSED_BY_REPLY && verifying && replied[SUBJECT] == REFUSED &&
          (SUBJECT != subject || verifies_by == BY_QUESTION) ||
        NEXT == REFUSED_BY_TRIAL && tried[SUBJECT] == REFUSED ||
        NEXT == REFUSED_BY_TEST && tested[SUBJECT] == REFUSED && SUBJECT != in_use) && !refused[SUBJECT] ->
       refuse(SUBJECT); advance(0)
     }
  /* It is unknown again after a question without a verdict. */
  :: atomic {
       NEXT == RESET_BY_VERDICT && verdict == UNCLEAR && SUBJECT == subject ||
       NEXT == RESET_BY_REPLY && verifying && replied[SUBJECT] == UNCLEAR ||
       NEXT == RESET_BY_FAILURE && verifying && SUBJECT == subject ||
       (NEXT == RESET_BY_OPERATOR || NEXT == RESET_BY_OTHERS) && refused[SUBJECT] ||
       NEXT == RESET_BY_OFFER && refused[SUBJECT] && SUBJECT != in_use ||
       NEXT == RESET_BY_DUE && SUBJECT != in_use ->
       forget(SUBJECT); advance(0)
     }
  /* An attempt that is due is left to a client's request. */
  :: atomic {
       NEXT == RESET_BY_AGE && is_admitted && refused[SUBJECT] ->
       is_admitted = false; forget(SUBJECT); advance(0)
     }

  /* A version takes over after the one in use was refused, or after a trial. */
  :: atomic {
       IS_MEMBER(SUBJECT) && SUBJECT != in_use &&
       (NEXT == PROMOTED_BY_VERDICT && verdict == REFUSED && replied[SUBJECT] == ACCEPTED ||
        NEXT == PROMOTED_BY_ACCEPTED && refused[in_use] ||
        NEXT == PROMOTED_BY_TRIAL && tried[SUBJECT] == ACCEPTED) ->
       promote(SUBJECT); set_members(VALUE, version); advance(0)
     }
  :: atomic {
       NEXT == PROMOTED_BY_OPERATOR && IS_MEMBER(SUBJECT) ->
       in_use = SUBJECT; set_members(VALUE, version); advance(0)
     }
  :: atomic { NEXT == TRIAL_ACCEPTED && SUBJECT != in_use && proven[SUBJECT] -> tried[SUBJECT] = ACCEPTED; advance(0) }
  :: atomic { NEXT == TRIAL_REFUSED && SUBJECT != in_use -> tried[SUBJECT] = REFUSED; advance(0) }
  :: atomic { NEXT == TRIAL_WORSE && SUBJECT != in_use -> tried[SUBJECT] = UNCLEAR; advance(0) }
  :: atomic {
       NEXT == TRIAL_ENDED && SUBJECT != in_use && (refused[SUBJECT] || tried[SUBJECT] == UNCLEAR) -> advance(0)
     }
  :: atomic { NEXT == TEST_ACCEPTED && proven[SUBJECT] -> tested[SUBJECT] = ACCEPTED; advance(0) }
  :: atomic { NEXT == TEST_REFUSED -> tested[SUBJECT] = REFUSED; advance(0) }
  :: atomic { NEXT == TEST_UNCLEAR -> tested[SUBJECT] = UNCLEAR; advance(0) }

  /* Every version is refused: attempts are spread over a minute. SUBJECT: how many a minute may have. */
  :: atomic {
       NEXT == ADMITTED -> judge_all(version);
       if
       :: are_all_refused && (!was_admitted || VALUE - admitted_at + ROUNDED_MS >= MINUTE_MS / SUBJECT) ->
          was_admitted = true; is_admitted = true; admitted_at = VALUE; advance(0)
       :: else -> goto stuck
       fi
     }
  /* A request fails as refused only if every version is. */
  :: atomic {
       NEXT == FAILED -> judge_all(version);
       if :: are_all_refused -> advance(0) :: else -> goto stuck fi
     }
  od;
stuck:
  skip
}

init { atomic { in_use = NOBODY; choose_trace(); run Follower() } }
