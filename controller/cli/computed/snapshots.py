"""A snapshot of the cluster read from ZooKeeper, for plans and explanations when no controller answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from controller.cli.common.cluster_state import note_problems
from controller.cli.common.options import Options
from controller.cli.common.output import fail, note
from controller.client import admin, last_address
from controller.core.context import CoreSettings
from controller.planning.snapshot import Snapshot
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.cluster_reader import ClusterState
from controller.runtime.zookeeper.session import Session

#: Values of ``source`` in JSON output.
CONTROLLER, ZOOKEEPER = "controller", "zookeeper"
NOT_KNOWN = "failed disks, brokers in controlled shutdown and the controllers' settings are not known"


async def read_snapshot(session: Session, *, unclean_default: bool = False) -> tuple[ClusterState, Snapshot]:
    """Read the cluster once and note unreadable znodes. The state of a topic that changes during the read may be
    partly old and partly new."""
    cluster_state = await cluster_reader.look(session, configs=True)
    note_problems(cluster_state)
    return cluster_state, snapshot_of(cluster_state, unclean_default=unclean_default)


def snapshot_of(cluster_state: ClusterState, *, unclean_default: bool = False) -> Snapshot:
    """The snapshot for the active controller, or else for the next one; its settings are assumed."""
    active = cluster_state.controller_id >= 0
    return Snapshot(
        controller_id=max(cluster_state.controller_id, 0),
        controller_epoch=max(cluster_state.controller_epoch, 0) + (not active),
        brokers=cluster_state.brokers,
        topics=cluster_state.topics,
        states={(p.topic, p.partition): p.state for p in cluster_state.partitions if p.state is not None},
        configs=cluster_state.configs,
        broker_defaults=cluster_state.broker_defaults,
        deleting=tuple(cluster_state.deleting),
        problems=cluster_state.problems,
        maintenance=cluster_state.maintenance,
        approvals=cluster_state.approvals,
        settings=CoreSettings(unclean_leader_election_enable=unclean_default),
        feature=cluster_state.feature,
    )


async def from_controller_or_zookeeper(
    options: Options,
    session: Session,
    method: str,
    request: Any,
    field: str,
    from_zookeeper: Callable[[], Awaitable[dict[str, Any]]],
    *,
    offline: bool,
) -> dict[str, Any]:
    """The JSON in ``field`` of the active controller's response, else the same computed from ZooKeeper, with a note
    why. Its ``source`` is CONTROLLER or ZOOKEEPER. Ends the program if the controller rejects the request."""
    response = await ask_unless_offline(options, session, method, request, offline=offline)
    if response is not None:
        return from_response(response, field)
    return from_snapshot(await from_zookeeper())


async def ask_unless_offline(
    options: Options, session: Session, method: str, request: Any, *, offline: bool = False
) -> Any | None:
    """The active controller's response; None, with a note why, if the caller must use ZooKeeper. Ends the program if
    the controller rejects the request."""
    why = "--offline"
    if not offline:
        cluster_state = await cluster_reader.look(session, topics=())
        try:
            answer = await admin.ask(
                cluster_state.controller_endpoint, method, request, options.timeout_s, options.tls
            )
            last_address.remember(options.zookeeper, cluster_state.controller_endpoint)
            return answer
        except admin.RefusedError as error:
            if error.error != "OPERATION_NOT_ATTEMPTED":
                fail(error.message)
            why = error.message
        except admin.NoAnswerError as error:
            why = str(error) if cluster_state.controller_endpoint else "no controller is active"
    note(f"pctl: from ZooKeeper alone ({why}): {NOT_KNOWN}")
    return None


def from_snapshot(answer: Mapping[str, Any]) -> dict[str, Any]:
    """A result computed from ZooKeeper, converted through JSON to the form of the controller's."""
    return {"source": ZOOKEEPER, **msgspec.json.decode(msgspec.json.encode(answer))}


def from_response(response: Any, field: str) -> dict[str, Any]:
    """The JSON in a field of the active controller's response."""
    return {"source": CONTROLLER, **msgspec.json.decode(getattr(response, field))}
