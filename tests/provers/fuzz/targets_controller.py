"""Requests to a controller: AdminService and ControllerService, from bytes to bytes (`fuzzed_controller`).

Each is answered, with an error code that is Kafka's and never UNKNOWN_SERVER_ERROR, and with words of bounded length
where an error has room for them (`random_messages.answer_problems`: the same as in the form with a server). The
controller leads on, and what it wrote decodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

from proto.gen import admin_service_pb2 as pb
from proto.gen import controller_service_pb2 as controller_pb
from proto.gen import inspection_pb2, maintenance_pb2
from tests.provers.fuzz.fuzzed_controller import BROKER_EPOCHS, FuzzedController
from tests.provers.fuzz.harness import Outcome, Target, UnclearError
from tests.provers.fuzz.mutation import chooser, choosing, chosen, message_mutator
from tests.provers.fuzz.virtual import FreshProcess
from tests.support.runtime.fuzz_requests import ERRORS, GOOD, TEXTS, known
from tests.support.runtime.fuzzed_cluster import ADMIN, CONTROLLER, METHODS
from tests.support.runtime.random_messages import answer_problems, is_map, messages

_OF_BROKER_1: dict[str, Any] = {"broker_id": 1, "broker_epoch": BROKER_EPOCHS[0]}
#: Instead of those of GOOD.
MORE: dict[str, Sequence[Any]] = {
    "CreatePartitions": [
        pb.CreatePartitionsRequest(topics=[pb.NewPartitions(name="t", count=5)]),
        pb.CreatePartitionsRequest(
            topics=[pb.NewPartitions(name="t", count=4, assignments=[pb.ReplicaList(broker_ids=[3, 1])])]
        ),
    ],
    "AlterPartition": [
        controller_pb.AlterPartitionRequest(
            **_OF_BROKER_1,
            partitions=[controller_pb.AlterPartitionState(topic="t", new_isr=isr) for isr in ([1], [1, 2])],
        )
    ],
    "ControlledShutdown": [controller_pb.ControlledShutdownRequest(**_OF_BROKER_1)],
    "AllocateProducerIds": [controller_pb.AllocateProducerIdsRequest(**_OF_BROKER_1)],
    "SetDrain": [maintenance_pb2.SetDrainRequest(broker_id=2, drained=True, reason="disk", author="ann")],
    "SetPause": [maintenance_pb2.SetPauseRequest(paused=True, reason="disk", author="ann")],
    "SetMaintenance": [maintenance_pb2.SetMaintenanceRequest(entered=True, reason="disk", author="ann")],
    "Explain": [
        inspection_pb2.ExplainRequest(partition={"topic": "t"}),
        inspection_pb2.ExplainRequest(deletion="t"),
        inspection_pb2.ExplainRequest(reassignment={"topic": "t"}),
        inspection_pb2.ExplainRequest(controller=True),
    ],
    "DryRun": [
        inspection_pb2.DryRunRequest(
            steps=[inspection_pb2.DryRunStep(method=name, request=GOOD[name].SerializeToString())]
        )
        for name in (
            "CreateTopics",
            "AlterPartitionReassignments",
            "ElectLeaders",
            "AlterConfigs",
            "SetPause",
        )
    ],
}


def _entries(answer: Any) -> Iterator[Any]:
    """The answer and all it holds."""
    yield answer
    for field in answer.DESCRIPTOR.fields:
        if field.message_type is None or is_map(field):
            continue
        value = getattr(answer, field.name)
        for entry in value if field.is_repeated else [value] if answer.HasField(field.name) else []:
            yield from _entries(entry)


def outcome(answer: Any, errors: Mapping[int, str] = ERRORS) -> Outcome:
    """Raises UnclearError; ``errors``: the codes that may come."""
    problems = list(answer_problems(answer, errors))
    if problems:
        raise UnclearError("; ".join(problems))
    refused = False
    for entry in _entries(answer):
        names = entry.DESCRIPTOR.fields_by_name
        if "error_message" in names and not entry.error_message.isprintable():
            raise UnclearError(f"not one printable line: {entry.error_message!r}")
        refused = refused or ("error_code" in names and entry.error_code != 0)
    return Outcome.REFUSED if refused else Outcome.VALID


def requests_strategy(kinds: Sequence[Any], values: Any) -> st.SearchStrategy[bytes]:
    """Any message of any of these kinds (`random_messages`), with the byte that chooses it."""

    @st.composite
    def made(draw: Callable[..., Any]) -> bytes:
        index = draw(st.integers(0, len(kinds) - 1))
        return choosing(index, draw(messages(kinds[index], values)).SerializeToString())

    return made()


def _target(name: str, service: Any, weight: int) -> Target:
    worlds = FreshProcess(FuzzedController)
    methods = [method.name for method in service.methods]
    kinds = [METHODS[method].input_type for method in methods]

    def check(data: bytes) -> Outcome:
        index, body = chosen(data, len(methods))
        return outcome(worlds.call(methods[index], body))

    def seeds() -> Iterator[bytes]:
        for index, method in enumerate(methods):
            good = GOOD.get(method, GetMessageClass(kinds[index])())
            for request in MORE.get(method, ()) or [good]:
                yield choosing(index, request.SerializeToString())

    numbers = (0, 1, 2, 3, 4, -1, *BROKER_EPOCHS)
    return Target(
        name,
        check,
        list(seeds()),
        chooser([message_mutator(kind, TEXTS, numbers) for kind in kinds]),
        requests_strategy(kinds, known(BROKER_EPOCHS)),
        weight,
        quick=60,
        end=worlds.end,
    )


TARGETS = (_target("admin-rpc", ADMIN, 2), _target("controller-rpc", CONTROLLER, 2))
