"""The process around the daemon: logging, signals, servers, systemd, exit codes."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path

import structlog

from controller.errors import ConfigError, ControllerError, EnvironmentFault
from controller.runtime import crash_files
from controller.runtime.config import SETTINGS, Settings, kafka_addresses, split_address
from controller.runtime.daemon import Daemon
from controller.runtime.http import server
from controller.runtime.http.server import start_http
from controller.runtime.kafka.security.setup import server_security
from controller.runtime.kafka_api.api_table import AUTHENTICATION_VERSIONS, SERVED_VERSIONS
from controller.runtime.kafka_api.call import Controller
from controller.runtime.kafka_api.server import KafkaServer
from controller.runtime.observe import loop_lag
from controller.runtime.observe.loop_lag import Rounds
from controller.runtime.rpc.server import start_server
from proto import incarnations
from proto.addresses import join_address
from proto.incarnations import Incarnation
from proto.logs import configure_logging
from proto.security.access import warn_if_open
from proto.settings import shown
from proto.standard_streams import UNWRITABLE

log = structlog.get_logger(__name__)

EXIT_OK, EXIT_BUG = 0, 70

#: Bytes of address space without which gRPC's threads cannot start: they would be tried for ever.
ADDRESS_SPACE_MIN = 512 * 2**20
#: Settings that SIGHUP applies; the others need a restart.
RELOADABLE = ("log_level", "log_format")


def notify_systemd(message: str) -> None:
    """Send a message to the service manager (sd_notify); do nothing outside systemd."""
    target = os.environ.get("NOTIFY_SOCKET")
    if not target:
        return
    address = "\0" + target[1:] if target.startswith("@") else target
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        # A manager that does not read must not block the event loop.
        sender.sendto(message.encode(), socket.MSG_DONTWAIT, address)


def _advertised(settings: Settings, listening: str) -> str:
    """The advertised host: the configured one, else the listen address, else (wildcard address) the host name."""
    if settings.advertised_host:
        return settings.advertised_host
    return socket.gethostname() if listening in ("0.0.0.0", "::") else listening  # noqa: S104  (compared, not bound)


async def _watchdog(daemon: Daemon) -> None:
    """Notify systemd's watchdog from the event loop, and only while events make progress."""
    micros = os.environ.get("WATCHDOG_USEC")
    interval_s = min(int(micros) / 1e6 / 3, 1.0) if micros else 1.0
    while os.environ.get("NOTIFY_SOCKET"):
        if not server.is_stuck(daemon):
            notify_systemd(f"WATCHDOG=1\nSTATUS={daemon.role.value}")
        await asyncio.sleep(interval_s)


def _event(daemon: Daemon) -> str:
    event = daemon.term.machine.current_event if daemon.term else None
    return event.kind.value if event else ""


async def _serve_kafka(daemon: Daemon, stack: AsyncExitStack) -> None:
    """Start the server of Kafka's protocol. Raises ConfigError when it cannot listen."""
    settings = daemon.settings
    served = {**SERVED_VERSIONS, **AUTHENTICATION_VERSIONS}
    server = KafkaServer(Controller(daemon, served), server_security(settings, daemon.read_node))
    stack.push_async_callback(server.stop)
    reached: dict[str, tuple[str, int]] = {}
    for listener, (host, port) in kafka_addresses(settings).items():
        try:
            actual = await server.start(host, port, listener)
        except OSError as error:
            raise ConfigError(
                "kafka_listen", settings.kafka_listen, f"an address to listen on ({error})"
            ) from None
        reached[listener] = settings.kafka_advertised_host or _advertised(settings, host), actual
    daemon.kafka_addresses = reached


def _claim_directory(directory: Path, stack: AsyncExitStack) -> Incarnation:
    """Lock it until the stack is closed. Raises InUseError, OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    stack.callback(os.close, incarnations.lock(directory))
    return incarnations.begin(directory)


def _reload(daemon: Daemon) -> None:
    """SIGHUP: read settings and files again; what is not valid stays as it was."""
    outcome = daemon.reloads.reload()
    for name, error in outcome:
        if error is not None:
            log.error("not_reloaded", name=name, error=str(error))
    log.info("reloaded", names=[name for name, error in outcome if error is None])


def _settings_again(daemon: Daemon, load: Callable[[], Settings]) -> None:
    """Apply what can be changed while the process runs. Raises ConfigError."""
    found = load()
    settings = daemon.settings
    changed = [row.name for row in SETTINGS if getattr(found, row.name) != getattr(settings, row.name)]
    applied = {name: getattr(found, name) for name in RELOADABLE if name in changed}
    daemon.settings = replace(settings, **applied)
    configure_logging(daemon.settings.log_level, daemon.settings.log_format)
    for name in changed:
        if name not in RELOADABLE:
            log.warning("setting_needs_restart", name=name, file_says=shown(getattr(found, name)))
    if applied:
        log.info("settings_changed", **applied)


def _daemon(settings: Settings, stack: AsyncExitStack) -> Daemon:
    """Raises ConfigError, EnvironmentFault."""
    try:
        return Daemon(settings, _claim_directory(settings.state_log_dir, stack))
    except incarnations.InUseError as error:
        allowed = f"a directory of this process alone ({error} uses it)"
        raise ConfigError("state_log_dir", str(settings.state_log_dir), allowed) from None
    except OSError as error:
        if error.errno in UNWRITABLE:
            # The setting is right: another start, once there is room, finds it so.
            raise EnvironmentFault(
                f"state_log_dir {settings.state_log_dir} cannot be written: {error}"
            ) from None
        raise ConfigError(
            "state_log_dir", str(settings.state_log_dir), f"a writable directory ({error})"
        ) from None


async def serve(settings: Settings, load: Callable[[], Settings], rounds: Rounds | None = None) -> int:
    """Run one controller until it is stopped; return the exit code. ``load``: reads the settings again, for SIGHUP;
    ``rounds``: the event loop's selector, if it measures pauses.

    Raises ConfigError when it cannot listen on an address or cannot write to the state log directory.
    """
    structlog.contextvars.bind_contextvars(controller_id=settings.controller_id)
    async with AsyncExitStack() as stack:
        daemon = _daemon(settings, stack)
        warn_if_open(daemon.openness)
        if rounds is not None:
            rounds.show(daemon.registry)
        stack.callback(daemon.state_log.close)
        if daemon.traces is not None:
            stack.callback(daemon.traces.close)
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, daemon.stop)
            stack.callback(loop.remove_signal_handler, signum)
        daemon.reloads.on_reload("settings", lambda: _settings_again(daemon, load))
        loop.add_signal_handler(signal.SIGHUP, _reload, daemon)
        grpc_host, grpc_port = split_address(settings.grpc_listen)
        http_host, http_port = split_address(settings.http_listen)
        try:
            server, grpc_port = await start_server(daemon, grpc_host, grpc_port)
            stack.push_async_callback(server.stop, 0.5)
        except OSError as error:
            raise ConfigError(
                "grpc_listen", settings.grpc_listen, f"an address to listen on ({error})"
            ) from None
        try:
            runner, http_port = await start_http(daemon, http_host, http_port)
            stack.push_async_callback(runner.cleanup)
        except OSError as error:
            raise ConfigError(
                "http_listen", settings.http_listen, f"an address to listen on ({error})"
            ) from None
        if settings.leads_kafka:
            await _serve_kafka(daemon, stack)
        daemon.grpc_endpoint = join_address(_advertised(settings, grpc_host), grpc_port)
        daemon.http_endpoint = join_address(_advertised(settings, http_host), http_port)
        log.info(
            "listening",
            grpc=daemon.grpc_endpoint,
            http=daemon.http_endpoint,
            kafka=", ".join(join_address(*address) for address in daemon.kafka_addresses.values()) or "off",
        )
        watchdog = asyncio.create_task(_watchdog(daemon), name="watchdog")
        stack.callback(watchdog.cancel)
        lag = asyncio.create_task(
            loop_lag.measure(daemon.metrics.loop, lambda: _event(daemon)), name="loop-lag"
        )
        stack.callback(lag.cancel)
        warnings = asyncio.create_task(daemon.certificates.warn_daily(), name="certificates")
        stack.callback(warnings.cancel)
        notify_systemd("READY=1")
        try:
            await daemon.run()
        except (ControllerError, asyncio.CancelledError):
            raise
        except BaseException as bug:  # top level: write a crash file and exit; systemd restarts the process
            path = crash_files.write(bug, settings, daemon.role.value, daemon.term)
            log.exception("bug", dump=path and str(path))
            return EXIT_BUG
        finally:
            notify_systemd("STOPPING=1")
    return EXIT_OK


def _require_address_space() -> None:
    """Raises EnvironmentFault when the process may not have enough memory to begin (``ulimit -v``)."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY and soft < ADDRESS_SPACE_MIN:
        raise EnvironmentFault(
            f"the memory limit (ulimit -v) is {soft // 2**20} MiB: must be at least {ADDRESS_SPACE_MIN // 2**20} MiB"
        )


def run(settings: Settings, load: Callable[[], Settings]) -> int:
    """``partition-controller run``. ``load``: as for ``serve``.

    Raises EnvironmentFault under ``python -O`` (the asserts must stay enabled), and when memory is too little.
    """
    if not __debug__:
        raise EnvironmentFault("python -O strips the assertions this controller relies on: run without it")
    _require_address_space()
    configure_logging(settings.log_level, settings.log_format)
    # Until the handler is there, and after it.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # A million long-lived objects make full garbage collections expensive, and the code creates few cycles: what a term
    # leaves is collected at its end. The others look at 15,000 objects at most: 100,000 were a pause of 50 ms.
    gc.set_threshold(5_000, 2, 15_000)
    # kazoo's thread waits up to this long for the loop's to let it pass an answer of ZooKeeper on (by default 5 ms:
    # after a broker's failure it then took half as long again until the last partition was led).
    sys.setswitchinterval(0.0005)
    rounds = Rounds()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(rounds)) as runner:
        return runner.run(serve(settings, load, rounds))
