"""One broker process from start to end: opens the disk, serves, registers, and takes it all down again."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import structlog

from broker_stub.control.handlers import ControlHandlers
from broker_stub.data_plane import DataPlane, RoleBridge
from broker_stub.errors import BrokerError, StorageFault
from broker_stub.log.directory import LogDirectory
from broker_stub.log.interface import LogConfig
from broker_stub.rpc.server import BrokerServer
from broker_stub.settings import Settings, unknown_variables
from broker_stub.shutdown import controlled_shutdown
from broker_stub.storage import DataDir
from broker_stub.zookeeper.client import ClusterStore
from broker_stub.zookeeper.registration import Identity, Registrar, Timeouts
from proto.statelog.writer import StateLogWriter

_log = structlog.get_logger("broker_stub.daemon")

_STOP_GRACE_S = 2.0
_HAND_OVER_TIMEOUT_S = 30.0
#: kazoo gives a connection 10 s to close.
_DEREGISTER_TIMEOUT_S = 15.0
_STATE_LOG_CLOSE_TIMEOUT_S = 30.0


def configure_logging(log_format: str, level: str, broker_id: int) -> None:
    """Send structlog and the libraries' own logs to stderr, every line bound to the broker id."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _bind_broker(broker_id),
    ]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            renderer,
        ],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    # What kazoo says of a lost connection we say ourselves.
    logging.getLogger("kazoo").setLevel(logging.ERROR)
    logging.getLogger("broker_stub").setLevel(level.upper())
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
    )


def _bind_broker(broker_id: int) -> structlog.typing.Processor:
    def bind(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        event.setdefault("broker", broker_id)
        return event

    return bind


class Broker:
    """The parts of a running broker and how they end.

    ``run`` ends on SIGTERM or SIGINT (returns), or raises what made it end: a BrokerError, or a bug.
    """

    def __init__(self, settings: Settings) -> None:
        """Open the data directory, recover the logs in it. Raises StorageFault or SettingError."""
        self._settings = settings
        ignored = [settings.state_log_dir.name] if settings.state_log_dir.parent == settings.data_dir else []
        self._data_dir = DataDir(settings.data_dir, settings.broker_id, ignored)
        try:
            self._logs = LogDirectory(settings.data_dir, _log_config(settings))
            self._unopened = self._logs.recover(replica.key for replica in self._data_dir.found)
            self._state_log = StateLogWriter(settings.state_log_dir, "broker", settings.broker_id)
        except OSError as error:
            self._data_dir.close()
            raise StorageFault(
                f"state log directory {settings.state_log_dir} cannot be used: {error}"
            ) from error
        except BaseException:
            self._data_dir.close()
            raise
        self._bridge = RoleBridge()
        self._handlers = ControlHandlers(
            settings.broker_id,
            self._data_dir,
            self._state_log,
            self._data_dir.found,
            self._storage_lost,
            self._bridge,
        )
        self._registrar: Registrar | None = None
        self._ended: asyncio.Future[None] | None = None
        self._hurry = asyncio.Event()
        #: We have been registered once: controllers can mean us.
        self._known = asyncio.Event()

    async def run(self) -> None:
        """Serve until told to stop."""
        loop = asyncio.get_running_loop()
        self._ended = ended = loop.create_future()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, self._told_to_stop)
        store = ClusterStore(self._end)
        worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="control")
        data = DataPlane(self._settings, self._logs, self._handlers, store, worker, self._end_from_thread)
        server = BrokerServer(self._handlers, worker, data.methods(), self._end_from_thread, self._known)
        reason = "failed"
        try:
            self._report_start()
            self._bridge.connect(data)
            data.start()
            await self._serve(server, store)
            await ended
            reason = "told to stop"
            await self._hand_over(data, store)
        finally:
            _log.info("stopping", reason=reason)
            await data.stop_following()
            # The controller must learn that we go before clients are turned away.
            if self._registrar is not None:
                await asyncio.to_thread(self._registrar.stop, _DEREGISTER_TIMEOUT_S)
            await store.close()
            await data.stop()
            await server.stop(_STOP_GRACE_S)
            # Not on the loop: a request under way on that thread may wait for the loop.
            await asyncio.to_thread(worker.shutdown, True)
            self._close_logs(data)
            self._handlers.lifecycle("stopped", "Shutdown", reason)
            await asyncio.to_thread(self._state_log.close, _STATE_LOG_CLOSE_TIMEOUT_S)
            self._data_dir.close()

    async def _serve(self, server: BrokerServer, store: ClusterStore) -> None:
        settings = self._settings
        if self._unopened:
            await asyncio.to_thread(
                self._handlers.replicas_failed, list(self._unopened), next(iter(self._unopened.values()))
            )
        host, port = settings.listen
        port = await server.start(host, port)
        _log.info("listening", host=host, port=port, advertised=settings.advertised_host)
        self._registrar = Registrar(
            Identity(
                settings.broker_id,
                settings.advertised_host,
                port,
                settings.rack,
                settings.supported_features,
            ),
            settings.zookeeper,
            Timeouts(settings.session_timeout_ms, settings.connection_timeout_ms),
            self._registered_from_thread,
            self._end_from_thread,
            store.session,
        )
        self._registrar.start()
        if self._unopened:
            self._registrar.storage_lost()

    async def _hand_over(self, data: DataPlane, store: ClusterStore) -> None:
        """Controlled shutdown: leaderships go to others while we still serve (reference, section 6)."""
        settings = self._settings
        if not settings.controlled_shutdown_enable or self._handlers.gate.broker_epoch < 0:
            return
        await controlled_shutdown(
            data.peers,
            store,
            settings.broker_id,
            lambda: self._handlers.gate.broker_epoch,
            max_retries=settings.controlled_shutdown_max_retries,
            backoff_ms=settings.controlled_shutdown_retry_backoff_ms,
            hurry=self._hurry,
            timeout_s=_HAND_OVER_TIMEOUT_S,
        )

    def _close_logs(self, data: DataPlane) -> None:
        try:
            data.close_logs()
        except OSError as error:
            _log.error("logs not closed cleanly: the next start checks them", why=str(error))

    def _report_start(self) -> None:
        found = len(self._data_dir.found)
        for path, problem in self._data_dir.problems:
            _log.warning("skipped on the disk", path=path, problem=problem)
        for trouble in self._logs.problems:
            _log.warning("log recovered", problem=trouble)
        for (topic, partition), why in self._unopened.items():
            _log.error(
                "log cannot be used: the replica is offline", topic=topic, partition=partition, why=why
            )
        for name in unknown_variables(os.environ):
            _log.warning("unknown setting in the environment", name=name)
        _log.info("started", data_dir=str(self._settings.data_dir), partitions_found=found)
        self._handlers.lifecycle("started", "Startup", f"{found} partitions found on the disk")

    def _storage_lost(self, _why: str) -> None:
        if self._registrar is not None:
            self._registrar.storage_lost()

    def _told_to_stop(self) -> None:
        """The first signal ends the broker, a second one ends the waiting for the controller."""
        if self._ended is not None and self._ended.done():
            self._hurry.set()
        self._end(None)

    def _end(self, error: BaseException | None) -> None:
        """The one way to end: the first reason counts."""
        if self._ended is None or self._ended.done():
            return
        if error is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(error)

    def _registered_from_thread(self, broker_epoch: int) -> None:
        self._handlers.registered(broker_epoch)
        assert self._ended is not None
        self._ended.get_loop().call_soon_threadsafe(self._known.set)

    def _end_from_thread(self, error: BaseException) -> None:
        assert self._ended is not None
        self._ended.get_loop().call_soon_threadsafe(self._end, error)

    def dump(self, error: BaseException) -> Path:
        """Write what is known about a bug to a file; its path."""
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        path = self._settings.state_log_dir / f"crash-{stamp}.txt"
        state = json.dumps(self._handlers.describe(), indent=1)
        path.write_text("".join(traceback.format_exception(error)) + "\n" + state + "\n")
        return path


def _log_config(settings: Settings) -> LogConfig:
    return LogConfig(
        segment_bytes=settings.log_segment_bytes,
        message_max_bytes=settings.message_max_bytes,
        flush_interval_messages=settings.log_flush_interval_messages,
    )


def run(settings: Settings) -> int:
    """Run a broker to its end; the exit code: 0 told to stop, else that of the error, 1 for a bug."""
    configure_logging(settings.log_format, settings.log_level, settings.broker_id)
    broker: Broker | None = None
    try:
        broker = Broker(settings)
        asyncio.run(broker.run())
    except BrokerError as error:
        _log.error("broker failed", error=str(error))
        return error.exit_code
    except Exception as error:  # noqa: BLE001  (dumped, and the process ends)
        _log.error("unexpected error", error=repr(error), exc_info=error)
        if broker is not None:
            try:
                _log.error("state dumped", path=str(broker.dump(error)))
            except OSError as dump_error:
                _log.error("state not dumped", why=str(dump_error))
        return 1
    return 0
