"""Controlled shutdown: leadership is handed over before the broker goes (reference, section 6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from broker_stub.rpc.peers import Peers, PeerUnavailable, join_address
from broker_stub.zookeeper.client import StoreUnavailable
from broker_stub.zookeeper.codecs import MalformedZnode
from broker_stub.zookeeper.isr_writers import ControllerFinder, error_name
from proto.gen import common_pb2 as codes
from proto.gen import controller_service_pb2 as wire

_log = structlog.get_logger("broker_stub.shutdown")

#: Longest time one request may take: the controller elects a leader for each of our partitions meanwhile.
_REQUEST_TIMEOUT_S = 30.0
_NAMED_PARTITIONS_MAX = 10


async def controlled_shutdown(
    peers: Peers,
    store: ControllerFinder,
    broker_id: int,
    broker_epoch: Callable[[], int],
    max_retries: int,
    backoff_ms: int,
    timeout_s: float,
    hurry: asyncio.Event,
) -> bool:
    """Ask the active controller to take over what we lead; whether it let us go.

    Asks up to ``max_retries`` times, ``backoff_ms`` apart, and no longer than ``timeout_s`` seconds or until
    ``hurry`` is set. ``broker_epoch()`` is that of the present registration. Whatever goes wrong is logged,
    nothing is raised: a broker that was told to stop stops.
    """
    asking = asyncio.create_task(_ask(peers, store, broker_id, broker_epoch, max_retries, backoff_ms))
    cut = asyncio.create_task(hurry.wait())
    try:
        await asyncio.wait((asking, cut), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if asking.done():
            return asking.result()
        why = "told to stop at once" if cut.done() else f"not done within {timeout_s:g} s"
        _log.warning("controlled shutdown given up: leadership is lost uncleanly", why=why)
        return False
    finally:
        asking.cancel()
        cut.cancel()
        await asyncio.wait((asking, cut))


async def _ask(
    peers: Peers,
    store: ControllerFinder,
    broker_id: int,
    broker_epoch: Callable[[], int],
    max_retries: int,
    backoff_ms: int,
) -> bool:
    for attempt in range(1, max_retries + 1):
        try:
            problem = await _ask_once(peers, store, broker_id, broker_epoch())
        except StoreUnavailable as error:
            # Without ZooKeeper our registration expires whatever we do.
            _log.warning("controlled shutdown impossible: the controller cannot be found", why=str(error))
            return False
        if problem is None:
            _log.info("controlled shutdown done: nothing is led here any more", attempt=attempt)
            return True
        _log.warning("controlled shutdown not done", attempt=attempt, attempts_max=max_retries, why=problem)
        if attempt < max_retries:
            await asyncio.sleep(backoff_ms / 1000)
    _log.warning("controlled shutdown given up: leadership is lost uncleanly", attempts=max_retries)
    return False


async def _ask_once(peers: Peers, store: ControllerFinder, broker_id: int, broker_epoch: int) -> str | None:
    """None: we may go; else why not yet. Raises StoreUnavailable."""
    try:
        address = await store.controller_endpoint()
    except MalformedZnode as error:
        return str(error)
    if address is None:
        return "there is no active controller"
    request = wire.ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch)
    try:
        response = await peers.controlled_shutdown(address, request, _REQUEST_TIMEOUT_S)
    except PeerUnavailable as error:
        return str(error)
    if response.error_code != codes.NONE:
        return f"controller {join_address(address)} answered {error_name(response.error_code)}"
    remaining = [f"{item.topic}-{item.partition}" for item in response.remaining_partitions]
    if not remaining:
        return None
    named = ", ".join(remaining[:_NAMED_PARTITIONS_MAX])
    more = (
        f" and {len(remaining) - _NAMED_PARTITIONS_MAX} more"
        if len(remaining) > _NAMED_PARTITIONS_MAX
        else ""
    )
    return f"still leader of {len(remaining)} partitions: {named}{more}"
