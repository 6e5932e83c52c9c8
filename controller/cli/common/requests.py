"""Requests to the active controller, and its refusals."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from controller.cli.common.options import Options
from controller.cli.common.output import note
from controller.client import admin
from controller.exit_codes import EXIT_FAILED, EXIT_REFUSED
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.cluster_reader import ClusterState
from controller.runtime.zookeeper.session import Session
from proto.error_names import error_name
from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2

#: Errors by which the controller protects the cluster; a changed or later request may succeed.
SAFETY = frozenset(
    {
        "TOPIC_DELETION_DISABLED",
        "REASSIGNMENT_IN_PROGRESS",
        "PREFERRED_LEADER_NOT_AVAILABLE",
        "ELIGIBLE_LEADERS_NOT_AVAILABLE",
        "POLICY_VIOLATION",
    }
)


#: Seconds between two looks for a controller whose failover is completed.
_LOOK_S = 0.1
#: For so long a controller is silent before it is named, and before each look whether another has taken over.
_SILENT_S = 1.0
#: Time for a request, however long the look for the controller took.
_ASK_MIN_S = 0.2


async def ask(options: Options, session: Session, method: str, request: Any) -> Any:
    """Call a method of the active controller's AdminService; in a failover, after that. Raises RequestFailedError.

    Who is interrupted is told that a change was asked for.
    """
    deadline = time.monotonic() + options.timeout_s
    endpoint = await _endpoint(options, session, deadline, method)
    left_s = max(deadline - time.monotonic(), _ASK_MIN_S)
    try:
        return await admin.ask(endpoint, method, request, left_s, options.tls)
    except asyncio.CancelledError:
        if not admin.changes_nothing(method):
            note(f"the controller at {endpoint} has not answered {method} yet; {admin.CHECK_FIRST}")
        raise


async def _endpoint(options: Options, session: Session, deadline: float, method: str) -> str:
    """The active controller's; empty where none is active. While a candidate takes over, also from a process that is
    gone, wait for it, at most until the deadline: a request that it does not take yet must not be sent, as its outcome
    could be another's. Raises NoAnswerError where it cannot be reached."""
    while True:
        now = await cluster_reader.look(session, topics=())
        taking_over = now.controller_id < 0 and bool(now.controllers)
        if now.controller_endpoint:
            left_s = max(deadline - time.monotonic(), _ASK_MIN_S)
            answer = await _described(options, session, now, left_s)
            if answer is None:
                continue
            if isinstance(answer, str):
                left_s = deadline - time.monotonic()
                waits = len(now.controllers) > 1 and left_s > 0
                if not waits or await admin.listens(now.controller_endpoint, left_s):
                    raise admin.NoAnswerError(
                        f"the controller at {now.controller_endpoint} did not answer ({answer}): {method} was not sent"
                    )
                taking_over = True
            else:
                taking_over = answer.error_code == common_pb2.NOT_CONTROLLER
        if not taking_over or time.monotonic() > deadline:
            return now.controller_endpoint
        await asyncio.sleep(_LOOK_S)


async def _described(
    options: Options, session: Session, now: ClusterState, left_s: float
) -> pb.DescribeClusterResponse | str | None:
    """What the controller answers, as text why it did not; None: it is silent, and another leads by now."""
    endpoint, said = now.controller_endpoint, False
    answering = asyncio.ensure_future(admin.describe_cluster(endpoint, left_s, options.tls))
    try:
        while not (await asyncio.wait([answering], timeout=_SILENT_S))[0]:
            if not said:
                note(f"waiting for controller {now.controller_id} at {endpoint}")
                said = True
            if (await cluster_reader.look(session, topics=())).controller_endpoint != endpoint:
                return None
        return answering.result()
    finally:
        answering.cancel()


class Refusal(NamedTuple):
    """An entry that the controller refused: its name, the error's name, and the message."""

    name: str
    error: str
    message: str


def refusals(named: Iterable[tuple[str, Any]]) -> list[Refusal]:
    """The entries of a response that carry an error. ``named``: each entry with the name to show."""
    return [
        Refusal(name, error_name(entry.error_code), entry.error_message)
        for name, entry in named
        if entry.error_code
    ]


def report(refused: Sequence[Refusal], safety: Collection[str] = SAFETY) -> int:
    """Print the refusals. Returns the exit code: 0 without any, 3 if all are of ``safety``, else 1."""
    for one in refused:
        note(f"pctl: {one.name}: {one.error}" + (f": {one.message}" if one.message else ""))
    if not refused:
        return 0
    return EXIT_REFUSED if all(one.error in safety for one in refused) else EXIT_FAILED
