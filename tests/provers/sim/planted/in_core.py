"""Faults of decisions (`controller.core`)."""

from __future__ import annotations

from tests.provers.sim.planted.fault import Change, Fault, drop

CORE = "controller.core."
ELECTION = CORE + "partitions.leader_election:"
PARTITIONS = CORE + "partitions.partition_state_machine:"

FAULTS = (
    Fault(
        "leaderless-for-no-reason",
        "of a partition whose leader is gone, nothing is said that would give it another",
        Change(CORE + "explain.partitions:_changes", "_ways_to_a_leader(_c, _p, _s, _r, _u)", "()"),
    ),
    Fault(
        "anything-let-in",
        "between two parts of a long event, every other event is handled",
        Change(CORE + "machine:Machine._first_let_in", "_e.kind not in PROMPT", "False"),
    ),
    Fault(
        "long-requests-let-in",
        "a leader that asks about many partitions lets in another one that does",
        Change(CORE + "machine:Machine._first_let_in", "is_long(_e)", "False"),
    ),
    Fault(
        "rest-of-a-request-granted",
        "of a request about many partitions only the first part is decided, and all of it is granted",
        Change(CORE + "isr.alter_partition:alter_partitions", "_c.parts(_f)", "list(_c.parts(_f))[:1]"),
    ),
    Fault(
        "gives-way-in-the-midst",
        "a long event gives way while some of its writes are under way",
        Change(CORE + "commits:write_states", "yield Pause.YIELD", "yield Pause.GIVE_WAY"),
    ),
    Fault(
        "found-before-forgotten",
        "while replicas on a broker are looked for, others are let in, and of those found before only the last is kept",
        Change(CORE + "context:replicas_on", "return _f", "return _f[-1:]"),
    ),
    Fault(
        "older-number-named",
        "what a long event queues after it has given way bears its own number, which brokers take for a late request",
        Change(CORE + "outbox.queues:BrokerQueue.caused_by", "_e >= _s.event_id", "True"),
    ),
    Fault(
        "changes-left-out-with-the-whole",
        "where a broker holds the whole state, changes since are not told either",
        Change(
            CORE + "outbox.outbox:Outbox.compared",
            "_s = _q.snapshot",
            "_s = _q.snapshot; _q.rounds = type(_q.rounds)([type(_q.rounds[0])()])",
        ),
    ),
    Fault(
        "absent-brokers-not-looked-for",
        "a warm failover takes all replicas for online",
        Change(CORE + "standby.prepared:Prepared.hosted_elsewhere", "_t.keys() - _b.keys()", "set()"),
    ),
    Fault(
        "leaderless-not-looked-for",
        "a warm failover does not look at partitions without a leader",
        Change(CORE + "standby.prepared:Prepared.keep", "_s.leader not in _p.replicas", "False"),
    ),
    Fault(
        "differing-not-listed",
        "a broker that holds other than the new controller is not told the partitions that differ",
        Change(
            CORE + "outbox.queues:BrokerQueue.list_whole",
            "_p not in _s.left_out",
            "_p in _s.left_out",
        ),
    ),
    Fault(
        "snapshot-of-some-ends-as-of-all",
        "a snapshot of the topics that differ makes brokers forget the others",
        drop(CORE + "outbox.outbox:Outbox.compared", "_q.snapshot_of = sorted(_n)"),
    ),
    Fault(
        "repeats-decided",
        "a partition that is named again and again in one AlterPartition is decided each time",
        Change(CORE + "isr.alter_partition:_items", "_k in _s", "_k in _s and False"),
    ),
    Fault(
        "isr-not-checked",
        "a leader is elected whether or not it is in the ISR, and counts as a member then",
        Change(
            ELECTION + "unmet",
            """\
if _c not in _b.online:
    return _r
if not _w.unclean and _c not in _i:
    ...
""",
            """\
if _c not in _b.online:
    return _r
if _w.elected is _online_isr:
    isr = tuple(dict.fromkeys([*_b.current.isr, _c]))
    _b.current = msgspec.structs.replace(_b.current, isr=isr)
elif not _w.unclean and _c not in _i:
    ...
""",
        ),
    ),
    Fault(
        "epoch-beyond-left-alone",
        "a state that names a controller epoch which no controller has had is left as it is",
        Change(
            CORE + "audit.stored_states:_is_beyond",
            "return isinstance(_f, LeaderAndIsr) and _f.controller_epoch > _e",
            "return False",
        ),
    ),
    Fault(
        "older-state-followed",
        "a state that is put back as it was is taken for an edit, and followed",
        Change(CORE + "audit.stored_states:_wrong", "_f.leader_epoch < _k.leader_epoch", "False"),
    ),
    Fault(
        "older-state-decided-from",
        "who is overtaken in a write by an older state decides from that",
        Change(CORE + "commits:_overtaken", "_went_back(_f, _p.leadership)", "False"),
    ),
    Fault(
        "dropped-id-left-out",
        "a topic whose id a tool drops or changes does not get it back",
        Change(CORE + "topics.changes:topics_modified", "_is_misnamed(_c, _t, _i)", "False"),
    ),
    Fault(
        "dropped-id-not-written",
        "what is written over a tool's edit of a topic has the id that the tool left",
        Change(CORE + "reassignment.topic_znode:with_known_id", "_k not in ('', _i.topic_id)", "False"),
    ),
    Fault(
        "leader-epoch-not-raised",
        "an election leaves the leader epoch as it was",
        Change(CORE + "model.leadership:LeaderAndIsr.successor", "_s.leader_epoch + 1", "_s.leader_epoch"),
    ),
    Fault(
        "preferred-leader-not-in-sync",
        "the preferred replica is elected although it is not in sync",
        Change(
            ELECTION + "unmet",
            """\
if _c not in _b.online:
    return _r
if not _w.unclean and _c not in _i:
    ...
""",
            """\
if _c not in _b.online:
    return _r
if _w.candidates is _preferred:
    isr = tuple(dict.fromkeys([*_b.current.isr, _c]))
    _b.current = msgspec.structs.replace(_b.current, isr=isr)
elif not _w.unclean and _c not in _i:
    ...
""",
        ),
    ),
    Fault(
        "preferred-leader-dead",
        "the preferred replica is elected although its broker is not there",
        Change(
            ELECTION + "unmet",
            """\
if _c not in _b.online:
    ...
if not _w.unclean and _d:
    ...
""",
            """\
if _c not in _b.online and _w.candidates is not _preferred:
    ...
if not _w.unclean and _d:
    ...
""",
        ),
    ),
    Fault(
        "unclean-without-permission",
        "a leader that is out of sync is elected although the configuration forbids it",
        Change(PARTITIONS + "permits_unclean", "_c.unclean_default if _v is None else _t", "True"),
    ),
    Fault(
        "bounce-missed",
        "a broker that left and came back between two looks counts as never gone",
        Change(CORE + "brokers.changes:brokers_changed", "_a.epoch > _b.epoch", "_a.epoch < _b.epoch"),
    ),
    Fault(
        "directory-not-compared",
        "a broker that is registered with another directory counts as in sync",
        Change(CORE + "model.brokers:lacks_directory", "_d not in _b.directories", "False"),
    ),
    Fault(
        "lost-data-not-looked-for-at-failover",
        "a new controller takes every member of an ISR as it finds it",
        Change(CORE + "failover:failover", "yield from lost_data.take_out(...)", "()"),
    ),
    Fault(
        "cluster-renamed",
        "a new controller gives a cluster that lost its id a new one, which its brokers do not know",
        Change(CORE + "failover:_assure_cluster_id", "_a if _k else _n", "_n"),
    ),
    Fault(
        "kept-told-at-failover",
        "a new controller has a member lead without its data, where somebody wrote before its removal",
        drop(CORE + "failover:failover", "yield from check_kept(...)"),
    ),
    Fault(
        "stale-broker-epoch-accepted",
        "a member joins the ISR that has registered anew since it caught up",
        Change(CORE + "isr.alter_partition:_checked", "_stale(...)", "[]"),
    ),
    Fault(
        "push-before-commit",
        "brokers are told of a leader before ZooKeeper has it",
        Change(
            PARTITIONS + "_Election.decide",
            """\
return StateChange(_p, _c, _n, _e.recipients)
""",
            """\
_p.leadership = _n
self.context.push_leadership([(_e.recipients, _p)])
return StateChange(_p, _c, _n, _e.recipients)
""",
        ),
    ),
    Fault(
        "stale-cache-after-conflict",
        "who is overtaken in a write decides again from what it knew before",
        Change(
            CORE + "commits:_overtaken",
            "_c.solved_state(_p); _p.leadership = _f",
            "_c.solved_state(_p)",
        ),
    ),
    Fault(
        "one-replica-not-told",
        "after an election the last replica gets no LeaderAndIsr",
        Change(
            PARTITIONS + "_Election.applied",
            "(_c.recipients, _c.partition)",
            "(_c.recipients[:-1], _c.partition)",
        ),
    ),
    Fault(
        "leader-not-told-of-shrink",
        "a leader is not told that the controller has taken a dead replica out of its ISR",
        drop(CORE + "commits:take_effect", "_c.push_leadership(...)"),
    ),
    Fault(
        "metadata-not-told-of-isr",
        "brokers get no UpdateMetadata after a leader has changed its ISR",
        drop(CORE + "isr.alter_partition:_altered", "_c.push_metadata(...)"),
    ),
    Fault(
        "isr-notification-ignored",
        "what leaders have written by themselves is not read",
        Change(
            CORE + "isr.isr_notifications:isr_changed", "refresh(_c, list(_n), ...)", "refresh(_c, [], ...)"
        ),
    ),
    Fault(
        "move-finished-early",
        "a move is finished before its new replicas are in sync",
        Change(
            CORE + "reassignment.phases:_in_sync",
            "_covers(_k.isr, _t)",
            "not frozenset(_k.isr).isdisjoint(_t)",
        ),
        Change(CORE + "reassignment.phases:_settle_leaders", "set(_p.replicas) <= set(_k.isr)", "True"),
    ),
    Fault(
        "legacy-znode-kept",
        "/admin/reassign_partitions stays when the moves that it asks for are done",
        drop(CORE + "reassignment.phases:_finish", "yield from remove_listed(...)"),
    ),
    Fault(
        "deletions-not-resumed",
        "a new controller does not go on with the deletions that it finds",
        drop(
            CORE + "failover:failover",
            "yield from part_of_failover(_c, EventKind.DELETION_PROGRESS, deletion.resume(_c), None)",
        ),
    ),
    Fault(
        "deletion-not-announced",
        "brokers are not told to forget a topic that is being deleted",
        drop(CORE + "topics.deletion:_begin", "_c.push_metadata(...)"),
    ),
    Fault(
        "new-broker-without-metadata",
        "a broker that comes is not told of the partitions",
        drop(CORE + "brokers.changes:_startup", "_c.push_snapshot(...)"),
    ),
    Fault(
        "topics-not-looked-at-after-reconnect",
        "after a reconnect the watch on topics stays lost, and with it what came meanwhile",
        drop(CORE + "handlers:_reconnected", "yield from topics_changed(...)"),
    ),
    Fault(
        "queued-moves-forgotten",
        "a move that has waited for its turn never begins",
        Change(CORE + "reassignment.phases:_startable", "_l.why_wait(_p, _a) is None", "False"),
    ),
    Fault(
        "leaders-kept-at-shutdown",
        "a broker that asks to leave is let go while it leads",
        drop(
            CORE + "brokers.controlled_shutdown:controlled_shutdown",
            "yield from partition_state_machine.to_online(...)",
        ),
        Change(
            CORE + "brokers.controlled_shutdown:controlled_shutdown",
            "ControlledShutdownReply(ErrorCode.NONE, _r)",
            "ControlledShutdownReply(ErrorCode.NONE, [])",
        ),
    ),
    Fault(
        "flapping-broker-leads-nothing",
        "a broker that comes and goes is held back from every election, not only from the return of leaderships",
        Change(
            CORE + "model.cluster:Cluster.live_ids",
            "_b.brokers.keys() - _b.shutting_down",
            "_b.brokers.keys() - _b.shutting_down - set(_b.held_back())",
        ),
    ),
    Fault(
        "tried-creation-written",
        "a topic that is only to be tried is created",
        Change(
            CORE + "topics.create_topics:create_topics",
            "if not _r.validate_only:\n _i = yield from _create(_c, _t, _a)",
            "_i = yield from _create(_c, _t, _a)",
        ),
    ),
    Fault(
        "strangers-in-new-partitions",
        "partitions may be added on brokers that nobody knows",
        Change(CORE + "topics.create_topics:_by_hand", "sorted(_a - _c.brokers.keys())", "[]"),
    ),
    Fault(
        "names-alike-accepted",
        "a topic is created although another differs from it in . and _ only",
        Change(CORE + "topics.create_topics:Batch.like", "_n.replace('.', '_')", "_n"),
    ),
    Fault(
        "moved-to-nobody",
        "replicas are moved to brokers that are not there",
        Change(CORE + "reassignment.alter_reassignments:validate", "_c.live_ids() if _a else ()", "set(_a)"),
    ),
    Fault(
        "older-partition-epoch-accepted",
        "a leader's proposal is looked at although it is older than what is stored",
        Change(CORE + "isr.alter_partition:evaluate", "_p.partition_epoch < _c.partition_epoch", "False"),
    ),
    Fault(
        "foreign-member-accepted",
        "brokers that hold no replica count as possible members of an ISR",
        Change(
            CORE + "isr.alter_partition:_invalid", "[_b for _b in _i if _b not in _a and _b not in _s]", "[]"
        ),
    ),
    Fault(
        "last-broker-drained",
        "brokers are drained until nobody is left to lead",
        Change(CORE + "cluster.maintenance:_last", "_o or _i", "True"),
    ),
    Fault(
        "deleted-key-kept",
        "a key of a configuration that is to be deleted stays",
        drop(CORE + "cluster.configs:alter_entity", "_a.pop(_c.key, None)"),
    ),
    Fault(
        "forgotten-not-told-to-delete",
        "a broker that was forgotten and is back is not told what to delete",
        drop(CORE + "topics.forgotten:returned", "_c.push_stop(...)"),
    ),
    Fault(
        "nobody-asked-for-reasons",
        "restrictions are set by nobody, for no reason",
        Change(
            CORE + "requests.operator:attribution_problem",
            "not _a.strip() or (_r and not _t.strip())",
            "False",
        ),
    ),
    Fault(
        "list-of-moves-written-over",
        "what is done is taken from a tool's list of moves, whatever the list is by now",
        Change(
            CORE + "reassignment.admin_znode:trim",
            "SetReassignment(_k, _f.version)",
            "SetReassignment(_k, -1)",
        ),
    ),
    Fault(
        "nonsense-deleted-unseen",
        "a list of moves that did not decode is deleted, whatever it is by now",
        Change(CORE + "reassignment.admin_znode:delete_malformed", "_p.version", "-1"),
    ),
    Fault(
        "fields-of-tools-dropped",
        "a topic that gets its id loses the fields that tools have put there",
        Change(
            CORE + "topics.changes:_assign_ids",
            "replace(_i, topic_id=_t)",
            "replace(_i, topic_id=_t, others={})",
        ),
    ),
    Fault(
        "topic-written-over",
        "an assignment is written over whatever the topic is by now",
        Change(CORE + "reassignment.topic_znode:_write", "SetTopic(_c)", "SetTopic(replace(_c, version=-1))"),
    ),
    Fault(
        "ids-given-up-after-a-conflict",
        "topics whose ids were written together with that of one that somebody else wrote get none",
        drop(CORE + "topics.changes:assign_missing_ids", "for _i in _l:\n yield from _insist_on_id(_c, _i)"),
    ),
    Fault(
        "ids-of-another-handed-out",
        "a block of producer ids that another has taken first is handed out, too",
        Change(
            CORE + "cluster.producer_ids:_landed",
            "(_f.value, _f.version) == (_b, _n)",
            "True",
        ),
    ),
    Fault(
        "election-given-up-for-ever",
        "an election that was given up after too many attempts is held by nobody",
        Change(CORE + "audit.stored_states:check_states", "_was_given_up(_c, _p, _f)", "False"),
    ),
    Fault(
        "creation-given-up-for-ever",
        "the first state of a partition that could not be created in so many attempts is created by nobody",
        Change(CORE + "audit.stored_states:check_states", "_f is None and _lacks_its_first(_c, _p)", "False"),
    ),
    Fault(
        "remembered-once",
        "that a forgotten broker is back is recorded once, also when that fails",
        drop(CORE + "topics.forgotten:record", "_c.record_forgotten_us = _x.now_us + RETRY_FIRST_US"),
    ),
    Fault(
        "taken-back-unread",
        "a move is taken back by the ISR that the controller knows, whatever a leader has written",
        drop(CORE + "reassignment.phases:_losing", "yield from refresh(_c, _l, FOUND)"),
    ),
    Fault(
        "alone-in-sync-deleted",
        "a replica that leaves is deleted, although nobody who stays is in sync",
        Change(
            CORE + "reassignment.stray_replicas:stop",
            "_b in _i and (not any(_q in _i for _q in _p.replicas))",
            "False",
        ),
    ),
    Fault(
        "newer-states-not-taken-over",
        "what brokers were told, and ZooKeeper has forgotten since it was restored, is not written",
        Change(CORE + "audit.newer_states:take_over", "(_c := _change(_x, *_i)) is not None", "False"),
    ),
    Fault(
        "taken-over-under-a-known-leader-epoch",
        "what is taken over from brokers is written under the highest leader epoch that they know",
        Change(
            CORE + "audit.newer_states:_change",
            "max(_t.leader_epoch, _k.leader_epoch) + 1",
            "max(_t.leader_epoch, _k.leader_epoch)",
        ),
    ),
    Fault(
        "newer-partition-epochs-not-exceeded",
        "what is taken over from brokers is written once, whatever partition epoch they know",
        Change(CORE + "audit.newer_states:_write", "_s.partition_epoch <= _c.told.partition_epoch", "False"),
    ),
)
