"""The systemd units say what they should, and systemd accepts them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

from broker_stub import settings as broker_settings
from broker_stub.cli import main as broker_stub
from controller.cli.main import main as partition_controller
from controller.exit_codes import EXIT_USAGE
from controller.runtime import config
from tests.support.paths import ROOT

DEPLOY = ROOT / "deploy"
SYSTEMD = DEPLOY / "systemd"
UNITS = ("partition-controller.service", "broker-stub@.service", "partition-controller-zookeeper.service")
TARGET_BIN = "/opt/partition-controller/bin/"
#: What every unit must have, whatever the daemon: what `systemd-analyze security` asks for.
HARDENED = {
    **dict.fromkeys(
        re.findall(
            r"\w+",
            "LockPersonality NoNewPrivileges PrivateDevices PrivateMounts PrivateTmp PrivateUsers ProtectClock"
            " ProtectControlGroups ProtectHome ProtectHostname ProtectKernelLogs ProtectKernelModules"
            " ProtectKernelTunables RemoveIPC RestrictNamespaces RestrictRealtime RestrictSUIDSGID",
        ),
        "yes",
    ),
    "AmbientCapabilities": "",
    "CapabilityBoundingSet": "",
    "KeyringMode": "private",
    "ProtectProc": "invisible",
    "ProtectSystem": "strict",
    "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX",
    "SystemCallArchitectures": "native",
    "SystemCallErrorNumber": "EPERM",
    "LimitCORE": "0",
    "UMask": "0027",
    "StateDirectoryMode": "0750",
    # docs/deploy.md: after a failure, 2 s later, at most 10 times in 5 minutes.
    "Restart": "on-failure",
    "RestartSec": "2",
    "StartLimitBurst": "10",
    "StartLimitIntervalSec": "300",
    # SIGTERM to the daemon, SIGKILL to all that is left.
    "KillMode": "mixed",
    "WantedBy": "multi-user.target",
}
#: Java compiles at run time, and reads /proc/meminfo.
NOT_JAVA = {
    "MemoryDenyWriteExecute": "yes",
    "ProcSubset": "pid",
    "LogsDirectoryMode": "0750",
    "Wants": "network-online.target",
    "After": "network-online.target partition-controller-zookeeper.service",
    "RestartPreventExitStatus": str(EXIT_USAGE),
    # docs/deploy.md: at most 60 s.
    "TimeoutStopSec": "60",
}
#: Seconds the daemons may need at the end: 18 for a session timeout (15 for the broker's), 30 for the log.
STOP_S_MIN = 48
#: What systemd gives a unit below /var/lib, as it writes that in its files.
STATE_ROOTS = ("%S", "/var/lib")
EXPOSURE_MAX = 2.0


def directives(unit: str) -> dict[str, list[str]]:
    """All values of each directive of a unit, in order."""
    values: dict[str, list[str]] = {}
    for line in (SYSTEMD / unit).read_text().splitlines():
        if line and line[0] not in "#[":
            name, equals, value = line.partition("=")
            assert equals, f"{unit}: {line!r} is no directive"
            values.setdefault(name, []).append(value)
    return values


@pytest.mark.parametrize("unit", UNITS)
def test_every_unit_is_sandboxed_and_limited(unit: str) -> None:
    found = directives(unit)
    expected = HARDENED if "zookeeper" in unit else HARDENED | NOT_JAVA
    assert {name: found.get(name, ["absent"])[-1] for name in expected} == expected
    privileged = "~@privileged" if "zookeeper" in unit else "~@privileged @resources"
    assert found["SystemCallFilter"] == ["@system-service", privileged]
    assert {"MemoryMax", "TasksMax", "LimitNOFILE"} <= set(found)
    home = found["StateDirectory"][0]
    assert found["WorkingDirectory"][0] in [f"{root}/{home}" for root in STATE_ROOTS]
    assert "PYTHONUNBUFFERED=1" in found["Environment"][-1].split()
    users = re.findall(r"^u (\S+)", (SYSTEMD / "partition-controller.sysusers").read_text(), re.MULTILINE)
    assert found["User"][0] in users


def test_the_controller_is_supervised_by_its_own_word() -> None:
    found = directives("partition-controller.service")
    assert (found["Type"], found["NotifyAccess"]) == (["notify"], ["main"])
    assert int(found["WatchdogSec"][0]) == 30
    assert int(found["TimeoutStopSec"][0]) >= STOP_S_MIN
    assert int(directives("broker-stub@.service")["TimeoutStopSec"][0]) >= STOP_S_MIN
    assert found["EnvironmentFile"] == ["-/etc/partition-controller/env"]
    assert directives("broker-stub@.service")["EnvironmentFile"] == [
        "-/etc/partition-controller/broker-%i.env"
    ]
    assert directives("broker-stub@.service")["Type"] == ["exec"]
    for unit in ("partition-controller.service", "broker-stub@.service"):
        assert directives(unit)["ExecReload"] == ["/bin/kill -HUP $MAINPID"]


@pytest.mark.parametrize("unit", UNITS)
def test_the_commands_exist_with_these_options(unit: str) -> None:
    groups: dict[str, click.Group] = {
        "partition-controller": partition_controller,
        "broker-stub": broker_stub,
    }
    found = directives(unit)
    for line in [*found["ExecStart"], *found.get("ExecStartPre", [])]:
        program, command, *options = line.split()
        assert program.startswith(TARGET_BIN)
        group = groups[program.removeprefix(TARGET_BIN)]
        found_command = group.get_command(click.Context(group), command)
        assert found_command is not None
        found_command.make_context(command, options)


def test_a_broker_s_settings_are_those_of_its_instance() -> None:
    text = " ".join(directives("broker-stub@.service")["Environment"])
    given = dict(part.split("=", 1) for part in text.split() if part.startswith("BROKER_STUB_"))
    roots = {"%i": "7", "%S": "/var/lib", "%L": "/var/log"}
    for name, value in roots.items():
        given = {key: text.replace(name, value) for key, text in given.items()}
    loaded = broker_settings.load({}, given)
    assert (loaded.broker_id, loaded.zookeeper, loaded.listen) == (7, "127.0.0.1:2181", ("127.0.0.1", 0))
    (server,) = directives("partition-controller-zookeeper.service")["ExecStart"]
    assert f"--port {loaded.zookeeper.rpartition(':')[2]} " in server
    assert config.Settings().zookeeper == loaded.zookeeper
    assert (str(loaded.data_dir), str(loaded.state_log_dir)) == (
        "/var/lib/broker-stub/7",
        "/var/log/broker-stub/7",
    )


def test_the_example_holds_every_setting_and_its_default() -> None:
    """Taking every # off changes nothing but where the log goes."""
    text = (SYSTEMD / "controller.toml").read_text()
    shown = tomllib.loads(re.sub(r"^# (\w+ = .+)$", r"\1", text, flags=re.MULTILINE))
    expected = {
        setting.name: str(setting.default) if isinstance(setting.default, Path) else setting.default
        for setting in config.SETTINGS
    }
    expected["state_log_dir"] = shown["state_log_dir"]
    assert shown == expected, "add what is missing to deploy/systemd/controller.toml, as '# name = default'"
    active = config.load({}, SYSTEMD / "controller.toml", {})
    logs = directives("partition-controller.service")["LogsDirectory"][0]
    assert active == config.Settings(state_log_dir=Path("/var/log") / logs)


@pytest.fixture
def installed(tmp_path: Path) -> list[Path]:
    """The units as if installed here: their programs are those of this interpreter."""
    copies = []
    for unit in UNITS:
        copy = tmp_path / unit.replace("@.", "@1.")
        text = (SYSTEMD / unit).read_text()
        copy.write_text(text.replace(TARGET_BIN, f"{Path(sys.executable).parent}/"))
        copies.append(copy)
    return copies


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None,
    reason="systemd-analyze is not here; the tests above have checked the directives by parsing",
)
def test_systemd_accepts_the_units(installed: list[Path]) -> None:
    done = subprocess.run(["systemd-analyze", "verify", *installed], capture_output=True, text=True)
    ours = [line for line in done.stderr.splitlines() if any(unit.name in line for unit in installed)]
    assert (done.returncode, ours) == (0, [])
    for unit in installed:
        done = subprocess.run(
            ["systemd-analyze", "security", "--offline=true", unit], capture_output=True, text=True
        )
        exposure = re.search(r"exposure level for \S+: ([\d.]+)", done.stdout)
        assert exposure is not None, done.stderr
        assert float(exposure[1]) <= EXPOSURE_MAX, done.stdout
