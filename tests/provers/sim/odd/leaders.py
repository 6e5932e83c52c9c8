"""Requests of brokers with one thing wrong: ISRs of partitions, shutdowns, producer ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from proto.gen import common_pb2 as codes
from proto.gen import controller_service_pb2 as service
from tests.provers.sim.checks.refusals import NOBODY
from tests.provers.sim.checks.stored import State
from tests.provers.sim.odd.asking import Asker, Case, Codes
from tests.provers.sim.odd.topics import UNKNOWN, UNKNOWN_ID
from tests.provers.sim.zookeeper.messages import Exists, Stat

STALE: Codes = (codes.STALE_BROKER_EPOCH,)
FENCED: Codes = (codes.FENCED_LEADER_EPOCH,)
#: A proposal may be older than what the controller knows by the time it arrives, or of a topic that is gone.
LATE: Codes = (*FENCED, codes.INVALID_UPDATE_VERSION, *UNKNOWN, *UNKNOWN_ID)
INVALID: Codes = (codes.INVALID_REQUEST, *LATE)
NEWER: Codes = (codes.NOT_CONTROLLER, *UNKNOWN, *UNKNOWN_ID)
#: Or it has joined meanwhile, in its present life, and nothing is to be done. Who joins is judged where it is written.
INELIGIBLE: Codes = (codes.INELIGIBLE_REPLICA, codes.OPERATION_NOT_ATTEMPTED, *INVALID, codes.NONE)
#: Who is not registered has no rights, where it takes some.
_NO_RIGHTS: Codes = (codes.CLUSTER_AUTHORIZATION_FAILED,)
_FAR = 1_000_000


class Led(NamedTuple):
    """A partition, as a broker leads it that is registered with the epoch."""

    topic: str
    number: int
    topic_id: str
    state: State
    replicas: tuple[int, ...]
    broker_epoch: int

    def proposal(self) -> service.AlterPartitionState:
        """As a leader would send it for the ISR that there is."""
        return service.AlterPartitionState(
            topic=self.topic,
            topic_id=self.topic_id,
            partition=self.number,
            leader_epoch=self.state.leader_epoch,
            new_isr=self.state.isr,
            leader_recovery_state=int(self.state.recovering),  # type: ignore[arg-type]
            partition_epoch=self.state.version,
        )


def _isr(proposal: service.AlterPartitionState, *ids: int) -> None:
    del proposal.new_isr[:]
    proposal.new_isr.extend(ids)


def _older_leader_epoch(proposal: service.AlterPartitionState, _: Led) -> Codes:
    proposal.leader_epoch -= 1
    return (*FENCED, *NEWER)


def _newer_leader_epoch(proposal: service.AlterPartitionState, _: Led) -> Codes:
    proposal.leader_epoch += _FAR
    return NEWER


def _newer_partition_epoch(proposal: service.AlterPartitionState, _: Led) -> Codes:
    proposal.partition_epoch += _FAR
    return NEWER


def _older_partition_epoch(proposal: service.AlterPartitionState, led: Led) -> Codes:
    # Older than all: a leader that writes its ISR itself is ahead of what the controller knows.
    proposal.partition_epoch = -1
    _isr(proposal, led.state.leader, NOBODY)
    return LATE


def _other_topic_id(proposal: service.AlterPartitionState, _: Led) -> Codes:
    proposal.topic_id = "AAAAAAAAAAAAAAAAAAAAAQ"
    return UNKNOWN_ID


def _unknown_topic(proposal: service.AlterPartitionState, _: Led) -> Codes:
    proposal.topic, proposal.topic_id = "refused", ""
    return UNKNOWN


def _unknown_partition(proposal: service.AlterPartitionState, _: Led) -> Codes:
    proposal.partition += 50
    return (*UNKNOWN, *UNKNOWN_ID)


def _foreign_member(proposal: service.AlterPartitionState, led: Led) -> Codes:
    _isr(proposal, led.state.leader, NOBODY)
    return INVALID


def _without_leader(proposal: service.AlterPartitionState, led: Led) -> Codes:
    _isr(proposal, *(b for b in led.replicas if b != led.state.leader))
    return INVALID


def _member_twice(proposal: service.AlterPartitionState, led: Led) -> Codes:
    _isr(proposal, *led.state.isr, led.state.leader)
    return INVALID


def _no_recovery_state(proposal: service.AlterPartitionState, _: Led) -> Codes:
    proposal.leader_recovery_state = 7  # type: ignore[assignment]
    return INVALID


def _recovering_again(proposal: service.AlterPartitionState, led: Led) -> Codes:
    proposal.leader_recovery_state = 1  # type: ignore[assignment]
    _isr(proposal, *((led.state.leader,) if len(led.state.isr) > 1 else (led.state.leader, NOBODY)))
    return INVALID


def _recovering_together(proposal: service.AlterPartitionState, led: Led) -> Codes:
    proposal.leader_recovery_state = 1  # type: ignore[assignment]
    _isr(proposal, led.state.leader, NOBODY)
    return INVALID


def _too_many_epochs(proposal: service.AlterPartitionState, led: Led) -> Codes:
    _isr(proposal, led.state.leader, NOBODY)
    proposal.isr_epochs.extend([-1] * 3)
    return INVALID


def _too_many_directories(proposal: service.AlterPartitionState, led: Led) -> Codes:
    _isr(proposal, led.state.leader, NOBODY)
    proposal.isr_directories.extend([1] * 3)
    return INVALID


def _joined_in_an_older_life(proposal: service.AlterPartitionState, led: Led) -> Codes:
    """Where nobody is left to join, the foreign one is refused first."""
    missing = [b for b in led.replicas if b not in led.state.isr]
    _isr(proposal, led.state.leader, missing[0] if missing else NOBODY)
    proposal.isr_epochs.extend([led.broker_epoch, 0])
    return INELIGIBLE


def _joined_in_an_older_life_by_name(proposal: service.AlterPartitionState, led: Led) -> Codes:
    proposal.topic_id = ""
    return _joined_in_an_older_life(proposal, led)


Spoil = Callable[[service.AlterPartitionState, Led], Codes]
#: Each makes one thing wrong, and says what has to be said of it. None of them may be granted.
SPOILT: tuple[Spoil, ...] = (
    _older_leader_epoch,
    _newer_leader_epoch,
    _newer_partition_epoch,
    _older_partition_epoch,
    _other_topic_id,
    _unknown_topic,
    _unknown_partition,
    _foreign_member,
    _without_leader,
    _member_twice,
    _no_recovery_state,
    _recovering_again,
    _recovering_together,
    _too_many_epochs,
    _too_many_directories,
    _joined_in_an_older_life,
    _joined_in_an_older_life_by_name,
)


async def spoilt_proposals(asker: Asker) -> None:
    """Of partitions that are led: one proposal after the other, each with one thing wrong."""
    for spoil in asker.rng.sample(SPOILT, 10):
        led = _led(asker)
        if led is None:
            return
        proposal = led.proposal()
        allowed = spoil(proposal, led)
        await asker.ask(_proposed(asker, led, proposal, led.state.leader, allowed))
        # Who does not lead it has nothing to propose.
        if (others := [b for b in asker.registered() if b != led.state.leader]) and asker.rng.random() < 0.3:
            await asker.ask(_proposed(asker, led, led.proposal(), others[0], INVALID))


def _proposed(
    asker: Asker, led: Led, proposal: service.AlterPartitionState, sender: int, allowed: Codes
) -> Case:
    epoch = led.broker_epoch if sender == led.state.leader else _epoch(asker, sender)
    request = service.AlterPartitionRequest(broker_id=sender, broker_epoch=epoch or 0, partitions=[proposal])
    # It may have registered anew since.
    return Case("AlterPartition", request, [allowed], (codes.NONE, *STALE), f"broker-{sender}")


def _led(asker: Asker) -> Led | None:
    ledger = asker.cluster.ledger
    known = [
        (key, state)
        for key, state in sorted(ledger.states.items())
        if state.leader >= 0 and key not in ledger.scribbled and key[0] in ledger.topics
    ]
    if not known:
        return None
    (name, number), state = asker.rng.choice(known)
    epoch = _epoch(asker, state.leader)
    topic = ledger.topics[name]
    if epoch is None or number not in topic.partitions:
        return None
    return Led(name, number, topic.id or "", state, topic.partitions[number], epoch)


def _epoch(asker: Asker, broker_id: int) -> int | None:
    found = asker.cluster.ask_zookeeper(Exists(f"/brokers/ids/{broker_id}"))
    return found.czxid if isinstance(found, Stat) else None


async def brokers_of_former_lives(asker: Asker) -> None:
    """Who was registered before, or never, gets nothing."""
    id_ = asker.rng.choice(asker.ids)
    certificate = f"broker-{id_}"
    proposal = service.AlterPartitionState(topic="refused", new_isr=[NOBODY])
    for case in (
        Case(
            "AlterPartition",
            service.AlterPartitionRequest(broker_id=id_, broker_epoch=0, partitions=[proposal]),
            whole=STALE,
            certificate=certificate,
        ),
        Case(
            "AllocateProducerIds",
            service.AllocateProducerIdsRequest(broker_id=id_, broker_epoch=0),
            whole=(*STALE, codes.BROKER_ID_NOT_REGISTERED),
            certificate=certificate,
        ),
        Case(
            "AllocateProducerIds",
            service.AllocateProducerIdsRequest(broker_id=NOBODY, broker_epoch=0),
            whole=(codes.BROKER_ID_NOT_REGISTERED, *_NO_RIGHTS),
            certificate=f"broker-{NOBODY}",
        ),
        Case(
            "ControlledShutdown",
            service.ControlledShutdownRequest(broker_id=id_, broker_epoch=0),
            whole=(*STALE, codes.BROKER_NOT_AVAILABLE, codes.STALE_CONTROLLER_EPOCH),
            certificate=certificate,
        ),
        Case(
            "ControlledShutdown",
            service.ControlledShutdownRequest(broker_id=NOBODY, broker_epoch=0),
            whole=(codes.BROKER_NOT_AVAILABLE, codes.STALE_CONTROLLER_EPOCH, *_NO_RIGHTS),
            certificate=f"broker-{NOBODY}",
        ),
    ):
        await asker.ask(case)
