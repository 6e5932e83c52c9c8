"""A program that is started without standard streams, or whose log nobody takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from proto.standard_streams import BEHIND_MAX, StandardError, is_interactive
from tests.support.runtime.programs import environment

#: Runs a command, and writes what a file is called that is opened after it, what may be printed, and whether programs
#: that it starts have standard streams.
PROGRAM = """
import os, sys
from {module} import main
try:
    main(sys.argv[2:], standalone_mode=False)
except SystemExit:
    pass
with open(sys.argv[1], "w") as found:
    found.write(f"{{found.fileno() > 2}} {{sys.stdout.isatty()}} {{sys.stderr.isatty()}} {{sys.stdin}}")
    found.write(f" {{all(map(os.get_inheritable, range(3)))}}")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("controller.cli.pctl.main", ["completion", "bash"]),
        ("controller.cli.main", ["tokens", "remove", "nobody", "--file", "none"]),
        ("broker_stub.cli", ["dump-log", "."]),
    ],
)
def test_files_do_not_get_the_numbers_of_closed_streams(
    module: str, arguments: list[str], tmp_path: Path
) -> None:
    closed = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-c", PROGRAM.format(module=module)]
    subprocess.run([*closed, "found", *arguments], cwd=tmp_path, env=environment(), check=False)
    assert (tmp_path / "found").read_text() == "True False False None True"


def test_nobody_answers_where_standard_input_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert not is_interactive()


def test_what_standard_error_does_not_take_is_lost(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open("/dev/full", "w") as full, open(writer, "w") as unread, (tmp_path / "log").open("w+") as log:
        for stream in (full, unread, log):
            monkeypatch.setattr(sys, "stderr", stream)
            assert StandardError().write("said \udcff\n") == 7
        assert Path(log.name).read_text() == "said \\udcff\n"


def test_nothing_waits_for_a_reader_of_standard_error_that_does_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Lines wait for it, in order; what is too much is counted in their place."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    stream, lines = StandardError(), [f"{n} {'x' * n}\n" for n in range(2 * 2**10)]
    assert sum(map(len, lines)) > BEHIND_MAX + 2**20 * 7 // 8

    def logs(*texts: str) -> None:
        writing = threading.Thread(target=lambda: [stream.write(text) for text in texts], daemon=True)
        writing.start()
        writing.join(60)
        assert not writing.is_alive()

    with open(writer, "w") as unread:
        monkeypatch.setattr(sys, "stderr", unread)
        for _ in range(2):
            logs("", *lines[:700], "", *lines[700:])
            read = b""
            while (catching_up := stream._catching_up) is not None:
                with suppress(BlockingIOError):
                    read += os.read(reader, 2**20)
                catching_up.join(0)
            logs("read again\n")
            read += os.read(reader, 2**20)
            found = read.decode().splitlines(keepends=True)
            note = json.loads(found[-2])
            left_out = len(lines) - len(found[:-2])
            assert note == {"event": "log_lines_left_out", "level": "warning", "count": left_out}
            assert found == [*lines[:-left_out], found[-2], "read again\n"]
            assert sum(map(len, found)) > BEHIND_MAX
    os.close(reader)
