"""What the controller must do, as tables read off the behaviour reference; the numbers are its sections.

Nothing here knows the code under test. A table is rows; ``machines`` and ``events`` beside it
interpret them, and count how often each row was used.
"""

from __future__ import annotations

from typing import Any, NamedTuple

NEW, ONLINE, OFFLINE, GONE = "New", "Online", "Offline", "NonExistent"
STARTED, SUCCESSFUL, INELIGIBLE = "DeletionStarted", "DeletionSuccessful", "DeletionIneligible"


class Legal(NamedTuple):
    """4.1 and 5.1: a target state and the states from which it may be reached."""

    id: str
    target: str
    previous: tuple[str, ...]


PARTITION_LEGAL = (
    Legal("5.1 new", NEW, (GONE,)),
    Legal("5.1 online", ONLINE, (NEW, ONLINE, OFFLINE)),
    Legal("5.1 offline", OFFLINE, (NEW, ONLINE, OFFLINE)),
    Legal("5.1 gone", GONE, (OFFLINE,)),
)

REPLICA_LEGAL = (
    Legal("4.1 new", NEW, (GONE,)),
    Legal("4.1 online", ONLINE, (NEW, ONLINE, OFFLINE, INELIGIBLE)),
    Legal("4.1 offline", OFFLINE, (NEW, ONLINE, OFFLINE, INELIGIBLE)),
    Legal("4.1 started", STARTED, (OFFLINE,)),
    Legal("4.1 successful", SUCCESSFUL, (STARTED,)),
    Legal("4.1 ineligible", INELIGIBLE, (OFFLINE, STARTED)),
    Legal("4.1 gone", GONE, (SUCCESSFUL,)),
)


class Candidate(NamedTuple):
    """5.3: one row of the table of strategies; ``needs`` are conditions on the candidate."""

    id: str
    strategy: str
    among: str
    needs: tuple[str, ...]
    isr: str
    recovering: bool | None
    recipients: str
    permitted: bool = False


#: Rows of one strategy are tried in order. "present": online, brokers in controlled shutdown included.
STRATEGIES = (
    Candidate(
        "5.3 offline clean",
        "offline",
        "assigned",
        ("online", "in sync", "kept data"),
        "online",
        None,
        "online",
    ),
    Candidate("5.3 offline unclean", "offline", "assigned", ("online",), "leader", True, "online", True),
    Candidate(
        "5.3 reassign", "reassign", "targets", ("online", "in sync", "kept data"), "kept", None, "targets"
    ),
    Candidate(
        "5.3 preferred", "preferred", "first", ("online", "in sync", "kept data"), "kept", None, "assigned"
    ),
    # An extension of ours: the preferred rule for a leader that the operator names.
    Candidate("5.3 chosen", "chosen", "chosen", ("online", "in sync", "kept data"), "kept", None, "assigned"),
    Candidate(
        "5.3 shutdown",
        "shutdown",
        "assigned",
        ("present", "in sync", "staying", "kept data"),
        "staying",
        None,
        "present",
    ),
)


class Effect(NamedTuple):
    """4.3 and 5.2: what a legal move does. ``when`` must all hold; the first row that fits is taken.

    Replicas that go offline together go in one write, and the ISR shrinks only while a live member remains (reference,
    section 14, point 4); "to be removed": that changes the leader or the ISR.
    """

    id: str
    target: str
    when: tuple[str, ...]
    does: tuple[str, ...]
    reassignments: bool = True


REPLICA_EFFECTS = (
    Effect("4.3 new led", NEW, ("led", "is leader"), ("refuse leader",), reassignments=False),
    Effect("4.3 new following", NEW, ("led",), ("lisr new to it",)),
    Effect("4.3 new unled", NEW, (), ()),
    Effect("4.3 online new", ONLINE, ("was new",), ()),
    Effect("4.3 online led", ONLINE, ("led",), ("lisr to it",)),
    Effect("4.3 online unled", ONLINE, (), ()),
    Effect("4.3 offline unled", OFFLINE, ("unled",), ("metadata", "stop")),
    # Deletion: what is to go anyway is held up by nothing (section 14, point 7).
    Effect(
        "4.3 offline missing deleting", OFFLINE, ("missing", "to be removed", "queued"), ("stop", "refuse")
    ),
    Effect("4.3 offline newer deleting", OFFLINE, ("newer", "queued"), ("stop", "refuse")),
    # That the replica is offline is told all the same (KAFKA-13225).
    Effect(
        "4.3 offline missing",
        OFFLINE,
        ("missing", "to be removed"),
        ("metadata", "stop", "refuse"),
        reassignments=False,
    ),
    Effect("4.3 offline newer controller", OFFLINE, ("newer",), ("stop", "refuse"), reassignments=False),
    Effect("4.3 offline in ISR deleting", OFFLINE, ("to be removed", "queued"), ("shrink", "stop")),
    Effect("4.3 offline in ISR", OFFLINE, ("to be removed",), ("shrink", "lisr to others", "stop")),
    Effect("4.3 offline deleting", OFFLINE, ("queued",), ("stop",)),
    Effect("6 shutdown out of ISR", OFFLINE, ("leaving",), ("metadata",)),
    # The unchanged LISR that the original sends once more is stale for every broker (6, failure): it is left out.
    Effect("4.3 offline out of ISR", OFFLINE, (), ("metadata", "stop")),
    Effect("4.3 started", STARTED, (), ("stop and delete",)),
    Effect("4.3 successful", SUCCESSFUL, (), ()),
    Effect("4.3 ineligible", INELIGIBLE, (), ()),
    Effect("4.3 gone", GONE, (), ("unassign",)),
)

#: docs/adr/0017: what becomes of an ISR some of whose members are registered without the data that they had in it.
LOST_DATA = (
    Effect("17 another kept it", "", ("another kept",), ("they leave", "leader leaves")),
    Effect("17 all lost it", "", ("leader lacks",), ("leader leaves",)),
    Effect("17 all had lost it", "", (), ()),
)

PARTITION_EFFECTS = (
    Effect("5.2 new", NEW, (), ()),
    Effect("5.2 offline", OFFLINE, (), ()),
    Effect("5.2 gone", GONE, (), ()),
    Effect(
        "5.2 first, nobody online", ONLINE, ("was new", "nobody online"), ("refuse",), reassignments=False
    ),
    # Read back: another's state is taken over, and elected for (reference, section 14, points 2 and 11); nobody is told
    # of one that names a controller epoch above ours.
    Effect("5.2 first, exists", ONLINE, ("was new", "exists"), ("adopt", "elect anew"), reassignments=False),
    Effect("5.2 first", ONLINE, ("was new",), ("initialize", "lisr new to isr")),
    Effect("5.2 elect missing", ONLINE, ("missing",), ("refuse",), reassignments=False),
    Effect("5.2 elect newer controller", ONLINE, ("newer",), ("refuse",), reassignments=False),
    Effect("5.2 elect nobody", ONLINE, ("no candidate",), ("refuse",), reassignments=False),
    Effect("5.2 elect", ONLINE, (), ("elect", "lisr to recipients")),
)


class Step(NamedTuple):
    """One step of an event: done if ``when`` all hold. ``arg`` names states, strategies or brokers."""

    id: str
    when: tuple[str, ...]
    does: str
    arg: Any = None


#: "them": the brokers that the event is about. "living": known and not queued for deletion.
EVENTS: dict[str, tuple[Step, ...]] = {
    "startup": (
        Step("6 startup 1", (), "forget disks and departures"),
        Step("6 startup 2", (), "live list"),
        Step("6 startup 3", (), "full metadata to them"),
        Step("17 startup", ("on them", "led"), "take out without data"),
        Step("6 startup 4", ("living",), "replicas on them", ONLINE),
        Step("6 startup 5", ("living",), "bring online"),
        Step("6 startup 7", ("queued", "undeleted on them"), "release deletion"),
    ),
    "failure": (
        Step("6 failure 1", (), "forget disks and departures"),
        Step("6 failure 2", ("living", "leader offline"), "partition", OFFLINE),
        Step("6 failure 3", ("living",), "bring online"),
        Step("6 failure 4", ("living", "on them"), "replicas on them", OFFLINE),
        # Ours: what the removal has read anew may name a live member of the ISR.
        Step("6 failure 4b", ("living", "live member"), "bring online"),
        Step("6 failure 5", ("queued", "undeleted on them"), "fail deletion"),
        # Also where something was elected: the list of live brokers is the same (KAFKA-13225).
        Step("6 failure 6", (), "live list"),
    ),
    "disk failed": (
        Step("8.5 known", (), "mark disks"),
        Step("6 disk 2", ("living", "leader offline"), "partition", OFFLINE),
        Step("6 disk 3", ("living",), "bring online"),
        Step("6 disk 4", ("living", "on them"), "replicas on them", OFFLINE),
        Step("6 disk 4b", ("living", "live member"), "bring online"),
        Step("6 disk 5", ("queued", "undeleted on them"), "fail deletion"),
    ),
    "controlled shutdown": (
        Step("6 shutdown 1", (), "note departure"),
        Step("6 shutdown 3", ("in scope", "leads"), "elect", "shutdown"),
        # Ours (14, point 6): none is stopped at the stored leader epoch; step 5 stops whom it takes out of the ISR, if
        # it writes that.
        Step("6 shutdown 4", ("in scope", "followed before", "out of sync"), "read again"),
        Step("6 shutdown 5", ("in scope", "followed before", "in sync"), "leaving replicas", OFFLINE),
        Step("6 shutdown 6", ("in scope", "leads"), "reply", "still leads"),
    ),
    "creation": (
        Step("7 creation 1", (), "assign"),
        Step("7 creation 2", (), "partition", NEW),
        Step("7 creation 3", (), "all replicas", NEW),
        Step("7 creation 4", (), "elect", "offline"),
        Step("7 creation 5", (), "all replicas", ONLINE),
    ),
    "failover": (
        Step("3.1 5", (), "load"),
        Step("3.1 6", ("queued", "some offline"), "hold deletion"),
        Step("3.1 8", (), "live list"),
        Step("17 failover", ("known", "led"), "take out without data"),
        # Leaders first (ours; the original begins with the replicas).
        Step("5.1 startup", ("known",), "set partition"),
        Step("5.1 elect", ("living",), "bring online"),
        Step("4.4 set", ("known",), "set replicas"),
        Step("4.4 online", ("living", "led"), "lisr to online"),
        Step("4.4 metadata", ("known", "led"), "metadata"),
        Step("4.4 offline", ("known",), "ineligible replicas", OFFLINE),
        Step("3.1 12", ("queued",), "resume deletion"),
    ),
    # Replicas known to be lost are asked again and stay Offline (ours; the original forgets the failure).
    "disk notification": (
        Step("8.5 ask again", ("living", "lost on them", "led"), "ask them again"),
        Step("8.5 ask", ("living", "healthy on them"), "replicas on them", ONLINE),
    ),
    "isr notification": (
        Step("8.4 refresh", ("known", "led"), "refresh"),
        Step("17 refresh", ("known", "led"), "take out without data"),
        Step("8.4 tell", ("known", "led"), "metadata"),
    ),
    "unclean enabled": (Step("3 unclean", ("living",), "bring online"),),
    "unclean disabled": (),
    "deletion": (Step("7.1 enqueue", (), "enqueue deletion"), Step("7.1 resume", (), "resume deletion")),
    "deleted": (
        Step("7.1 done", (), "replicas on them", SUCCESSFUL),
        Step("7.1 done resume", ("none started",), "resume deletion"),
    ),
    "deletion refused": (
        Step("7.1 refused", (), "replicas on them", INELIGIBLE),
        Step("7.1 refused hold", (), "hold deletion"),
        Step("7.1 refused resume", ("none started",), "resume deletion"),
    ),
    "deletion retried": (Step("7.1 retry due", (), "release deletion"),),
    "release deletion": (
        Step("7.1 release", (), "unhold deletion"),
        Step("7.1 release resume", (), "resume deletion"),
    ),
    # 7.1, resumeDeletions: what a queued topic does next.
    "resume deletion": (
        Step("7.1 retry", ("none started", "some ineligible"), "ineligible replicas", OFFLINE),
        Step("7.1 eligible", ("none started", "not held", "undeleted"), "begin deletion"),
        Step("7.1 complete", ("all successful",), "complete deletion"),
    ),
    "begin deletion": (
        # Ours: what brokers were told since a failover lacks no state any more, and is said to be complete.
        Step("7.1 begin complete", ("unled", "not started"), "live list"),
        Step("7.1 begin mark", (), "mark started"),
        Step("7.1 begin offline", ("partition exists",), "partition", OFFLINE),
        Step("7.1 begin gone", ("partition exists",), "partition", GONE),
        Step("7.1 begin metadata", ("led",), "metadata"),
        # Only what cannot be reached holds a deletion up: a broker that leaves can delete (section 14, point 7).
        Step("7.1 begin stop", (), "undeleted or running replicas", OFFLINE),
        Step("7.1 begin delete", (), "undeleted reachable replicas", STARTED),
        Step("7.1 begin dead", (), "unreachable replicas", INELIGIBLE),
        Step("7.1 begin held", ("some unreachable",), "hold deletion"),
    ),
    "fail deletion": (
        Step("7.1 fail offline", ("running on them",), "running replicas on them", OFFLINE),
        Step("7.1 fail partition", ("leaderless", "partition exists"), "partition", OFFLINE),
        Step("7.1 fail ineligible", (), "failing replicas on them", INELIGIBLE),
        Step("7.1 fail hold", (), "hold deletion"),
        Step("7.1 fail resume", (), "resume deletion"),
    ),
}


class Answer(NamedTuple):
    """A refusal or an acceptance: the first row of a table whose conditions hold gives the answer."""

    id: str
    when: tuple[str, ...]
    error: str


#: 8.4, in this order.
ALTER_PARTITION = (
    Answer("8.4 sender", ("stale sender",), "STALE_BROKER_EPOCH"),
    Answer("8.4 1 id", ("unknown",), "UNKNOWN_TOPIC_ID"),
    Answer("8.4 1", ("unled",), "UNKNOWN_TOPIC_OR_PARTITION"),
    Answer("8.4 2 PE", ("PE greater",), "NOT_CONTROLLER"),
    Answer("8.4 2 LE", ("LE greater",), "NOT_CONTROLLER"),
    Answer("8.4 3", ("LE lower",), "FENCED_LEADER_EPOCH"),
    Answer("8.4 4", ("same",), "NONE"),
    Answer("8.4 5", ("PE lower",), "INVALID_UPDATE_VERSION"),
    Answer("8.4 6 grow", ("proposes recovering", "several"), "INVALID_REQUEST"),
    Answer("8.4 6 back", ("proposes recovering", "recovered"), "INVALID_REQUEST"),
    # Section 14, point 9: a shrink may keep a dead member, and a leader stays in the ISR.
    Answer("8.4 not leader", ("sender does not lead",), "INVALID_REQUEST"),
    Answer("8.4 leader leaves", ("without sender",), "INVALID_REQUEST"),
    Answer("8.4 7", ("some new member not online",), "INELIGIBLE_REPLICA"),
    # Section 14, point 2: what is stored just so has landed.
    Answer("8.4 8 landed", ("stored as proposed",), "NONE"),
    Answer("8.4 8 conflict", ("stored otherwise",), "INVALID_UPDATE_VERSION"),
    Answer("8.4 8", (), "NONE"),
)

#: 8.3; "elect" goes on to the strategy of the same name, whose failure gives the second table's error.
ELECT_LEADERS = (
    Answer("8.3 unknown", ("unknown",), "UNKNOWN_TOPIC_OR_PARTITION"),
    Answer("8.3 deleting", ("queued",), "INVALID_TOPIC_EXCEPTION"),
    # The original never answers here.
    Answer("8.3 preferred unled", ("preferred", "unled"), "PREFERRED_LEADER_NOT_AVAILABLE"),
    Answer("8.3 unled", ("unled",), "ELIGIBLE_LEADERS_NOT_AVAILABLE"),
    Answer("8.3 no replica", ("chosen", "no replica of its"), "INVALID_REQUEST"),
    Answer("8.3 chosen leads", ("chosen", "led by chosen"), "ELECTION_NOT_NEEDED"),
    Answer("8.3 preferred leads", ("preferred", "led by first"), "ELECTION_NOT_NEEDED"),
    Answer("8.3 is led", ("unclean", "leader live"), "ELECTION_NOT_NEEDED"),
    Answer("8.3 elect", (), "elect"),
)
NOT_ELECTED = (
    Answer("8.3 no preferred", ("preferred",), "PREFERRED_LEADER_NOT_AVAILABLE"),
    Answer("8.3 no eligible", (), "ELIGIBLE_LEADERS_NOT_AVAILABLE"),
)

#: Errors in the state-change log, by what was refused; every other refusal is an ILLEGAL_TRANSITION.
ERRORS = {"no election": "ELECTION_FAILED", "not moved": "CONFLICT", "is the leader": "ILLEGAL_TRANSITION"}
