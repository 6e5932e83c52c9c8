"""A daemon's own log: structlog's, and what libraries log by ``logging``, one line each. What strangers can cause is no
flood."""

from __future__ import annotations

import logging
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TextIO, cast

import structlog

from proto.rate_limit import RateLimit
from proto.standard_streams import StandardError
from proto.texts import printable

#: Lines of one library's logger in a window.
LIBRARY_LINES_MAX = 10
#: Characters of a message, of an error.
TEXT_MAX = 500
#: Events that somebody can cause who may do nothing: of the controller, and of the broker.
_OF_STRANGERS = frozenset(
    {
        "authentication_failed",
        "denied",
        "excessive_request",
        "hung_up",
        "malformed_request",
        "not authenticated",
        "not_authenticated",
        "refused",
        "too_many_connections",
        "too_much_held",
    }
)

Emit = Callable[[int, Mapping[str, object]], None]


def configure_logging(level: str, style: str, **always: object) -> None:
    """Send a daemon's own log to stderr, by level "debug" to "error", as "json" or for people. ``always``: fields of
    every line; code binds others by structlog's context."""
    number = getattr(logging, level.upper())
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if style == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            lambda _logger, _method, event: {**always, **event},
            _limited(),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=cast(TextIO, StandardError())),
        cache_logger_on_first_use=False,
    )
    # aiohttp's, asyncio's, gRPC's and kazoo's.
    library = structlog.get_logger("library")
    logging.getLogger().handlers[:] = [
        LibraryLogs(lambda level, fields: library.log(level, "library", **fields))
    ]


def _limited() -> structlog.typing.Processor:
    """Of each event of strangers some lines; ``count``: for how many one stands."""
    limits: dict[str, RateLimit] = defaultdict(RateLimit)

    def limited(
        _logger: object, _method: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        if event["event"] in _OF_STRANGERS:
            count = limits[event["event"]].admit()
            if not count:
                raise structlog.DropEvent
            if count > 1:
                event["count"] = count
        return event

    return limited


class LibraryLogs(logging.Handler):
    """Passes on each record as fields: ``library``, ``message``, ``error`` if there is an exception, ``count`` if it
    stands for several.

    An exception is one line, its type and text: its traceback is of the library's code, and whoever sends a malformed
    request could fill a disk with it. ``emit_line``: takes the level, WARNING or ERROR, and the fields.
    """

    def __init__(self, emit_line: Emit, now_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__(logging.WARNING)
        self._emit_line = emit_line
        self._limits = defaultdict[str, RateLimit](lambda: RateLimit(LIBRARY_LINES_MAX, now_s))

    def emit(self, record: logging.LogRecord) -> None:
        count = self._limits[record.name].admit()
        if not count:
            return
        try:
            message = record.getMessage()
        except Exception as error:  # noqa: BLE001  (a library's own mistake is no reason to raise in it)
            message = f"{record.msg!r}: {error}"
        found: dict[str, object] = {"library": record.name, "message": one_line(message)}
        if record.exc_info and record.exc_info[1] is not None:
            raised = record.exc_info[1]
            found["error"] = one_line(f"{type(raised).__name__}: {raised}")
        if count > 1:
            found["count"] = count
        self._emit_line(logging.ERROR if record.levelno >= logging.ERROR else logging.WARNING, found)


def one_line(text: str) -> str:
    """The first line of a text, with control characters escaped, cut."""
    return printable(text.strip().partition("\n")[0][:TEXT_MAX])
