"""Requests of brokers from the wire to the machine and back, without a server: each field is its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from controller.core.model import RECOVERING, LeaderAndIsr
from controller.core.requests.brokers import (
    AllocateProducerIdsReply,
    Altered,
    AlterPartition,
    AlterPartitionReply,
    ControlledShutdown,
    ControlledShutdownReply,
    Proposal,
)
from controller.core.requests.errors import ErrorCode
from controller.runtime.observe import loop_lag
from controller.runtime.observe.metrics import ControllerMetrics
from controller.runtime.rpc import controller_service as module
from controller.runtime.rpc.controller_service import ControllerService
from proto.gen import common_pb2
from proto.gen import controller_service_pb2 as pb


class Asked:
    """A service before a controller that answers with what it is told to."""

    def __init__(self, reply: Any = None, *, active: bool = True) -> None:
        self.requests: list[Any] = []

        async def ask(request: Any) -> Any:
            self.requests.append(request)
            return reply

        self.metrics = ControllerMetrics(CollectorRegistry())
        term = SimpleNamespace(ask=ask)
        daemon: Any = SimpleNamespace(term=term, leading=term if active else None, metrics=self.metrics)
        self.methods: dict[str, Any] = dict(ControllerService(daemon).methods())

    def altered(self, error: str) -> float | None:
        name = "partition_controller_altered_partitions_total"
        return self.metrics.registry.get_sample_value(name, {"error": error})


def proposed(number: int) -> pb.AlterPartitionState:
    return pb.AlterPartitionState(
        topic="t",
        topic_id="id",
        partition=number,
        leader_epoch=5,
        new_isr=[1, 2],
        leader_recovery_state=RECOVERING,  # type: ignore[arg-type]
        partition_epoch=7,
        isr_epochs=[11, 12],
        isr_directories=[21, 22],
    )


async def test_proposals_and_their_results_are_all_there_field_by_field(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "in_turns", lambda items: loop_lag.in_turns(items, 2))
    led = LeaderAndIsr(1, 5, (1, 2), 8, 3, RECOVERING)
    results = [Altered("t", n, ErrorCode.NONE, led) for n in range(3)]
    results += [Altered("t", n, ErrorCode.FENCED_LEADER_EPOCH) for n in (3, 4)]
    asked = Asked(AlterPartitionReply(ErrorCode.NONE, results))
    request = pb.AlterPartitionRequest(broker_id=1, broker_epoch=50, partitions=map(proposed, range(5)))
    answer = await asked.methods["AlterPartition"](request)
    assert asked.requests == [
        AlterPartition(
            1, 50, [Proposal("t", "id", n, 5, (1, 2), RECOVERING, 7, (11, 12), (21, 22)) for n in range(5)]
        )
    ]
    assert [(p.partition, p.error_code, p.leader) for p in answer.partitions] == [
        *((n, common_pb2.NONE, 1) for n in range(3)),
        *((n, common_pb2.FENCED_LEADER_EPOCH, -1) for n in (3, 4)),
    ]
    first = answer.partitions[0]
    assert (first.leader_epoch, list(first.isr), first.partition_epoch) == (5, [1, 2], 8)
    assert first.leader_recovery_state == RECOVERING
    assert [asked.altered(error) for error in ("NONE", "FENCED_LEADER_EPOCH")] == [3, 2]


async def test_the_answer_to_a_shutdown_names_what_remains() -> None:
    asked = Asked(ControlledShutdownReply(ErrorCode.NONE, [("t", 0), ("u", 3)]))
    answer = await asked.methods["ControlledShutdown"](
        pb.ControlledShutdownRequest(broker_id=1, broker_epoch=50)
    )
    assert asked.requests == [ControlledShutdown(1, 50)]
    assert [(p.topic, p.partition) for p in answer.remaining_partitions] == [("t", 0), ("u", 3)]


async def test_a_block_of_producer_ids_has_its_beginning_and_its_length() -> None:
    asked = Asked(AllocateProducerIdsReply(ErrorCode.NONE, 5000, 1000))
    answer = await asked.methods["AllocateProducerIds"](
        pb.AllocateProducerIdsRequest(broker_id=1, broker_epoch=50)
    )
    assert (answer.producer_id_start, answer.producer_id_len) == (5000, 1000)


@pytest.mark.parametrize(
    ("method", "error"),
    [
        ("AlterPartition", "NOT_CONTROLLER"),
        ("ControlledShutdown", "STALE_CONTROLLER_EPOCH"),
        ("AllocateProducerIds", "NOT_CONTROLLER"),
    ],
)
async def test_a_controller_that_has_a_term_but_does_not_lead_yet_is_not_asked(
    method: str, error: str
) -> None:
    asked = Asked(active=False)
    answer = await asked.methods[method](getattr(pb, f"{method}Request")())
    assert (asked.requests, common_pb2.ErrorCode.Name(answer.error_code)) == ([], error)
