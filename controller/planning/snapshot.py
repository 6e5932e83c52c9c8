"""A copy of what the controller's decisions depend on, as ZooKeeper has it at one moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from controller.core.effects import FeatureAnswer, TopicInfo
from controller.core.model import Broker, BrokerIds, LeaderAndIsr, Maintenance
from controller.errors import ControllerError

#: A partition by topic and number.
Key = tuple[str, int]

MIN_ISR_CONFIG = "min.insync.replicas"
UNCLEAN_CONFIG = "unclean.leader.election.enable"


class PlanError(ControllerError):
    """What is asked for cannot be planned; the message says what is allowed."""


@dataclass(frozen=True)
class Snapshot:
    """The cluster at one moment.

    ``controller_epoch`` is that of the controller that decides: the active one's, or the next one's where none
    is active. ``configs`` are the topics' own settings, ``broker_defaults`` those of all brokers. ``problems`` maps
    unreadable znodes to what is wrong: such topics are in no other field, such states are not in ``states``.
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
    #: ``/feature``; None: it is absent.
    feature: FeatureAnswer | None = field(default_factory=lambda: FeatureAnswer(True, 0))
    maintenance: Maintenance = field(default_factory=Maintenance)

    def assignments(self) -> Iterator[tuple[Key, BrokerIds]]:
        """Every partition that is not being deleted, with its replicas."""
        for name, info in self.topics.items():
            if name not in self.deleting:
                for number, replicas in info.partitions.items():
                    yield (name, number), replicas


def min_isr_of(snapshot: Snapshot, topic: str, default: int) -> int:
    """``min.insync.replicas`` of a topic. Raises PlanError where it is no number from 1."""
    text = snapshot.configs.get(topic, {}).get(MIN_ISR_CONFIG)
    if text is None:
        return default
    stripped = text.strip()
    if not (stripped.isascii() and stripped.isdigit() and len(stripped) < 6 and int(stripped) >= 1):
        raise PlanError(
            f"/config/topics/{topic}: {MIN_ISR_CONFIG} = {text!r}: must be a number from 1 to 99999"
        )
    return int(stripped)


def representatives(snapshot: Snapshot) -> Snapshot:
    """The same cluster with one partition of each sort: partitions that are alike in all that decides about them
    have the same fate, and questions asked many times are answered on these.

    Moves are kept as they are, partition for partition: they share room with each other.
    """
    seen: set[object] = set()
    topics: dict[str, TopicInfo] = {}
    for name, info in snapshot.topics.items():
        config = snapshot.configs.get(name, {})
        settings = (config.get(MIN_ISR_CONFIG), config.get(UNCLEAN_CONFIG), name in snapshot.deleting)
        kept: dict[int, BrokerIds] = {}
        for number, replicas in info.partitions.items():
            state = snapshot.states.get((name, number))
            what = state and (state.leader, state.isr, state.controller_epoch, state.recovery)
            moving = (name, number) if _moves(info, number) else None
            sort = (replicas, what, settings, moving)
            if sort not in seen:
                seen.add(sort)
                kept[number] = replicas
        if kept:
            topics[name] = replace(info, partitions=kept)
    states = {
        key: state
        for key, state in snapshot.states.items()
        if key[0] in topics and key[1] in topics[key[0]].partitions
    }
    return replace(snapshot, topics=topics, states=states)


def _moves(info: TopicInfo, number: int) -> bool:
    fields = (info.adding, info.removing, info.original, info.queued, info.leftover)
    return any(number in by_number for by_number in fields)
