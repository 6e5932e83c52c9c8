"""docs/tutorial.md: its commands are run as they stand there, on the playground that it starts."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from tests.docs.test_readme import PLAYGROUND, Shell, examples
from tests.support.paths import DOCS
from tests.support.runtime.programs import BIN, program

TUTORIAL = (DOCS / "tutorial.md").read_text(encoding="utf-8")
WAIT_S = 150


def test_it_has_commands_and_ends_with_a_game_day() -> None:
    assert len(examples(TUTORIAL)) >= 15
    assert "make setup" in TUTORIAL
    assert TUTORIAL.index(PLAYGROUND) < TUTORIAL.index("playground --script gameday")


@pytest.mark.long
@pytest.mark.slow
def test_its_commands_do_what_it_says(tmp_path: Path) -> None:
    with program([str(BIN / "partition-controller"), *PLAYGROUND.split()[1:]], tmp_path) as running:
        running.until(lambda: "(Ctrl-C ends the playground)" in running.said(), WAIT_S)
        address = re.search(r"--zookeeper (\S+) cluster", running.said())
        assert address is not None
        shell = Shell(tmp_path)
        shell.kept += [f'export PATH="{BIN}:$PATH"', f"export PCTL_ZOOKEEPER={address[1]}"]
        for example in examples(TUTORIAL):
            shell.run(example)
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(180) == 0, running.said()
    assert "verdict: GOOD" in running.said()
