"""What a fuzz target is, and how one input is tried: with its outcome, or with what is wrong.

An input is bytes, whoever made it: Hypothesis, atheris, a person with ``--input``. A target's ``check`` returns how
it was taken, and raises for whatever must not be: another exception than the code's own typed one, one whose message
is not clear, a value that is another one after encoding and decoding. The guard here adds hangs and memory.
"""

from __future__ import annotations

import re
import resource
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from random import Random
from typing import Any

import structlog
from hypothesis import strategies as st

from tests.provers.fuzz.mutation import mutate_bytes
from tests.support.paths import ROOT

#: For files: flushes cost nothing in memory.
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
#: An input may take so long, of this process's time and by the clock, seconds: far more than any that ends.
HANG_CPU_S, HANG_S = 20.0, 120.0
#: One input may not make the process grow by more, bytes; all are small.
GROWTH_MAX = 256 * 2**20
MESSAGE_CHARS_MAX = 1000
_CLEAR_REFS = Path("/proc/self/clear_refs")
#: An error that tells where in the data, or what is allowed.
_TELLS = re.compile(
    r"\bmust\b|Expected |missing required field|: missing$|\$|\(byte \d+\)|truncated|position \d+|not JSON"
    r"|nested too deeply|out of range|No such|\bat \d+:|trailing characters|unknown field"
)


class Outcome(Enum):
    VALID = "valid"
    REFUSED = "refused"


class UnclearError(AssertionError):
    """An error was refused as it should be, but does not say what is wrong with what."""


class HangError(BaseException):
    """Took far too long. No Exception: what catches those must not swallow it."""


class GrowthError(AssertionError):
    """Took far too much memory."""


def require_line(message: str, *names: str) -> None:
    """One printable line of bounded length that names these things."""
    if not message or len(message) > MESSAGE_CHARS_MAX:
        raise UnclearError(f"{len(message)} characters: {message[:200]!r}")
    if not message.isprintable():
        raise UnclearError(f"not one printable line: {message!r}")
    for name in names:
        if name not in message:
            raise UnclearError(f"does not name {name!r}: {message!r}")


def require_clear(message: str, *names: str) -> None:
    """A line that also tells where in the data something is wrong, or what is allowed."""
    require_line(message, *names)
    if not _TELLS.search(message):
        raise UnclearError(f"neither a place in the data nor what is allowed: {message!r}")


Mutate = Callable[[bytes, Random], bytes]


@dataclass(frozen=True)
class Target:
    """``seeds``: valid inputs. ``structured``: a strategy beyond bytes and mutated seeds. ``weight``: of all inputs of
    a long run, in relation to the others'. ``quick``: inputs of the short form."""

    name: str
    check: Callable[[bytes], Outcome]
    seeds: Sequence[bytes]
    mutate: Mutate = mutate_bytes
    structured: st.SearchStrategy[bytes] = field(default_factory=st.nothing)
    weight: int = 1
    quick: int = 200
    #: Lets go of what it keeps between inputs.
    end: Callable[[], None] = lambda: None

    def strategy(self) -> st.SearchStrategy[bytes]:
        mutated = st.builds(
            lambda seed, number: self.mutate(seed, Random(number)),
            st.sampled_from(list(self.seeds)),
            st.integers(0, 2**32),
        )
        return st.one_of(mutated, self.structured, st.binary(max_size=300))


@dataclass(frozen=True)
class Crash:
    """What an input did to a target; ``signature`` is the same for the same fault."""

    target: str
    data: bytes
    signature: str
    traceback: str

    def replay(self) -> str:
        return f"python -m tests.provers.fuzz --target {self.target} --input {self.data.hex() or '-'}"


@contextmanager
def guarded() -> Iterator[None]:
    """Raises HangError and GrowthError. Leaves the alarm alone where somebody else has set it."""

    def over(signum: int, frame: Any) -> None:
        del frame
        raise HangError(f"took more than {HANG_CPU_S:g} s ({signal.Signals(signum).name})")

    before = signal.signal(signal.SIGPROF, over)
    signal.setitimer(signal.ITIMER_PROF, HANG_CPU_S)
    ours = signal.getitimer(signal.ITIMER_REAL)[0] == 0
    if ours:
        before_alarm = signal.signal(signal.SIGALRM, over)
        signal.setitimer(signal.ITIMER_REAL, HANG_S)
    _forget_peak()
    peak = _peak_bytes()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        if ours:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before_alarm)
    if (growth := _peak_bytes() - peak) > GROWTH_MAX:
        raise GrowthError(f"needed {growth} bytes more")


def _forget_peak() -> None:
    """Begin the peak with what is held now: what went before must not hide this input's growth (proc(5)).

    Elsewhere than on Linux it does: then less growth is found, and none too much.
    """
    with suppress(FileNotFoundError, PermissionError):
        _CLEAR_REFS.write_text("5")


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def attempt(target: Target, data: bytes) -> Outcome | Crash:
    """Try one input."""
    try:
        with guarded():
            return target.check(data)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  (whatever it is, it is a finding)
        return Crash(target.name, data, signature(error), "".join(traceback.format_exception(error)))


def signature(error: BaseException) -> str:
    """Its kind, and the innermost place of the product's in its traceback (of the tests', where there is none)."""
    places = [
        (Path(frame.filename).relative_to(ROOT).as_posix(), frame.name)
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(ROOT) and ".venv" not in frame.filename
    ]
    of_product = [place for place in places if not place[0].startswith("tests/")]
    if isinstance(error, HangError):
        # Where it happened to be is chance.
        return f"HangError in {places[0][0] if places else '?'}"
    if isinstance(error, UnclearError):
        # The same words about other data are the same fault.
        return f"UnclearError: {re.sub(r'[^a-z ]+.*?(?= |$)', '#', str(error))[:80]}"
    file, function = (of_product or places or [("?", "?")])[-1]
    return f"{type(error).__name__} in {file}: {function}"


def shortest(target: Target, crash: Crash, tries_max: int = 400) -> Crash:
    """A shorter input with the same signature, as far as so many tries lead. A hang is left as it is."""
    if crash.signature.startswith("HangError"):
        return crash
    best, tries = crash, 0
    size = max(len(best.data) // 2, 1)
    while size and tries < tries_max:
        start = 0
        while start < len(best.data) and tries < tries_max:
            tries += 1
            tried = attempt(target, best.data[:start] + best.data[start + size :])
            if isinstance(tried, Crash) and tried.signature == crash.signature:
                best = tried
            else:
                start += size
        size //= 2
    return best


@contextmanager
def quiet() -> Iterator[None]:
    """Nothing is logged meanwhile: refusing a million inputs tells a million lines."""
    known = structlog.get_config()
    structlog.configure(
        processors=[_drop], logger_factory=structlog.ReturnLoggerFactory(), cache_logger_on_first_use=False
    )
    try:
        yield
    finally:
        structlog.configure(**known)


def _drop(logger: Any, method: str, event: Any) -> Any:
    raise structlog.DropEvent
