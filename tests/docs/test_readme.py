"""README's examples are run as they stand there, and print what it shows.

An example is a block fenced as ``console``: a line that begins with ``$ `` is a command, the lines below it are what it
prints, on both streams. Numbers may differ, and so may the width of columns; a line ``...`` stands for any lines.
Process ids and the address are those of the playground that README starts, translated to those of the one started
here. A comment ``# exit code N`` says how a command ends; without one it ends with 0.
"""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.playground.test_playground import assert_good_verdict, left_over
from tests.support.paths import ROOT
from tests.support.runtime.programs import BIN, Program, program, run_to_end

README = (ROOT / "README.md").read_text(encoding="utf-8")
PLAYGROUND = "partition-controller playground --script idle"
#: Asked again until the cluster is as README shows it: these only look.
LOOKS = re.compile(r"pctl (brokers|cluster|explain|partitions|plan|stoppable)\b")
WAIT_S = 30


class Example(NamedTuple):
    """``shown``: what README has below the command."""

    command: str
    shown: list[str]

    @property
    def exit_code(self) -> int:
        said = re.search(r"# exit code (\d)", self.command)
        return int(said[1]) if said else 0


def examples(text: str) -> list[Example]:
    found: list[Example] = []
    for block in re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        assert block.startswith("$ "), f"no command: {block}"
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append(Example(line.removeprefix("$ "), []))
            else:
                found[-1].shown.append(line)
    return found


def shape(line: str) -> str:
    """A line without its numbers: ids, times, addresses and lists of them are one."""
    # Told of only where there are any.
    line = re.sub(r"[,;] \d+ copies by retries", "", line)
    return " ".join(re.sub(r"\d+(?:(?:[.,:]|, )\d+)*", "#", line).split())


def fits(shown: list[str], said: list[str]) -> bool:
    """Whether lines said have the shapes of lines shown, in this order and with no others between them."""
    pattern = "".join(r"(?:.*\n)*?" if line == "..." else re.escape(shape(line) + "\n") for line in shown)
    return re.fullmatch(pattern, "".join(shape(line) + "\n" for line in said)) is not None


def difference(example: Example, said: str) -> str:
    return f"$ {example.command}\nREADME shows:\n" + "\n".join(example.shown) + f"\nit printed:\n{said}"


class Shell:
    """A person at a terminal: what was exported or sourced counts for later commands."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        #: As in a checkout.
        (directory / ".venv").symlink_to(BIN.parent)
        self.kept: list[str] = []
        #: What README's playground printed to what this one did.
        self.here: dict[str, str] = {}

    def run(self, example: Example) -> None:
        command = example.command
        for shown, here in self.here.items():
            command = re.sub(rf"(?<![\w.]){re.escape(shown)}(?!\w)", here, command)
        if command.startswith((". ", "export ")):
            self.kept.append(command)
        line = ["bash", "-c", "\n".join([*self.kept, f"{{ {command}\n}} 2>&1"])]
        deadline = time.monotonic() + (WAIT_S if LOOKS.match(example.command) else 0)
        while True:
            done = run_to_end(line, self.directory)
            if done.returncode == example.exit_code and fits(example.shown, done.stdout.splitlines()):
                return
            assert time.monotonic() < deadline, (
                f"exit code {done.returncode}; {difference(example, done.stdout)}"
            )
            time.sleep(0.5)

    def learn(self, playground: Example, running: Program) -> None:
        """Wait until the playground printed what README shows of it, and learn its processes and its address."""
        running.until(lambda: "(Ctrl-C ends the playground)" in running.said(), WAIT_S)
        said = running.said()
        assert fits(playground.shown, said.splitlines()), difference(playground, said)
        shown = "\n".join(playground.shown)
        processes = re.findall(r"(\S+ is process) \d", shown)
        for pattern in (r"--zookeeper (\S+) cluster", *(rf"{name} (\d+)" for name in processes)):
            theirs, ours = re.search(pattern, shown), re.search(pattern, said)
            assert theirs is not None
            assert ours is not None
            self.here[theirs[1]] = ours[1]


@pytest.mark.slow
def test_examples_by_hand(tmp_path: Path) -> None:
    by_hand = [example for example in examples(README) if not example.command.startswith("make ")]
    (at,) = (n for n, example in enumerate(by_hand) if example.command.startswith(PLAYGROUND))
    shell = Shell(tmp_path)
    for example in by_hand[:at]:
        shell.run(example)
    # No shell between: signals are for the playground itself.
    command = [str(BIN / "partition-controller"), *by_hand[at].command.split()[1:]]
    with program(command, tmp_path) as running:
        shell.learn(by_hand[at], running)
        try:
            for example in by_hand[at + 1 :]:
                shell.run(example)
        finally:
            running.process.send_signal(signal.SIGINT)
            ended = running.process.wait(120)
    assert ended == 0, running.said()
    assert "interrupted: the verdict follows" in running.said()
    assert "verdict: GOOD" in running.said()
    assert "Spark" not in running.said()
    assert left_over(tmp_path) == {}


@pytest.mark.slow
def test_the_story_of_make_run(tmp_path: Path) -> None:
    """All of it but Spark's part, which tests/analysis tests."""
    (story,) = (example for example in examples(README) if example.command == "make run")
    recipe = re.search(
        r"^run:.*\n\t\$\(BIN\)/(\S+) (.*)$",
        (ROOT / "Makefile").read_text(),
        re.MULTILINE,
    )
    assert recipe is not None
    done = run_to_end([str(BIN / recipe[1]), *recipe[2].split(), "--no-report"], tmp_path)
    assert left_over(tmp_path) == {}
    assert done.returncode == 0, done.stdout + done.stderr
    (spark,) = (n for n, line in enumerate(story.shown) if "Spark analyses" in line)
    assert fits(story.shown[:spark], done.stdout.splitlines()), difference(story, done.stdout)
    assert_good_verdict(done.stdout)


def test_the_convention() -> None:
    text = "```console\n$ a x  # exit code 3\n 1.2 s  b 1,2\n...\nc\n$ d\n```\n\n```\n$ not this\n```\n"
    first, second = examples(text)
    assert (first.exit_code, second.exit_code, second.shown) == (3, 0, [])
    assert fits(first.shown, ["3.44 s  b 7", "between", "c"])
    assert fits(first.shown, ["10 s b 1, 2, 3", "c"])
    assert not fits(first.shown, ["1.2 s  b 1,2", "c", "more"])
    assert not fits(first.shown, ["1.2 s  b none", "c"])
    assert not fits(first.shown, ["c"])


def test_directories_and_targets_that_readme_names_exist() -> None:
    (layout,) = re.findall(r"^## Layout\n+```\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    directories = [line.split()[0] for line in layout.splitlines()]
    assert directories
    assert [name for name in directories if not (ROOT / name).is_dir()] == []
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^|`|\$ )make ([a-z]+)", README, re.MULTILINE))
    assert len(named) > 10
    assert named <= targets
