"""One odd request, whatever it is: how it is sent, and how what comes back is judged.

What has to be refused, and what asks for nothing to be written, bears a mark (``REFUSED``, ``NOBODY``), which nobody
may ever write: `tests.provers.sim.checks.refusals` looks for it in every transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple, Protocol

from google.protobuf.message import Message

from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2 as codes
from proto.gen import controller_service_pb2 as service
from proto.gen import features_pb2 as features
from proto.gen import maintenance_pb2 as maintenance
from tests.provers.sim.actors.brokers import SimBroker
from tests.provers.sim.actors.operators import CONTROLLER_SERVICE, SERVICE, Operator, OperatorEnvironment
from tests.provers.sim.checks.refusals import REFUSED
from tests.provers.sim.plans.plan import Plan

Codes = Collection[int]
DONE: Codes = (codes.NONE,)
INVALID: Codes = (codes.INVALID_REQUEST,)
#: Who leads no more, or not yet, decides nothing.
_UNDECIDED = (codes.NOT_CONTROLLER,)


class Method(NamedTuple):
    """``parts``: the field of the response with a result for each part of the request; empty: there is none."""

    response: Any
    parts: str = ""
    prefix: str = SERVICE


METHODS = {
    "CreateTopics": Method(pb.CreateTopicsResponse, "topics"),
    "CreatePartitions": Method(pb.CreatePartitionsResponse, "results"),
    "DeleteTopics": Method(pb.DeleteTopicsResponse, "responses"),
    "AlterPartitionReassignments": Method(pb.AlterPartitionReassignmentsResponse, "responses"),
    "ListPartitionReassignments": Method(pb.ListPartitionReassignmentsResponse),
    "ListTopicDeletions": Method(pb.ListTopicDeletionsResponse),
    "ElectLeaders": Method(pb.ElectLeadersResponse, "results"),
    "AlterConfigs": Method(pb.AlterConfigsResponse, "responses"),
    "DescribeConfigs": Method(pb.DescribeConfigsResponse, "results"),
    "UpdateFeatures": Method(features.UpdateFeaturesResponse, "results"),
    "DescribeFeatures": Method(features.DescribeFeaturesResponse),
    "SetPause": Method(maintenance.OperatorResponse),
    "SetMaintenance": Method(maintenance.OperatorResponse),
    "SetFreeze": Method(maintenance.OperatorResponse),
    "SetDrain": Method(maintenance.OperatorResponse),
    "ForgetBroker": Method(maintenance.OperatorResponse),
    "CancelShutdown": Method(maintenance.OperatorResponse),
    "AlterPartition": Method(service.AlterPartitionResponse, "partitions", CONTROLLER_SERVICE),
    "ControlledShutdown": Method(service.ControlledShutdownResponse, "", CONTROLLER_SERVICE),
    "AllocateProducerIds": Method(service.AllocateProducerIdsResponse, "", CONTROLLER_SERVICE),
}


class Case(NamedTuple):
    """``whole``: what may be said to all of it; ``parts``: if that is no error, what may be said to each part; None:
    not judged. ``certificate``: whose; empty: the operator's."""

    method: str
    request: Message
    parts: Sequence[Codes] | None = ()
    whole: Codes = DONE
    certificate: str = ""


def findings(case: Case, answer: Any) -> Iterator[str]:
    """What is wrong with an answer, in words."""
    method = METHODS[case.method]
    if answer.error_code in _UNDECIDED:
        return
    if answer.error_code not in case.whole:
        yield f"got {_name(answer.error_code)}, not {_names(case.whole)}"
    if answer.error_code or not method.parts or case.parts is None:
        return
    parts = getattr(answer, method.parts)
    if len(parts) != len(case.parts):
        yield f"got {len(parts)} results, not {len(case.parts)}"
    for number, (part, allowed) in enumerate(zip(parts, case.parts, strict=False)):
        if part.error_code not in allowed and part.error_code not in _UNDECIDED:
            yield f"got {_name(part.error_code)} for part {number}, not {_names(allowed)}"
        if part.error_code and "error_message" in part.DESCRIPTOR.fields_by_name and not part.error_message:
            yield f"got {_name(part.error_code)} for part {number}, and not why"


def _name(code: int) -> str:
    return codes.ErrorCode.Name(code)


def _names(allowed: Codes) -> str:
    return " or ".join(map(_name, sorted(set(allowed))))


class OverError(Exception):
    """Everything is mended: nothing odd is asked any more."""


class OddCluster(OperatorEnvironment, Protocol):
    brokers: dict[int, SimBroker]
    plan: Plan

    @property
    def over(self) -> bool:
        """Whether nothing goes wrong any more."""
        ...

    def nodes_below(self, path: str) -> list[str]: ...

    def stored(self, path: str) -> bytes | None: ...

    def kill_broker(self, id_: int, seconds: float) -> None: ...


@dataclass
class Edits:
    """Of znodes that do not decode meanwhile: how many there are, and were until now."""

    present: int = 0
    made: int = 0


class Asker:
    """Sends what one scenario asks for. ``serial``: no other scenario of the run has it. ``edits``: of all of them.
    ``calm``: it asks once nothing goes wrong any more."""

    def __init__(
        self,
        cluster: OddCluster,
        operator: Operator,
        edits: Edits,
        serial: int,
        rng: Random,
        *,
        calm: bool = False,
    ) -> None:
        self._calm = calm
        self.cluster, self.operator, self.serial, self.rng = cluster, operator, serial, rng
        self.edits, self._edits_itself = edits, False

    @contextmanager
    def editing(self) -> Iterator[None]:
        """What others ask for is not judged meanwhile."""
        self.edits.present += 1
        self.edits.made += 1
        self._edits_itself = True
        try:
            yield
        finally:
            self.edits.present -= 1

    async def ask(self, case: Case, *, tidying: bool = False) -> Any:
        """The answer, judged; None: there is none to judge, or nobody has decided. ``tidying``: sent whatever is over.

        Raises OverError."""
        if self.too_late(tidying=tidying):
            raise OverError
        method = METHODS[case.method]
        self.operator.asked += 1
        edits, edited = self.edits.made, self.edits.present
        answer = await self.operator.call(
            case.method, case.request, method.response, method.prefix, case.certificate
        )
        if answer is None or answer.error_code in _UNDECIDED:
            return None
        if not self._edits_itself and (edited or edits != self.edits.made):
            return None
        for finding in findings(case, answer):
            self.cluster.violated(f"{case.method} {finding}: {case.request}")
        return answer

    def too_late(self, *, tidying: bool) -> bool:
        return self.cluster.over and not (tidying or self._calm)

    async def pass_s(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    @property
    def again(self) -> bool:
        """Whether a request may arrive twice: the second may be answered first."""
        return self.cluster.plan.options.twice > 0

    @property
    def ids(self) -> list[int]:
        return sorted(self.cluster.brokers)

    def refused(self) -> str:
        """A name that no znode may have."""
        return f"{REFUSED}-{self.serial}-{self.rng.randrange(1000)}"

    def registered(self) -> list[int]:
        return [int(name) for name in self.cluster.nodes_below("/brokers/ids")]
