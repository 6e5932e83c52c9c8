"""Controlled shutdown: leadership moves to other brokers before this one stops (reference, section 6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from broker_stub.rpc.peers import Peers, PeerUnavailable
from broker_stub.zookeeper.client import StoreUnavailable
from broker_stub.zookeeper.codecs import MalformedZnode
from broker_stub.zookeeper.isr_writers import ControllerFinder
from proto.addresses import join_address
from proto.error_names import error_name
from proto.gen import common_pb2 as codes
from proto.gen import controller_service_pb2 as wire

_log = structlog.get_logger("broker_stub.shutdown")

#: Timeout of one request: the controller elects a new leader for each of our partitions before it responds.
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
    stop_now: asyncio.Event,
) -> bool:
    """Ask the active controller to move our leaderships to other brokers. Returns whether it moved all.

    Sends up to ``max_retries`` requests, ``backoff_ms`` apart. Gives up after ``timeout_s`` seconds or when
    ``stop_now`` is set. ``broker_epoch()`` is that of the present registration. Failures are logged and not raised,
    because the broker stops anyway.
    """
    requests = asyncio.create_task(_retry(peers, store, broker_id, broker_epoch, max_retries, backoff_ms))
    interrupt = asyncio.create_task(stop_now.wait())
    try:
        await asyncio.wait((requests, interrupt), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if requests.done():
            return requests.result()
        why = "told to stop at once" if interrupt.done() else f"not done within {timeout_s:g} s"
        _log.warning("controlled shutdown given up: this broker may still lead partitions", why=why)
        return False
    finally:
        requests.cancel()
        interrupt.cancel()
        await asyncio.wait((requests, interrupt))


async def _retry(
    peers: Peers,
    store: ControllerFinder,
    broker_id: int,
    broker_epoch: Callable[[], int],
    max_retries: int,
    backoff_ms: int,
) -> bool:
    for attempt in range(1, max_retries + 1):
        try:
            problem = await _send_request(peers, store, broker_id, broker_epoch())
        except StoreUnavailable as error:
            # No retry: without ZooKeeper our registration expires anyway.
            _log.warning("controlled shutdown impossible: the controller cannot be found", why=str(error))
            return False
        if problem is None:
            _log.info("controlled shutdown done: this broker leads no partition", attempt=attempt)
            return True
        _log.warning("controlled shutdown not done", attempt=attempt, attempts_max=max_retries, why=problem)
        if attempt < max_retries:
            await asyncio.sleep(backoff_ms / 1000)
    _log.warning("controlled shutdown given up: this broker may still lead partitions", attempts=max_retries)
    return False


async def _send_request(
    peers: Peers, store: ControllerFinder, broker_id: int, broker_epoch: int
) -> str | None:
    """One request. Returns None when the broker may stop, else the reason why not yet. Raises StoreUnavailable."""
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
        return f"controller {join_address(*address)} responded with {error_name(response.error_code)}"
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
