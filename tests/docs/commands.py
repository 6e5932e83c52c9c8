"""``make commands``: run every verb of pctl on a playground, and write docs/commands.md of what they print."""

from __future__ import annotations

import os
import re
import signal
import tempfile
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import click

from tests.docs.test_readme import PLAYGROUND
from tests.support.paths import DOCS
from tests.support.runtime.programs import BIN, program, run_to_end

PAGE = DOCS / "commands.md"
LINES_MAX, WIDTH_MAX = 24, 150
WAIT_S = 150
#: In this order, one after the other: each finds what those before it have left. Each verb is here.
COMMANDS = """
cluster
health
brokers
controllers
controllers history
topics list
topics create audit --partitions 3 --replication-factor 2 --config min.insync.replicas=1
topics describe audit
topics alter audit --partitions 4 --yes
produce audit --partition 0 hello
consume audit --from-beginning --max-messages 1
partitions --topic audit
explain partition audit 0
explain broker 1
explain controller
explain reassignment audit 0
explain deletion audit
history --topic audit --partition 0
watch --topic audit --for 3
--timeout 60 wait --until stable
config set retention.ms=86400000 --topic audit --yes
config get --topic audit
config delete retention.ms --topic audit --yes
features describe
features upgrade --feature my.feature=2 --yes
features downgrade --feature my.feature=1 --yes
features disable --feature my.feature --yes
elect preferred --topic audit
elect leader 2 --topic payments
elect unclean --partition payments-3 --reason 'both disks are lost'
plan broker-loss 2
plan drain 2
plan preferred-election
plan rack-loss a
plan rolling-restart
stoppable 1
maintenance show
maintenance drain 3 --reason 'new disks' --yes
maintenance undrain 3 --yes
maintenance cancel-shutdown 3
maintenance enter --reason 'rack 2 is moved' --yes
maintenance leave --yes
maintenance pause --reason 'ZooKeeper is upgraded' --yes
maintenance resume --yes
freeze --reason 'black friday' --for 3d --yes
unfreeze --yes
quarantine list
quarantine release topic/payments --reason 'fixed in 1.2' --yes
reassign generate --topic audit --brokers 1,2,3 > plan.json; cat plan.json
reassign execute plan.json --yes
reassign list
reassign verify plan.json
reassign cancel --all --yes
brokers decommission 4 --reason 'old machine' --dry-run
brokers replace 4 3 --reason 'new machine' --dry-run
brokers swap 2 3 --reason 'racks were mixed up' --dry-run
brokers forget 9 --reason 'burned down' --yes
audit
controllers claim
controllers move 2 --reason 'kernel update of 1' --yes
controllers resign --reason 'kernel update' --yes
topics delete audit --reason 'not used since 2024' --yes
lake update run/run-*/state-logs --lake lake
timeout --preserve-status 25 pctl lake follow run/run-*/state-logs --lake lake
report run/run-*/state-logs --out report
man man
completion bash | head -3
"""


def verbs() -> dict[str, click.Command]:
    """By what is typed after ``pctl``."""
    (pctl,) = (entry.load() for entry in entry_points(group="console_scripts", name="pctl"))
    return dict(_below(pctl, ""))


def _below(group: click.Group, typed: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            if command.invoke_without_command:
                yield f"{typed}{name}", command
            yield from _below(command, f"{typed}{name} ")
        else:
            yield f"{typed}{name}", command


def commands() -> dict[str, str]:
    """The command line of each verb, in the order in which they are run."""
    found: dict[str, str] = {}
    known = sorted(verbs(), key=len)
    for line in COMMANDS.strip().splitlines():
        typed = line if "pctl " in line else f"pctl {line}"
        words = re.sub(r".*?pctl (--timeout 60 )?", "", typed, count=1)
        found[[verb for verb in known if re.match(rf"{verb}( |$)", words)][-1]] = typed
    return found


def shown(command: str, address: str, directory: Path) -> list[str]:
    """What it prints, on both streams, without the names of this run's directories."""
    environment = f'export PATH="{BIN}:$PATH" PCTL_ZOOKEEPER={address}\n'
    done = run_to_end(["bash", "-c", f"{environment}{{ {command}\n}} 2>&1"], directory, timeout_s=WAIT_S)
    lines = [line.rstrip()[:WIDTH_MAX] for line in done.stdout.replace(f"{directory}/", "").splitlines()]
    lines = [*lines[:LINES_MAX], "..."] if len(lines) > LINES_MAX else lines
    return lines if done.returncode == 0 else [*lines, f"# exit code {done.returncode}"]


def page(said: dict[str, tuple[str, list[str]]]) -> str:
    """``said``: command and lines by verb."""
    text = [
        "# Commands",
        "",
        "What each verb of `pctl` printed on a playground of this version, one after the other, each cut after "
        f"{LINES_MAX} lines; `--help` of each says the rest. `make commands` runs them again and writes this page.",
    ]
    for verb, command in sorted(verbs().items()):
        typed, lines = said[verb]
        words = command.get_short_help_str(200)
        text += ["", f"## pctl {verb}", "", words, "", "```", f"$ {typed}", *lines, "```"]
    return "\n".join(text) + "\n"


def main() -> None:
    said: dict[str, tuple[str, list[str]]] = {}
    with tempfile.TemporaryDirectory(prefix="commands-") as name:
        directory = Path(os.path.realpath(name))
        started = [str(BIN / "partition-controller"), *PLAYGROUND.split()[1:], "--data-dir=run"]
        with program(started, directory) as running:
            running.until(lambda: "(Ctrl-C ends the playground)" in running.said(), WAIT_S)
            address = re.search(r"--zookeeper (\S+) cluster", running.said())
            assert address is not None
            for verb, command in commands().items():
                said[verb] = command, shown(command, address[1], directory)
                print(f"{verb}: {len(said[verb][1])} lines", flush=True)
            running.process.send_signal(signal.SIGINT)
            assert running.process.wait(180) == 0, running.said()
    PAGE.write_text(page(said), encoding="utf-8")


if __name__ == "__main__":
    main()
