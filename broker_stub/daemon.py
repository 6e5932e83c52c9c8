"""One broker process: opens the data directory, serves, registers, and shuts down in order."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import traceback
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import structlog

from broker_stub.control.handlers import ControlHandlers
from broker_stub.data_dirs import DataDirs
from broker_stub.data_plane import DataPlane, RoleBridge
from broker_stub.errors import BrokerError, SettingError, StorageFault
from broker_stub.log.directories import LogDirectories
from broker_stub.log.interface import LogConfig
from broker_stub.rpc.access import Guard
from broker_stub.rpc.server import BrokerServer
from broker_stub.rpc.terms import Terms
from broker_stub.settings import Settings, unknown_variables, zookeeper_access
from broker_stub.shutdown import controlled_shutdown
from broker_stub.zookeeper.client import ClusterStore
from broker_stub.zookeeper.registration import Identity, Registrar, Timeouts
from proto.logs import configure_logging
from proto.reload import Reloads
from proto.security.access import Access, Listener, access_of, warn_if_open
from proto.security.authorization import Principal
from proto.security.expiry import Certificates
from proto.security.files import FileSettingError
from proto.security.grpc_channels import PemTls, daemon_tls
from proto.statelog.writer import StateLogWriter

_log = structlog.get_logger("broker_stub.daemon")

_STOP_GRACE_S = 2.0
#: For the notification of the last directory's failure, and for answers that say so.
_TELLING_S = 2.0
_CONTROLLED_SHUTDOWN_TIMEOUT_S = 30.0
#: Longer than the 10 s that kazoo waits for a connection to close.
_DEREGISTER_TIMEOUT_S = 15.0
_STATE_LOG_CLOSE_TIMEOUT_S = 30.0


class Broker:
    """A running broker: its parts and their shutdown.

    ``run`` returns after SIGTERM or SIGINT. Otherwise it raises the exception that ended the broker: a BrokerError, or
    a bug.
    """

    def __init__(self, settings: Settings) -> None:
        """Open the data directories and recover their logs. Raises StorageFault or SettingError."""
        self._settings = settings
        self._access = _access(settings)
        try:
            self._tls: PemTls | None = daemon_tls(settings)
            self._certificates = Certificates(settings.tls_files, settings.zookeeper_tls_files)
        except FileSettingError as error:
            raise SettingError(error.key, error.value, error.allowed) from None
        #: What SIGHUP reads again.
        self.reloads = Reloads()
        self._zookeeper_access = zookeeper_access(settings)
        if self._tls is not None:
            self.reloads.on_reload("certificates", self._tls.reload)
        log_dir = settings.state_log_dir
        ignored = [log_dir.name] if log_dir.parent in settings.data_dirs else []
        synced = settings.log_flush_interval_messages == 1
        self._data_dirs = dirs = DataDirs(settings.data_dirs, settings.broker_id, ignored, synced=synced)
        if log_dir.parent in dirs.failed:
            log_dir = dirs.working[0] / log_dir.name
        self._state_log_dir = log_dir
        try:
            self._logs = LogDirectories(dirs.working, _log_config(settings), dirs.path_of)
            self._unopened = self._logs.recover(replica.key for replica in dirs.found)
            self._state_log = StateLogWriter(log_dir, "broker", settings.broker_id)
        except OSError as error:
            dirs.close()
            raise StorageFault(f"state log directory {log_dir} cannot be used: {error}") from error
        except BaseException:
            dirs.close()
            raise
        self._bridge = RoleBridge()
        self._handlers = ControlHandlers(
            settings.broker_id,
            dirs,
            self._state_log,
            dirs.found,
            self._storage_lost,
            self._bridge,
        )
        self._handlers.replicas.directory_failed = bool(dirs.failed)
        self._data: DataPlane | None = None
        self._registrar: Registrar | None = None
        self._ended: asyncio.Future[None] | None = None
        self._stop_now = asyncio.Event()
        #: Set at the first registration: from then on control requests are meant for this process.
        self._registered = asyncio.Event()

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        loop = asyncio.get_running_loop()
        self._ended = ended = loop.create_future()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, self._on_stop_signal)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        store = ClusterStore(self._end)
        worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="control")
        data = self._data = DataPlane(
            self._settings,
            self._logs,
            self._data_dirs,
            self._handlers,
            store,
            worker,
            self._end_from_thread,
            self._tls,
        )
        server = BrokerServer(
            self._handlers,
            worker,
            data.methods(),
            self._end_from_thread,
            self._registered,
            Terms(store.controller_term),
            Guard(self._access, self._control_denied),
            self._tls,
        )
        warnings = asyncio.create_task(self._certificates.warn_daily())
        reason = "failed"
        try:
            self._report_start()
            self._bridge.connect(data)
            data.start()
            await self._serve(server, store)
            await ended
            reason = "told to stop"
            await self._controlled_shutdown(data, store)
        finally:
            _log.info("stopping", reason=reason)
            warnings.cancel()
            await data.stop_following()
            # Deregister first: the controller must elect new leaders before we refuse clients.
            if self._registrar is not None:
                await asyncio.to_thread(self._registrar.stop, _DEREGISTER_TIMEOUT_S)
            await store.close()
            await data.stop()
            await server.stop(_STOP_GRACE_S)
            # Not on the loop: a request that is running on the worker may wait for the loop.
            await asyncio.to_thread(worker.shutdown, True)
            self._close_logs(data)
            self._handlers.lifecycle("stopped", "Shutdown", reason)
            await asyncio.to_thread(self._state_log.close, _STATE_LOG_CLOSE_TIMEOUT_S)
            self._data_dirs.close()

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
                self._data_dirs.incarnation,
                settings.supported_features,
                tuple(self._data_dirs.ids.values()),
                self._data_dirs.previous_broker_epoch,
                self._data_dirs.cluster_id,
            ),
            settings.zookeeper,
            Timeouts(settings.session_timeout_ms, settings.connection_timeout_ms),
            self._registered_from_thread,
            self._end_from_thread,
            store.session,
            self._zookeeper_access,
            self._joined,
        )
        self._registrar.start()
        if self._unopened or self._data_dirs.failed:
            self._registrar.storage_lost()

    async def _controlled_shutdown(self, data: DataPlane, store: ClusterStore) -> None:
        """Move leadership to other brokers while this one still serves (reference, section 6)."""
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
            stop_now=self._stop_now,
            timeout_s=_CONTROLLED_SHUTDOWN_TIMEOUT_S,
        )

    def _close_logs(self, data: DataPlane) -> None:
        closed = data.close_logs()
        flushed = [path for path, error in closed.items() if error is None]
        errors = [error for error in closed.values() if error is not None]
        try:
            self._data_dirs.stopped_cleanly(flushed, self._handlers.gate.broker_epoch)
        except OSError as error:
            errors.append(error)
        for problem in errors:
            _log.error("logs not closed cleanly: the next start recovers them", why=str(problem))

    def _report_start(self) -> None:
        dirs = self._data_dirs
        found = len(dirs.found)
        for why in dirs.failed.values():
            _log.error("data directory failed: its replicas are offline", reason=why)
        for path, problem in dirs.problems:
            _log.warning("entry of the data directory skipped", path=path, problem=problem)
        for problem in self._logs.problems:
            _log.warning("log recovered", problem=problem)
        for (topic, partition), why in self._unopened.items():
            _log.error(
                "log cannot be used: the replica is offline", topic=topic, partition=partition, why=why
            )
        for name in unknown_variables(os.environ):
            _log.warning("unknown setting in the environment", name=name)
        warn_if_open(self._access.openness)
        _log.info("started", data_dirs=[str(path) for path in dirs.working], partitions_found=found)
        self._handlers.lifecycle("started", "Startup", f"{found} partitions found on the disk")

    def _control_denied(self, method: str, principal: Principal) -> None:
        self._handlers.control_denied(method, str(principal), principal.host)

    def _storage_lost(self, why: str) -> None:
        if self._registrar is not None:
            self._registrar.storage_lost()
        if not self._data_dirs.working:
            assert self._ended is not None
            loop, error = self._ended.get_loop(), StorageFault(f"no data directory works any more: {why}")
            loop.call_soon_threadsafe(loop.call_later, _TELLING_S, self._end, error)

    def _on_stop_signal(self) -> None:
        """The first signal stops the broker; a second one also cancels the controlled shutdown."""
        if self._ended is not None and self._ended.done():
            self._stop_now.set()
        self._end(None)

    def _reload(self) -> None:
        """SIGHUP: read files again. Settings stay as they are: they come from flags and the environment."""
        outcome = self.reloads.reload()
        for name, error in outcome:
            if error is not None:
                _log.error("not reloaded", name=name, error=str(error))
        _log.info("reloaded", names=[name for name, error in outcome if error is None])

    def _end(self, error: BaseException | None) -> None:
        """End ``run``. Only the first call has an effect."""
        if self._ended is None or self._ended.done():
            return
        if error is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(error)

    def _joined(self, cluster_id: str) -> None:
        """On the registrar's thread."""
        for error in self._data_dirs.join(cluster_id):
            _log.error("cluster.id not written: the next start tries again", why=str(error))

    def _registered_from_thread(self, broker_epoch: int) -> None:
        self._handlers.registered(broker_epoch)
        assert self._ended is not None
        self._ended.get_loop().call_soon_threadsafe(self._registered.set)

    def _end_from_thread(self, error: BaseException) -> None:
        assert self._ended is not None
        self._ended.get_loop().call_soon_threadsafe(self._end, error)

    def dump(self, error: BaseException) -> Path:
        """Write the traceback and the broker's state to a file. Returns its path."""
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        path = self._state_log_dir / f"crash-{stamp}.txt"
        data = self._data.describe() if self._data is not None else {}
        state = json.dumps({**self._handlers.describe(), **data}, indent=1)
        path.write_text("".join(traceback.format_exception(error)) + "\n" + state + "\n")
        return path


def _access(settings: Settings) -> Access:
    """Who asks and what they may. Raises SettingError."""
    host, _ = settings.listen
    try:
        return access_of(settings, [Listener("listen", host, settings.tls_files is not None)])
    except FileSettingError as error:
        raise SettingError(error.key, error.value, error.allowed) from None


def _log_config(settings: Settings) -> LogConfig:
    return LogConfig(
        segment_bytes=settings.log_segment_bytes,
        message_max_bytes=settings.message_max_bytes,
        flush_interval_messages=settings.log_flush_interval_messages,
    )


def run(settings: Settings) -> int:
    """Run a broker until it ends. Returns the exit code: 0 after a signal, that of a BrokerError, 1 for a bug."""
    configure_logging(settings.log_level, settings.log_format, broker=settings.broker_id)
    # The registrar logs lost connections itself.
    logging.getLogger("kazoo").setLevel(logging.ERROR)
    # Until the handler is there, and after it.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
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
