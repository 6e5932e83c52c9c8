"""One broker process from start to end: opens the disk, serves, registers, and takes it all down again."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path

import structlog

from broker_stub.control.handlers import ControlHandlers
from broker_stub.errors import BrokerError, StorageFault
from broker_stub.registration import Identity, Registrar, Timeouts
from broker_stub.server import ControlServer
from broker_stub.settings import Settings, unknown_variables
from broker_stub.storage import DataDir
from proto.state_log import StateLogWriter

_log = structlog.get_logger("broker_stub.daemon")

_STOP_GRACE_S = 2.0
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
        """Open the data directory and the state-change log. Raises StorageFault or SettingError."""
        self._settings = settings
        ignored = [settings.state_log_dir.name] if settings.state_log_dir.parent == settings.data_dir else []
        self._data = DataDir(settings.data_dir, settings.broker_id, ignored)
        try:
            self._state_log = StateLogWriter(settings.state_log_dir, "broker", settings.broker_id)
        except OSError as error:
            self._data.close()
            raise StorageFault(
                f"state log directory {settings.state_log_dir} cannot be used: {error}"
            ) from error
        self._handlers = ControlHandlers(
            settings.broker_id, self._data, self._state_log, self._data.found, self._storage_lost
        )
        self._registrar: Registrar | None = None
        self._ended: asyncio.Future[None] | None = None

    async def run(self) -> None:
        """Serve until told to stop."""
        loop = asyncio.get_running_loop()
        self._ended = ended = loop.create_future()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, self._end, None)
        settings = self._settings
        server = ControlServer(self._handlers, self._end_from_thread)
        try:
            self._report_start()
            port = await server.start(settings.listen_host, settings.listen_port)
            _log.info("listening", host=settings.listen_host, port=port, advertised=settings.advertised_host)
            self._registrar = Registrar(
                Identity(settings.broker_id, settings.advertised_host, port, settings.rack),
                settings.zookeeper,
                Timeouts(settings.session_timeout_ms, settings.connection_timeout_ms),
                self._handlers.registered,
                self._end_from_thread,
            )
            self._registrar.start()
            await ended
        finally:
            reason = "told to stop" if ended.done() and ended.exception() is None else "failed"
            _log.info("stopping", reason=reason)
            # First of all the controller must learn that we go.
            if self._registrar is not None:
                await asyncio.to_thread(self._registrar.stop, _DEREGISTER_TIMEOUT_S)
            await server.stop(_STOP_GRACE_S)
            self._handlers.lifecycle("stopped", "Shutdown", reason)
            await asyncio.to_thread(self._state_log.close, _STATE_LOG_CLOSE_TIMEOUT_S)
            self._data.close()

    def _report_start(self) -> None:
        found = len(self._data.found)
        for path, problem in self._data.problems:
            _log.warning("skipped on the disk", path=path, problem=problem)
        for name in unknown_variables(os.environ):
            _log.warning("unknown setting in the environment", name=name)
        _log.info("started", data_dir=str(self._settings.data_dir), partitions_found=found)
        self._handlers.lifecycle("started", "Startup", f"{found} partitions found on the disk")

    def _storage_lost(self, _why: str) -> None:
        if self._registrar is not None:
            self._registrar.storage_lost()

    def _end(self, error: BaseException | None) -> None:
        """The one way to end: the first reason counts."""
        if self._ended is None or self._ended.done():
            return
        if error is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(error)

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
