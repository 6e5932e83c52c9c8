"""pctl --bootstrap: what brokers answer while ZooKeeper is out of reach; and the address of the last controller."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from controller.client import last_address
from tests.support.cli.operator import Operator, pctl
from tests.support.ports import free_port


@pytest.mark.slow
def test_brokers_answer_without_zookeeper(operator: Operator) -> None:
    operator.ok("topics", "create", "seen", "--replica-assignment=1:2,2:3")
    (one, *_) = operator.json("brokers")
    nowhere = f"127.0.0.1:{free_port()}"
    asked = f"--bootstrap={nowhere},{one['endpoint']}"
    found = pctl(nowhere, "-o", "json", asked, "partitions", "--topic=seen")
    assert found.exit_code == 0, found.output
    rows = json.loads(found.stdout)
    assert [(r["leader"], r["replicas"], sorted(r["isr"])) for r in rows] == [
        (1, [1, 2], [1, 2]),
        (2, [2, 3], [2, 3]),
    ]
    listed = json.loads(pctl(nowhere, "-o", "json", asked, "topics", "list").stdout)
    assert "seen" in {r["topic"] for r in listed}
    brokers = json.loads(pctl(nowhere, "-o", "json", asked, "brokers").stdout)
    assert [(b["broker"], b["state"]) for b in brokers] == [(1, "ready"), (2, "ready"), (3, "ready")]
    assert "no topic 'absent'" in pctl(nowhere, asked, "partitions", "--topic=absent").stderr
    silent = pctl(nowhere, f"--bootstrap={nowhere}", "brokers")
    assert (silent.exit_code, "no broker answered" in silent.stderr) == (1, True)
    operator.ok("topics", "delete", "seen", "--yes")


@pytest.mark.parametrize(
    "arguments",
    [("--bootstrap=here", "brokers"), ("--bootstrap=h:1", "health"), ("--bootstrap=h:1", "topics", "describe", "t"),
     ("--bootstrap=h:1", "partitions", "--unavailable")],
)  # fmt: skip
def test_what_brokers_cannot_answer_is_refused(arguments: tuple[str, ...]) -> None:
    result = pctl("127.0.0.1:1", *arguments)
    assert result.exit_code == 2
    assert "bootstrap" in result.stderr


@pytest.mark.slow
def test_the_last_controller_is_asked_without_zookeeper_and_only_as_long_as_it_answers(
    operator: Operator,
) -> None:
    assert operator.ok("explain", "controller").exit_code == 0
    endpoint = last_address.last(operator.cluster.connect)
    assert endpoint
    nowhere = f"127.0.0.1:{free_port()}/elsewhere"
    last_address.remember(nowhere, endpoint)
    assert "is active since" in pctl(nowhere, "explain", "controller").stdout
    last_address.remember(operator.cluster.connect, f"127.0.0.1:{free_port()}")
    assert "is active since" in operator.ok("explain", "controller").stdout
    assert last_address.last(operator.cluster.connect) == endpoint, "ZooKeeper said so"


def test_what_is_remembered_is_for_this_user_and_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert last_address.last("a:1/x") == ""
    last_address.remember("a:1/x", "h:1")
    assert (last_address.last("a:1/x"), last_address.last("a:1/y")) == ("h:1", "")
    assert (tmp_path / "partition-controller").stat().st_mode & 0o077 == 0
    (file,) = (tmp_path / "partition-controller").iterdir()
    with monkeypatch.context() as full_disk:
        full_disk.setattr(Path, "replace", _no_space)
        last_address.remember("a:1/x", "h:2")
    assert list((tmp_path / "partition-controller").iterdir()) == [file], "nothing half is left"
    assert last_address.last("a:1/x") == "h:1"
    file.write_bytes(b"\xff" * 10)
    assert last_address.last("a:1/x") == ""
    file.write_text("x" * 10_000)
    assert len(last_address.last("a:1/x")) <= 300


def _no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")
