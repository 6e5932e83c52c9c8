"""Our programs, forked from a process that has imported them: to import takes most of the time of a start.

``python -m tests.support.runtime.forks FD`` is that process. What it forks is the child of whoever asked, and has
arguments, environment, folder and streams of its own; only its command line, as others see it, is that of the process.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import IO, NoReturn

import msgspec

from controller import child_processes
from proto.quick_imports import quick_imports
from tests.support.paths import ROOT

#: The module of each program, and what else it imports to run.
PROGRAMS: dict[str, tuple[str, ...]] = {
    "partition-controller": ("controller.cli.main", "controller.cli.run"),
    "broker-stub": ("broker_stub.cli",),
    "pctl": ("controller.cli.pctl.main", "controller.runtime.zookeeper.cluster_reader"),
}
#: Variables that the interpreter and its loader read before any module is imported begin so.
_READ_BEFORE = ("PYTHON", "LD_", "LC_", "LANG", "TZ")
_REQUEST_MAX = 1 << 17
_PR_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.005
_lock = threading.Lock()


class _Asked(msgspec.Struct):
    """``guarded``: a process group of its own, which ends with standard input (`child_processes.launch`)."""

    command: list[str]
    directory: str
    environment: dict[str, str]
    guarded: bool


class Forked:
    """As ``subprocess.Popen``."""

    def __init__(self, asked: _Asked, streams: Sequence[int], stdin: IO[bytes] | None = None) -> None:
        """``streams``: descriptors of standard input, output and error."""
        self.returncode: int | None = None
        self.stdin = stdin
        with _lock:
            to = _starter()
            _adopt(True)
            try:
                socket.send_fds(to, [msgspec.json.encode(asked)], streams)
                self.pid = int(to.recv(100))
            finally:
                _adopt(False)

    def poll(self) -> int | None:
        with _lock:
            if self.returncode is None:
                ended, status = os.waitpid(self.pid, os.WNOHANG)
                if ended:
                    self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            time.sleep(_POLL_S)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(
    command: Sequence[str], *, cwd: Path, env: Mapping[str, str], stdout: IO[bytes], stderr: IO[bytes]
) -> subprocess.Popen[bytes] | Forked:
    """As ``subprocess.Popen``; forked if it is one of ours."""
    if not _can_fork(command, env):
        return subprocess.Popen(command, cwd=cwd, env=env, stdout=stdout, stderr=stderr)
    with open(os.devnull, "rb") as stdin:
        asked = _Asked(list(command), str(cwd), dict(env), guarded=False)
        return Forked(asked, [stream.fileno() for stream in (stdin, stdout, stderr)])


def launch(
    command: Sequence[str],
    output: Path,
    environment: Mapping[str, str] | None = None,
    launcher: Sequence[str] = (),
) -> subprocess.Popen[bytes] | Forked:
    """As `child_processes.launch`; forked if it is one of ours."""
    environment = dict(os.environ) if environment is None else environment
    if launcher or not _can_fork(command, environment):
        return child_processes.launch(command, output, environment, launcher)
    ends, held = os.pipe()
    asked = _Asked(list(command), str(Path.cwd()), dict(environment), guarded=True)
    with output.open("ab") as out, open(ends, "rb") as guard:
        return Forked(asked, [guard.fileno(), out.fileno(), out.fileno()], open(held, "wb"))


def _can_fork(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    ours = _environment()
    read_before = {name: value for name, value in environment.items() if name.startswith(_READ_BEFORE)}
    program = Path(command[0])
    return (
        program.name in PROGRAMS
        and program.parent == Path(sys.executable).parent
        and all(ours.get(n) == v for n, v in read_before.items())
    )


@cache
def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


@cache
def _starter() -> socket.socket:
    """The process that forks, one for each process of tests; it ends with that one."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        running = subprocess.Popen(
            [sys.executable, "-m", __name__, str(its.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=[its.fileno()],
            cwd=ROOT,
            env=_environment(),
        )

    def end() -> None:
        ours.close()
        running.wait()

    atexit.register(end)
    return ours


def _adopt(on: bool) -> None:
    """Whether this process becomes the parent of grandchildren whose parent has ended."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


# --- in the process that forks ---------------------------------------------------------------------------


def _serve(socket_: socket.socket) -> None:
    before = set(os.environ)
    with quick_imports():
        for module in chain.from_iterable(PROGRAMS.values()):
            import_module(module)
    added = {name: value for name, value in os.environ.items() if name not in before}
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        request, streams, _, _ = socket.recv_fds(socket_, _REQUEST_MAX, 3)
        if not request:
            return
        told, tell = os.pipe()
        if not (between := os.fork()):
            if forked := os.fork():
                os.write(tell, str(forked).encode())
                os._exit(0)
            for fd in (told, tell, socket_.detach()):
                os.close(fd)
            asked = msgspec.json.decode(request, type=_Asked)
            os.environ.clear()
            os.environ.update({**added, **asked.environment})
            _become(asked, streams)
        # Once the one between has ended, whoever asked is the parent.
        os.waitpid(between, 0)
        socket_.send(os.read(told, 100))
        for fd in (told, tell, *streams):
            os.close(fd)


def _become(asked: _Asked, streams: list[int]) -> NoReturn:
    os.chdir(asked.directory)
    if asked.guarded:
        os.setsid()
        if not os.fork():
            os.closerange(0, streams[0])
            os.closerange(streams[0] + 1, 100)
            os.read(streams[0], 1)
            os.killpg(0, signal.SIGKILL)
        streams[0] = os.open(os.devnull, os.O_RDONLY)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, 100)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # By these click finds the program's name.
    sys.argv = asked.command
    sys.modules["__main__"].__package__ = None
    try:
        sys.exit(import_module(PROGRAMS[Path(asked.command[0]).name][0]).main())
    except SystemExit as end:
        if isinstance(end.code, int | None):
            _end(end.code or 0)
        raise


def _end(code: int) -> None:
    """As the interpreter ends, but what was imported is not taken apart, which took most of the time of a short
    program. Returns if standard output is gone: then it is the interpreter that says so."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as _socket:
        _serve(_socket)
