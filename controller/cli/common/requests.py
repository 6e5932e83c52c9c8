"""Requests to the active controller, and its refusals."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from controller.cli.common.options import Options
from controller.cli.common.output import note
from controller.client import admin
from controller.exit_codes import EXIT_FAILED, EXIT_REFUSED
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.session import Session
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


async def ask(options: Options, session: Session, method: str, request: Any) -> Any:
    """Call a method of the active controller's AdminService. Raises RequestFailedError."""
    cluster_state = await cluster_reader.look(session, topics=(), states=False)
    return await admin.ask(cluster_state.controller_endpoint, method, request, options.timeout_s, options.tls)


class Refusal(NamedTuple):
    """An entry that the controller refused: its name, the error's name, and the message."""

    name: str
    error: str
    message: str


def refusals(named: Iterable[tuple[str, Any]]) -> list[Refusal]:
    """The entries of a response that carry an error. ``named``: each entry with the name to show."""
    return [
        Refusal(name, common_pb2.ErrorCode.Name(entry.error_code), entry.error_message)
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
