"""Reads and writes of znodes from the event loop. The registration is in `registration`.

`ClusterStore` uses the client of the session of `broker_stub.zookeeper.registration.Registrar`. kazoo writes a byte
to a pipe for each request and blocks when the pipe is full; while disconnected nothing drains the pipe. So requests
are sent only while connected, and their number in flight is limited.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import structlog
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)

from broker_stub.control.gates import ControllerTerm
from broker_stub.control.requests import Key
from broker_stub.data_identity import random_uuid
from broker_stub.errors import BrokerError
from broker_stub.zookeeper import codecs
from broker_stub.zookeeper.codecs import ConfigChange, ConfigKind
from proto.tasks import failures_to

_log = structlog.get_logger("broker_stub.zookeeper.client")

_IN_FLIGHT_MAX = 64
_LOST_PAUSE_S = 0.05
_WATCH_RETRY_S = 1.0
#: Keeps a notification below ZooKeeper's default limit of 1 MiB per znode.
_NOTIFIED_PARTITIONS_MAX = 3000
#: Called with whose configuration changed; None: any may have.
ConfigCallbacks = Mapping[ConfigKind, Callable[[str | None], None]]


class StoreUnavailable(BrokerError):  # noqa: N818  (a fault of the environment)
    """ZooKeeper did not respond, or refused. A write may have been done, or may still be done."""


class ClusterStore:
    """Reads and writes of one broker. Used on the event loop where it is created, except `session`.

    Every method waits at most ``timeout_s``, including reconnections, and then raises StoreUnavailable. Without a
    session it raises at once. ``on_bug`` receives unexpected exceptions of the watch task.
    """

    def __init__(self, on_bug: Callable[[BaseException], None], timeout_s: float = 5.0) -> None:
        self._on_bug, self._timeout_s = on_bug, timeout_s
        self._loop = asyncio.get_running_loop()
        self._client: KazooClient | None = None
        #: Number of sessions so far, so that the watch task detects a new one.
        self._sessions = 0
        self._connected = asyncio.Event()
        self._in_flight = asyncio.Semaphore(_IN_FLIGHT_MAX)
        #: A dict, not a set: it keeps the order of the requests.
        self._pending: dict[asyncio.Future[Any], None] = {}
        self._list_changes = asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None

    # --- the session ---------------------------------------------------------------------------------------

    def session(self, client: KazooClient | None) -> None:
        """A session began, or the present one ended (None). Called from any thread."""
        self._post(self._session_changed, client)

    def _post(self, callback: Callable[..., None], *args: Any) -> None:
        # The loop may be closed while kazoo's threads are still ending.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *args)

    def _session_changed(self, client: KazooClient | None) -> None:
        self._client = client
        self._connected.clear()
        for future in self._pending:
            if not future.done():
                future.set_exception(SessionExpiredError("the session is over"))
        if client is not None:
            self._sessions += 1
            client.add_listener(partial(self._listen, client))
            self._connection_changed(client, client.state)

    def _listen(self, client: KazooClient, state: str) -> None:
        self._post(self._connection_changed, client, state)

    def _connection_changed(self, client: KazooClient, state: str) -> None:
        if client is not self._client:
            return
        if state == KazooState.CONNECTED:
            self._connected.set()
            # A watch may be lost with its connection: list again to find changes.
            self._list_changes.set()
        elif state == KazooState.LOST:
            # kazoo starts a new session of its own, which this store must not use.
            self._session_changed(None)
        else:
            self._connected.clear()

    async def close(self) -> None:
        """End the watch task; waiting and later calls raise StoreUnavailable."""
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.wait([self._watcher])
        self._session_changed(None)

    @asynccontextmanager
    async def _bounded(self, what: str) -> AsyncIterator[None]:
        """Apply the timeout of one method and turn errors into StoreUnavailable."""
        if self._client is None:
            raise StoreUnavailable(f"{what}: no ZooKeeper session")
        try:
            async with asyncio.timeout(self._timeout_s):
                yield
        except TimeoutError:
            raise StoreUnavailable(f"{what}: no response of ZooKeeper in {self._timeout_s:g} s") from None
        except KazooException as error:
            raise StoreUnavailable(f"{what}: {type(error).__name__} {error}".rstrip()) from error

    async def _once(self, request: Callable[[KazooClient], Any]) -> Any:
        """Send one request when connected and return its result. Raises kazoo's exceptions."""
        async with self._in_flight:
            while not self._connected.is_set():
                await self._connected.wait()
            assert self._client is not None
            future = self._loop.create_future()
            self._pending[future] = None
            try:
                request(self._client).rawlink(partial(self._post, _complete, future))
                return await future
            finally:
                del self._pending[future]

    async def _repeat(self, request: Callable[[KazooClient], Any]) -> Any:
        """As `_once`, repeated after each connection loss: for requests that may be executed twice."""
        while True:
            with suppress(ConnectionLoss):
                return await self._once(request)
            await asyncio.sleep(_LOST_PAUSE_S)

    async def _read(self, path: str) -> tuple[bytes, int] | None:
        try:
            data, stat = await self._repeat(lambda client: client.get_async(path))
        except NoNodeError:
            return None
        return data, stat.version

    # --- single znodes -------------------------------------------------------------------------------------

    async def controller_endpoint(self) -> tuple[str, int] | None:
        """Host and port of the active controller (reference, section 15.2); None: there is none.

        Raises StoreUnavailable, MalformedZnode.
        """
        async with self._bounded(f"read of {codecs.CONTROLLER}"):
            found = await self._read(codecs.CONTROLLER)
            return codecs.decode_endpoint(found[0]) if found is not None else None

    async def controller_term(self, look: int) -> ControllerTerm:
        """The controller and its epoch, as of after this call. Raises StoreUnavailable, MalformedZnode.

        ``look``: number for the result.
        """
        path = codecs.CONTROLLER_EPOCH
        async with self._bounded(f"read of {path}"):
            # The server that we are connected to may be behind.
            await self._repeat(lambda client: client.sync_async(path))
            while True:
                try:
                    data, stat = await self._repeat(lambda client: client.get_async(path))
                except NoNodeError:
                    raise StoreUnavailable(f"{path} does not exist") from None
                found = await self._read(codecs.CONTROLLER)
                after = await self._repeat(lambda client: client.exists_async(path))
                if after is not None and after.mzxid == stat.mzxid:
                    break
        epoch = codecs.decode_epoch(data)
        holder = codecs.decode_controller_id(found[0]) if found is not None else -1
        return ControllerTerm(look, epoch, int(stat.mzxid), holder)

    async def topic_config(self, topic: str) -> dict[str, str]:
        """A topic's own settings, name to text. Raises StoreUnavailable, MalformedZnode."""
        return await self._config(codecs.config_path(topic))

    async def broker_config(self, broker: str) -> dict[str, str]:
        """Dynamic settings of a broker id, or of ``<default>``. Raises StoreUnavailable, MalformedZnode."""
        return await self._config(codecs.broker_config_path(broker))

    async def _config(self, path: str) -> dict[str, str]:
        async with self._bounded(f"read of {path}"):
            found = await self._read(path)
            return codecs.decode_config(path, found[0]) if found is not None else {}

    async def partition_count(self, topic: str) -> int | None:
        """Number of partitions of a topic; None: the topic does not exist. Raises StoreUnavailable, MalformedZnode."""
        path = codecs.topic_path(topic)
        async with self._bounded(f"read of {path}"):
            found = await self._read(path)
            return codecs.decode_partition_count(path, found[0]) if found is not None else None

    async def get_state(
        self, topic: str, partition: int, *, latest: bool = False
    ) -> tuple[bytes, int] | None:
        """A partition's stored state and its znode version (the partition epoch); None: the znode does not exist.

        ``latest``: as of after this call; else of a server that may be behind. Raises StoreUnavailable.
        """
        path = codecs.state_path(topic, partition)
        async with self._bounded(f"read of {path}"):
            if latest:
                await self._repeat(lambda client: client.sync_async(path))
            return await self._read(path)

    async def get_registration(self, broker_id: int) -> tuple[bytes, int] | None:
        """A broker's registration and its broker epoch; None: it is not registered. Raises StoreUnavailable."""
        path = codecs.broker_path(broker_id)
        async with self._bounded(f"read of {path}"):
            try:
                data, stat = await self._repeat(lambda client: client.get_async(path))
            except NoNodeError:
                return None
            return data, int(stat.czxid)

    async def set_state(self, topic: str, partition: int, data: bytes, version: int) -> int | None:
        """Replace the state if its version is ``version``. Returns the new version; None: another version, or no znode.

        Raises StoreUnavailable.
        """
        path = codecs.state_path(topic, partition)
        lost = False
        async with self._bounded(f"write of {path}"):
            while True:
                try:
                    stat = await self._once(lambda client: client.set_async(path, data, version))
                    return int(stat.version)
                except NoNodeError:
                    return None
                except BadVersionError:
                    # Read only now: before, a write whose response was lost could still be executed.
                    landed = lost and await self._read(path) == (data, version + 1)
                    return version + 1 if landed else None
                except ConnectionLoss:
                    lost = True
                    await asyncio.sleep(_LOST_PAUSE_S)

    async def notify_isr_changes(self, partitions: Sequence[Key]) -> None:
        """Notify the controller of partitions whose state it must read again (reference, section 8.4).

        Raises StoreUnavailable; a part of the notifications may have been written.
        """
        async with self._bounded(f"write below {codecs.ISR_NOTIFICATIONS}"):
            for start in range(0, len(partitions), _NOTIFIED_PARTITIONS_MAX):
                data = codecs.encode_partitions(partitions[start : start + _NOTIFIED_PARTITIONS_MAX])
                path = codecs.ISR_CHANGE
                await self._repeat(partial(_create_sequential, path, data))

    async def create_topic(
        self, topic: str, assignment: Mapping[int, Sequence[int]], config: Mapping[str, str]
    ) -> None:
        """Create a topic as Kafka's admin tools do (reference, section 7), unless it exists.

        Configuration and topic are created in one transaction. Raises StoreUnavailable.
        """
        path, config_path = codecs.topic_path(topic), codecs.config_path(topic)
        data = codecs.encode_topic(_new_topic_id(), assignment)
        async with self._bounded(f"creation of {path}"):
            while await self._repeat(lambda client: client.exists_async(path)) is None:
                # A configuration left by a former topic of that name is replaced.
                former = await self._repeat(lambda client: client.exists_async(config_path))

                def create(client: KazooClient, former: Any = former) -> Any:
                    transaction = client.transaction()
                    if former is None:
                        transaction.create(config_path, codecs.encode_config(config))
                    else:
                        transaction.set_data(config_path, codecs.encode_config(config), former.version)
                    transaction.create(path, data)
                    return transaction.commit_async()

                # Another client, or our own attempt without a response, may have created it: check again.
                with suppress(ConnectionLoss, NodeExistsError, BadVersionError):
                    _raise_failure(await self._once(create))

    # --- changes of configuration --------------------------------------------------------------------------

    def watch_config_changes(self, callbacks: ConfigCallbacks) -> None:
        """Call the callback of its kind on the loop whenever a configuration may have changed, with the name of whose.

        None means all of that kind: at the start of a session, and when a notification was deleted before it could be
        read. Malformed notifications are logged and skipped.
        """
        assert self._watcher is None
        self._watcher = asyncio.create_task(self._run_watch(callbacks), name="config-changes")
        self._watcher.add_done_callback(failures_to(self._on_bug))

    async def _run_watch(self, callbacks: ConfigCallbacks) -> None:
        seen: frozenset[str] = frozenset()
        listed = (0, 0)
        while True:
            await self._list_changes.wait()
            self._list_changes.clear()
            while not self._connected.is_set():
                await self._connected.wait()
            session = self._sessions
            try:
                names, parent = await self._list_and_watch()
                known = (session, parent) == listed
                changes = await self._read_changes(names - seen) if known else [None]
            except StoreUnavailable as error:
                _log.warning("configuration change notifications not read yet", why=str(error))
                await asyncio.sleep(_WATCH_RETRY_S)
                self._list_changes.set()
                continue
            seen, listed = names, (session, parent)
            for change in changes:
                for kind, callback in callbacks.items():
                    if change is None:
                        callback(None)
                    elif change.kind is kind:
                        callback(change.name)

    async def _list_and_watch(self) -> tuple[frozenset[str], int]:
        """All notifications, and the czxid of their parent: after the parent is recreated, names repeat."""
        path = codecs.CONFIG_CHANGES
        async with self._bounded(f"list of {path}"):
            while True:
                try:
                    names, stat = await self._repeat(
                        lambda client: client.get_children_async(path, self._changed, include_data=True)
                    )
                    return frozenset(names), stat.czxid
                except NoNodeError:
                    await self._repeat(lambda client: client.ensure_path_async(path))

    def _changed(self, _event: object) -> None:
        """Called by kazoo. Always the same method: kazoo registers an equal watcher only once."""
        self._post(self._list_changes.set)

    async def _read_changes(self, names: frozenset[str]) -> list[ConfigChange | None]:
        """What new notifications are about, each once, in order; None: one could not be read."""
        changes: dict[ConfigChange | None, None] = {}
        for name in sorted(names, key=lambda name: (name[-10:], name)):
            path = f"{codecs.CONFIG_CHANGES}/{name}"
            async with self._bounded(f"read of {path}"):
                found = await self._read(path)
            if found is None:
                changes[None] = None
                continue
            try:
                change = codecs.decode_change(path, found[0])
            except codecs.MalformedZnode as error:
                _log.warning("notification skipped", problem=str(error))
                continue
            if change is not None:
                changes[change] = None
        return list(changes)


def _complete(future: asyncio.Future[Any], result: Any) -> None:
    """Complete a future; kazoo may report twice, or after the caller has timed out."""
    if future.done():
        return
    if result.successful():
        future.set_result(result.value)
    else:
        future.set_exception(result.exception)


def _create_sequential(path: str, data: bytes, client: KazooClient) -> Any:
    return client.create_async(path, data, sequence=True, makepath=True)


def _raise_failure(results: Sequence[object]) -> None:
    """Raise the error of a failed transaction, not those of the operations that were only rolled back with it."""
    for result in results:
        if isinstance(result, Exception) and not isinstance(result, RolledBackError | RuntimeInconsistency):
            raise result


def _new_topic_id() -> str:
    """Without a leading dash, as Kafka's."""
    while True:
        text = random_uuid()
        if not text.startswith("-"):
            return text
