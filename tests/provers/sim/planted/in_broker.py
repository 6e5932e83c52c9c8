"""Faults of the broker (`broker_stub`)."""

from __future__ import annotations

from tests.provers.sim.planted.fault import Change, Fault, drop

STUB = "broker_stub."
PARTITION = STUB + "replication.partition:Partition."
MANAGER = STUB + "replication.manager:ReplicaManager."

FAULTS = (
    Fault(
        "digests-read-before-the-fence",
        "a broker tells a new controller its digests, and goes on to believe the former one",
        Change(
            STUB + "control.handlers:ControlHandlers.describe_state",
            "_r = _s._admit(...)",
            "_r = None",
        ),
    ),
    Fault(
        "control-requests-of-brokers",
        "a broker takes control requests from whoever may act on the cluster",
        Change(STUB + "rpc.access:Guard.may_control", "is_controller(_a, _p)", "True"),
    ),
    Fault(
        "metadata-forgotten",
        "a broker forgets all of an ISR in its metadata but the first",
        Change(
            STUB + "control.metadata:MetadataCache.merge",
            "_s._put(_i)",
            "_s._put(_i._replace(isr=_i.isr[:1]))",
        ),
    ),
    Fault(
        "directory-always-whole",
        "a broker keeps the id of its directory although what it had not flushed may be gone",
        Change(STUB + "data_identity:kept_all", "_c or _s or ...", "True"),
    ),
    Fault(
        "directory-of-another-told",
        "a broker with several data directories says of each replica that it is in the first",
        Change(
            STUB + "data_dirs:DataDirs.directory_of",
            "_s._short_ids[_s._placed[_k]]",
            "next(iter(_s._short_ids.values()))",
        ),
    ),
    Fault(
        "replica-made-beside-a-failed-directory",
        "a replica that is on no disk is made anew although a data directory has failed, where it may be",
        Change(
            STUB + "control.replicas:Replicas._step_leader_and_isr",
            "_b is None and _s.directory_failed and not _i.is_new",
            "False",
        ),
    ),
    Fault(
        "late-fetch-believed",
        "a leader believes a fetch of its follower's former process",
        Change(PARTITION + "record_fetch", "_b < _r.broker_epoch", "False"),
    ),
    Fault(
        "older-leader-epoch-served",
        "a leader serves who asks for an earlier leader epoch than its own",
        Change(PARTITION + "require_leader", "_e < _s.leader_epoch", "False"),
    ),
    Fault(
        "registration-not-renewed",
        "a broker whose session has expired does not register again",
        Change(STUB + "zookeeper.registration:Registrar._listen", "_s == KazooState.LOST", "False"),
    ),
    Fault(
        "cluster-not-compared",
        "a broker joins whatever cluster ZooKeeper has",
        Change(STUB + "zookeeper.cluster_id:read_cluster_id", "not _k or _f == _k", "True"),
    ),
    Fault(
        "divergence-not-looked-for",
        "a leader does not tell a follower where their logs part",
        Change(PARTITION + "divergence", "_e < _l or _o < _f", "False"),
    ),
    Fault(
        "truncation-to-high-watermark",
        "who becomes a follower cuts its log at its high watermark, whatever the leader has",
        Change(PARTITION + "forget_uncertain", "_s.log.latest_epoch is None and _c", "_c"),
    ),
    Fault(
        "high-watermark-ahead",
        "the high watermark goes on without the followers",
        Change(PARTITION + "advance_high_watermark", "_b in _m or _c", "False"),
    ),
    Fault(
        "acknowledged-early",
        "a write is acknowledged to all before the ISR has it",
        Change(MANAGER + "committed", "_p.high_watermark >= _n", "True"),
    ),
    Fault(
        "acknowledged-on-resignation",
        "who waits for a write hears that all is well when the leader steps down",
        Change(MANAGER + "_follow", "codes.NOT_LEADER_OR_FOLLOWER", "codes.NONE"),
    ),
    Fault(
        "shrink-only-in-memory",
        "a leader leaves lagging followers out of its ISR and tells nobody",
        Change(
            MANAGER + "_shrink_isrs",
            """\
_p = _a.propose_shrink(...)
if _p is not None:
    ...
    _s._proposer.submit(_p)
elif _q:
    ...
""",
            """\
_p = _a.propose_shrink(...)
if _p is not None:
    ...
    _a.isr, _a.proposed_isr = _p.isr, None
elif _q:
    ...
""",
        ),
    ),
    Fault(
        "read-beyond-high-watermark",
        "consumers are given records that are not committed",
        Change(
            STUB + "replication.service:DataService._read",
            "_l.log_end_offset if _f else _h",
            "_l.log_end_offset",
        ),
    ),
    Fault(
        "isr-written-unversioned",
        "a leader writes its ISR over whatever is stored by now",
        Change(
            STUB + "zookeeper.isr_writers:NotificationWriter._write_state",
            """\
_n = await _s._store.set_state(_t, _p, _d, _v)
if _n is None:
    ...
""",
            """\
_n = await _s._store.set_state(_t, _p, _d, -1)
if _n is None:
    ...
""",
        ),
    ),
    Fault(
        "coordinator-not-unloaded",
        "groups stay in the memory of a broker that does not lead their partition any more",
        Change(STUB + "group.migration:Migration._unload", "_s.owned.pop(...)", "None"),
    ),
    Fault(
        "offsets-acknowledged-early",
        "committed offsets are acknowledged before they are replicated",
        Change(STUB + "offsets_topic:OffsetsTopic.append", "await _s._manager.committed(...)", "codes.NONE"),
    ),
    Fault(
        "higher-epoch-believed",
        "brokers believe whoever names a higher controller epoch",
        Change(
            STUB + "control.gates:Gate.admit",
            "raise UnknownTerm",
            """\
if header.controller_epoch <= self.controller_epoch:
    raise UnknownTerm
self.learn(ControllerTerm(self._look, header.controller_epoch, header.controller_epoch, header.controller_id))
""",
        ),
    ),
    Fault(
        "served-before-registration",
        "brokers obey before they are registered",
        drop(STUB + "rpc.server:BrokerServer._control.behaviour", "await _s._registered.wait()"),
    ),
    Fault(
        "impossible-offsets-committed",
        "offsets are committed that no record can have",
        Change(STUB + "group.coordinator:GroupCoordinator._commit_error", "_c.offset < 0", "False"),
    ),
    Fault(
        "generation-not-compared",
        "a member may speak for a generation that is not its group's",
        Change(STUB + "group.state:Group._member_error", "_g == _s.generation_id", "True"),
    ),
    Fault(
        "epochs-forgotten-at-a-start",
        "a broker that is started again remembers no leader epochs",
        Change(STUB + "storage:remembered", "_k.topic_id is None", "True"),
    ),
    Fault(
        "version-taken-for-a-state",
        "a leader that writes its ISR itself writes over whatever has the version that it knows",
        Change(STUB + "zookeeper.isr_writers:NotificationWriter._write", "_s[1] != _p.leader_epoch", "False"),
        Change(
            STUB + "zookeeper.isr_writers:NotificationWriter._write",
            "_f[1] if _f is not None else _p.partition_epoch",
            "_p.partition_epoch",
        ),
    ),
)
