"""Faults of carrying decisions out (`controller.runtime`)."""

from __future__ import annotations

from tests.provers.sim.planted.fault import Change, Fault, drop

RUNTIME = "controller.runtime."
STORE = RUNTIME + "zookeeper.store:Store."

MIRROR = RUNTIME + "zookeeper.state_mirror:StateMirror."

FAULTS = (
    Fault(
        "stale-states-given",
        "a new controller takes from memory what it knows to have changed",
        Change(
            MIRROR + "hand_over", "[_q for _k in _s._stale if (_q := _p.partition(*_k)) is not None]", "[]"
        ),
    ),
    Fault(
        "stale-topics-given",
        "a new controller takes topics from memory that it knows to have changed",
        Change(MIRROR + "hand_over", "{*_p.special, *_s._stale_topics, *_m}", "{*_p.special, *_m}"),
    ),
    Fault(
        "special-topics-given",
        "a new controller takes topics from memory although their znodes tell of reassignments and the like",
        Change(MIRROR + "hand_over", "{*_p.special, *_s._stale_topics, *_m}", "{*_s._stale_topics, *_m}"),
    ),
    Fault(
        "topics-of-memory-not-watched",
        "a standby reads topics without arming the watches that their new controller needs",
        drop(MIRROR + "_read_topics", "await _s._session.arm_data_watches(...)"),
    ),
    Fault(
        "read-and-changed-kept",
        "a standby keeps what it read although it heard of a change while the read was under way",
        Change(MIRROR + "_read", "_k not in _s._meanwhile", "True"),
    ),
    Fault(
        "memory-outlives-the-connection",
        "states in memory are used although the connection with their watch was lost",
        Change(MIRROR + "_valid", "_s._connection == _s._session.connections", "True"),
    ),
    Fault(
        "states-read-before-they-are-watched",
        "a standby reads all states, and then arms its watch",
        Change(
            MIRROR + "_begin",
            "if not await _s._session.watch_tree(TREE):\n ...\nawait _s._read_all()",
            "await _s._read_all()\nif not await _s._session.watch_tree(TREE):\n ...",
        ),
    ),
    Fault(
        "changes-of-a-standby-not-heard",
        "a standby reads all states once and hears of no change",
        Change(MIRROR + "_listen", "_s._session.heard()", "()"),
    ),
    Fault(
        "no-epoch-check",
        "writes land whatever the controller epoch is by now",
        Change(STORE + "__init__", "jute.op_check(_p, _v)", "jute.op_check(_p, -1)"),
    ),
    Fault(
        "unknown-taken-for-written",
        "a write whose answer was lost counts as done",
        Change(
            STORE + "_commit",
            "_s.require_lease(); return Unconfirmed(_r.id, ...)",
            "return Committed(_r.id)",
        ),
    ),
    Fault(
        "conflict-taken-for-written",
        "a write that ZooKeeper refused counts as done",
        Change(
            STORE + "_commit",
            "_s._raise_if_fenced(_e); return Unconfirmed(_r.id, ...)",
            "_s._raise_if_fenced(_e); return Committed(_r.id)",
        ),
    ),
    Fault(
        "broker-watch-not-rearmed",
        "the registrations are read without arming their watch again",
        Change(
            STORE + "_read_brokers",
            "_s._children(znode_paths.BROKER_IDS)",
            "_s._session.children(znode_paths.BROKER_IDS)",
        ),
    ),
    Fault(
        "deletion-watch-not-rearmed",
        "the names of topics and the markers of deletion are read without arming their watches again",
        Change(STORE + "_answer", "_s._children(_q.path)", "_s._session.children(_q.path)"),
    ),
    Fault(
        "standby-does-not-watch",
        "who has lost an election does not watch /controller",
        Change(
            RUNTIME + "election.controller_election:elect",
            "_s.exists(znode_paths.CONTROLLER, _w)",
            "_s.exists(znode_paths.CONTROLLER)",
        ),
    ),
    Fault(
        "stranger-taken-for-former-self",
        "a controller deletes the registration of whoever has its id",
        Change(
            RUNTIME + "election.registration:_registered_stranger",
            "_a == 0 or _m.incarnation.includes(_i)",
            "True",
        ),
    ),
    Fault(
        "claim-over-a-live-controller",
        "with kafka_takeover, a standby claims although the leader lives",
        Change(
            RUNTIME + "election.takeover:verdict",
            "(Held.ALIVE, Held.KRAFT, Held.NAMESAKE, Held.UNREADABLE)",
            "(Held.KRAFT, Held.NAMESAKE, Held.UNREADABLE)",
        ),
    ),
    Fault(
        "claim-not-bound-to-the-epoch",
        "a claim lands although another was made after /controller was read",
        Change(
            RUNTIME + "election.controller_election:claim",
            "jute.op_set(_a, _b, _v)",
            "jute.op_set(_a, _b, -1)",
        ),
        Change(
            RUNTIME + "election.controller_election:claim",
            "jute.op_delete(_c, _f.version)",
            "jute.op_delete(_c, -1)",
        ),
    ),
    Fault(
        "deposition-not-noticed",
        "the active controller does not look whether /controller is still its own",
        Change(RUNTIME + "term:Term._verify", "await controller_election.still_ours(...)", "True"),
    ),
    Fault(
        "reconnect-ignored",
        "after a reconnect nothing is read again, and no watch armed",
        drop(RUNTIME + "daemon:Daemon._connection_changed", "_s.term.reconnected()"),
    ),
    Fault(
        "push-not-repeated",
        "a push that a broker did not answer is given up",
        Change(RUNTIME + "push.sender:Senders._deliver", "_b = min(_b * 2, _m); continue", "return"),
    ),
    Fault(
        "memory-kept-over-terms",
        "what a controller knew in its last term, it takes into the next",
        Change(
            RUNTIME + "daemon:Daemon._lead",
            "_t = _s.term = Term(_z, _w, ...)",
            """\
_t = _s.term = Term(_z, _w, ...)
kept = _s.__dict__.get("kept", {})
vars(_t.machine.cluster).update(kept, controller_epoch=_w.epoch)
_s.__dict__["kept"] = vars(_t.machine.cluster)
""",
        ),
    ),
    Fault(
        "comparison-leaves-topics-out",
        "before the whole state is pushed, only topics are compared that controller and broker both know",
        Change(
            RUNTIME + "audit.whole_state:Comparisons._by_topic",
            "_h.keys() | _s._cluster.topics.keys()",
            "_h.keys() & _s._cluster.topics.keys()",
        ),
    ),
    Fault(
        "any-broker-speaks-for-any",
        "a controller takes the requests of one broker from another",
        Change(RUNTIME + "rpc.access:Guard._speaks_for", "speaks_for(_a, _p, _b)", "True"),
    ),
    Fault(
        "replicas-not-counted",
        "a topic znode may name any number of replicas",
        Change(RUNTIME + "zookeeper.codecs:_distinct", "len(_i) > REPLICAS_MAX", "False"),
    ),
    Fault(
        "quarantine-not-read",
        "a new term does not leave out what raised in earlier ones",
        Change(
            RUNTIME + "quarantine:read",
            "return _q",
            "return Quarantine()",
        ),
    ),
    Fault(
        "lease-not-looked-at",
        "pushes go out without a look at the lease",
        drop(RUNTIME + "push.sender:Senders._deliver", "_s._require_lease()"),
    ),
    Fault(
        "lease-too-long",
        "a controller acts for three session timeouts without a word from ZooKeeper",
        Change(RUNTIME + "lease", "FRACTION = _v", "FRACTION = 3"),
    ),
    Fault(
        "expiry-taken-for-disconnection",
        "an expired session counts as one that has lost its connection",
        Change(
            RUNTIME + "zookeeper.session:Session._listener",
            "_s.over = True; _c = ConnectionState.EXPIRED",
            "_c = ConnectionState.SUSPENDED",
        ),
    ),
    Fault(
        "waiting-deletions-not-audited",
        "the audit leaves out topics whose deletion waits, for a move, say, whose leader lacks the newest state",
        Change(
            RUNTIME + "audit.differences:differences",
            "_t in _c.topics_to_delete or _k.deleted",
            "_c.deletion_requested(_t) or _k.deleted",
        ),
    ),
    Fault(
        "unreadable-topic-forgotten",
        "brokers are told that a topic whose znode does not decode is deleted",
        Change(
            RUNTIME + "audit.differences:differences",
            "_k is None and topic_path(_t) in _c.problems",
            "False",
        ),
    ),
    Fault(
        "refused-session-kept",
        "a session that servers with older data refuse is kept for ever",
        Change(
            "proto.zookeeper_access:Client._only_ours_is_refused", "_s._begins_sessions(_h, _i, _p)", "False"
        ),
    ),
    Fault(
        "brokers-not-waited-for",
        "after ZooKeeper was restored an election is held before brokers have registered",
        Change(RUNTIME + "daemon:Daemon._let_brokers_register", "time.monotonic() + _w", "0.0"),
    ),
    Fault(
        "all-assigned-taken-for-in-sync",
        "of a state that ZooKeeper has forgotten all replicas count as in sync",
        Change(RUNTIME + "audit.differences:_newer", "_b == _l or _b in _k", "True"),
    ),
    Fault(
        "leaders-return-before-brokers-were-compared",
        "leaders are rebalanced by states of which some broker may have been told newer ones",
        Change(RUNTIME + "term:Term._rebalance", "await _s._nothing_newer()", "pass"),
    ),
    Fault(
        "first-who-knows-more-believed",
        "of the states that ZooKeeper has forgotten the first is taken over, without asking the other brokers",
        Change(
            RUNTIME + "audit.auditor:Auditor._outdone",
            "list(_s._cluster.brokers.values()) if _n else ()",
            "()",
        ),
    ),
)
