"""A snapshot of the cluster that the controller's decisions depend on, from ZooKeeper or the active controller."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from controller.core.config_keys import HEEDED, MIN_ISR, UNCLEAN
from controller.core.context import CoreSettings
from controller.core.effects import FeatureAnswer, StoredNode, TopicInfo
from controller.core.model import Broker, BrokerIds, LeaderAndIsr, Maintenance, StopApproval, without_data
from controller.core.znode_paths import BROKER_DEFAULTS, topic_config_path
from controller.errors import ControllerError

#: A partition by topic and number.
Key = tuple[str, int]


class PlanError(ControllerError):
    """The request cannot be planned; the message says what is allowed."""


@dataclass(frozen=True)
class Snapshot:
    """The cluster at one moment.

    ``controller_epoch``: of the active controller, or of the next one if none is active. ``configs``: the topics' own
    settings; ``broker_defaults``: the defaults of all brokers. ``problems`` maps unreadable znodes to what is wrong:
    such topics are in no other field, such states are not in ``states``. ``maintenance`` and ``approvals``: as
    recorded in ZooKeeper. ``offline_dirs`` (partitions on failed disks by broker), ``shutting_down`` (registered
    brokers in controlled shutdown) and ``settings`` are known only to the active controller; a snapshot from
    ZooKeeper has the first two empty and assumed settings.
    """

    controller_id: int
    controller_epoch: int
    brokers: Mapping[int, Broker]
    topics: Mapping[str, TopicInfo]
    states: Mapping[Key, LeaderAndIsr]
    configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    broker_defaults: Mapping[str, str] = field(default_factory=dict)
    deleting: tuple[str, ...] = ()
    problems: Mapping[str, str] = field(default_factory=dict)
    maintenance: Maintenance = field(default_factory=Maintenance)
    approvals: Mapping[int, StopApproval] = field(default_factory=dict)
    offline_dirs: Mapping[int, frozenset[Key]] = field(default_factory=dict)
    shutting_down: frozenset[int] = frozenset()
    settings: CoreSettings = field(default_factory=CoreSettings)
    #: ``/feature``; None: absent.
    feature: FeatureAnswer | None = field(default_factory=lambda: FeatureAnswer(True, 0))
    #: Other znodes that a request reads, by path.
    nodes: Mapping[str, StoredNode[object]] = field(default_factory=dict)

    def assignments(self) -> Iterator[tuple[Key, BrokerIds]]:
        """Every partition that is not being deleted, with its replicas."""
        for name, info in self.topics.items():
            if name not in self.deleting:
                for number, replicas in info.partitions.items():
                    yield (name, number), replicas


def unclean_by(config: Mapping[str, str], default: bool) -> bool:
    """Whether settings allow unclean elections; ``default`` if they do not say."""
    value = config.get(UNCLEAN)
    return default if value is None else value.strip().lower() == "true"


def unclean_allowed(snapshot: Snapshot, topic: str) -> bool:
    """Whether a topic allows unclean elections: its own setting, else the brokers' default, else the controller's."""
    default = unclean_by(snapshot.broker_defaults, snapshot.settings.unclean_leader_election_enable)
    return unclean_by(snapshot.configs.get(topic, {}), default)


def min_isr_of(snapshot: Snapshot, topic: str, default: int) -> int:
    """``min.insync.replicas`` of a topic: its own setting, else the brokers' default in ZooKeeper, else ``default``.
    Raises PlanError if it is not a number from 1 to 99999."""
    path, text = topic_config_path(topic), snapshot.configs.get(topic, {}).get(MIN_ISR)
    if text is None:
        path, text = BROKER_DEFAULTS, snapshot.broker_defaults.get(MIN_ISR)
    if text is None:
        return default
    stripped = text.strip()
    if not (stripped.isascii() and stripped.isdigit() and len(stripped) < 6 and int(stripped) >= 1):
        raise PlanError(f"{path}: {MIN_ISR} = {text!r}: must be a number from 1 to 99999")
    return int(stripped)


def representatives(snapshot: Snapshot, broker_ids: Collection[int] | None = None) -> Snapshot:
    """The same cluster with one partition of each kind, for fast repeated plans: partitions that are equal in all
    that decisions depend on get equal decisions. ``broker_ids``: only partitions with one of these among their
    replicas or in their ISR.

    All partitions being reassigned are kept, because they share the concurrency limits.
    """
    concerned = None if broker_ids is None else frozenset(broker_ids)
    seen: set[object] = set()
    topics: dict[str, TopicInfo] = {}
    for name, info in snapshot.topics.items():
        config = snapshot.configs.get(name, {})
        settings = (*map(config.get, HEEDED), name in snapshot.deleting)
        kept: dict[int, BrokerIds] = {}
        for number, replicas in info.partitions.items():
            state = snapshot.states.get((name, number))
            leadership = state and (state.leader, state.isr, state.controller_epoch, state.recovery)
            reassigned = (name, number) if _is_reassigned(info, number) else None
            members = (*replicas, *(state.isr if state else ()))
            if concerned is not None and not reassigned and concerned.isdisjoint(members):
                continue
            lacking = state and without_data(snapshot.brokers, state)
            failed = tuple(b for b, lost in snapshot.offline_dirs.items() if (name, number) in lost)
            kind = (replicas, leadership, lacking, settings, reassigned, failed)
            if kind not in seen:
                seen.add(kind)
                kept[number] = replicas
        if kept:
            topics[name] = replace(info, partitions=kept)
    states = {
        key: state
        for key, state in snapshot.states.items()
        if key[0] in topics and key[1] in topics[key[0]].partitions
    }
    return replace(snapshot, topics=topics, states=states)


def _is_reassigned(info: TopicInfo, number: int) -> bool:
    fields = (info.adding, info.removing, info.original, info.queued, info.stray)
    return any(number in by_number for by_number in fields)
