"""A daemon's own log, and libraries' records in it: one line each, and not too many."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

from proto.logs import LIBRARY_LINES_MAX, LibraryLogs
from proto.rate_limit import STRANGERS_MAX, WINDOW_S

_PROGRAM = """
import logging
import structlog
from proto.logs import configure_logging
configure_logging("info", "json", broker=3)
log = structlog.get_logger()
log.debug("too low")
log.info("began", broker=4)
for number in range(150):
    log.warning("denied", peer=f"h:{number}")
    log.warning("malformed_request")
    log.info("forwarded", peer="h:1")
    log.info("of ours", number=number)
for _ in range(20):
    logging.getLogger("a.library").warning("of a stranger")
"""


def test_every_line_names_whose_it_is_and_floods_of_strangers_are_cut() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, check=True)
    began, *lines = map(json.loads, done.stderr.splitlines())
    events = Counter(line["event"] for line in lines)
    assert (events["denied"], events["malformed_request"]) == (STRANGERS_MAX, STRANGERS_MAX)
    assert events["forwarded"] == events["of ours"] == 150
    lines = [line for line in lines if "library" in line]
    assert (began["event"], began["level"], began["broker"]) == ("began", "info", 4)
    assert {(line["library"], line["level"], line["broker"]) for line in lines} == {
        ("a.library", "warning", 3)
    }
    assert len(lines) == LIBRARY_LINES_MAX


class Lines:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.got: list[dict[str, Any]] = []
        self.logger = logging.Logger("some.library")
        self.logger.addHandler(LibraryLogs(self.take, lambda: self.now_s))

    def take(self, level: int, fields: Mapping[str, object]) -> None:
        self.got.append({"level": level, **fields})


def test_an_exception_is_its_type_and_text() -> None:
    lines = Lines()
    try:
        raise ValueError("bad\nrequest \x1b[31m")
    except ValueError:
        lines.logger.exception("Error handling request\nfrom %s", "x")
    (line,) = lines.got
    assert line == {
        "level": logging.ERROR,
        "library": "some.library",
        "message": "Error handling request",
        "error": "ValueError: bad",
    }


def test_a_flood_is_counted() -> None:
    lines = Lines()
    for _ in range(LIBRARY_LINES_MAX + 7):
        lines.logger.warning("again")
    assert len(lines.got) == LIBRARY_LINES_MAX
    lines.now_s = WINDOW_S
    lines.logger.warning("later")
    assert [(line["message"], line["count"]) for line in lines.got[LIBRARY_LINES_MAX:]] == [("later", 8)]


def test_one_library_s_flood_hides_nothing_of_another() -> None:
    lines = Lines()
    other = logging.Logger("another.library")
    other.addHandler(lines.logger.handlers[0])
    other.warning("first")
    for _ in range(LIBRARY_LINES_MAX):
        lines.logger.warning("again")
    other.warning("heard")
    assert (lines.got[-1]["library"], lines.got[-1]["message"]) == ("another.library", "heard")


def test_a_record_that_cannot_be_formatted_and_one_below_warning() -> None:
    lines = Lines()
    lines.logger.info("nothing")
    lines.logger.warning("%d", "x")
    (line,) = lines.got
    assert line["message"].startswith("'%d': ")
