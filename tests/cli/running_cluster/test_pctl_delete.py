"""pctl topics delete on a running cluster."""

from __future__ import annotations

import pytest

from tests.support.cli.operator import Operator
from tests.support.cli.terminal import at_a_terminal

pytestmark = pytest.mark.slow


def exists(operator: Operator, name: str) -> bool:
    return bool(
        operator.zk.exists(f"/brokers/topics/{name}") or operator.zk.exists(f"/admin/delete_topics/{name}")
    )


def test_it_shows_what_there_is_deletes_and_waits(operator: Operator) -> None:
    for name in ("gone-a", "gone-b"):
        operator.ok("topics", "create", name, "--partitions=2", "--replication-factor=3")
    done = operator.ok(
        "--timeout=60", "-o", "json", "topics", "delete", "gone-a", "gone-b", "gone-a", "--yes"
    )
    assert '"topic": "gone-a"' in done.stdout
    assert '"replicas": 6' in done.stdout
    assert '"size": 0' in done.stdout
    assert "2 of 2 topics are deleted" in done.stderr
    assert not exists(operator, "gone-a")
    assert not exists(operator, "gone-b")
    assert not operator.zk.exists("/config/topics/gone-a")


def test_without_a_yes_and_a_terminal_nothing_happens(operator: Operator) -> None:
    operator.ok("topics", "create", "kept")
    refused = operator.run("topics", "delete", "kept")
    assert refused.exit_code == 2
    assert "use --yes; nothing was changed" in refused.stderr
    assert not operator.zk.exists("/admin/delete_topics/kept")


def test_a_person_is_asked(operator: Operator) -> None:
    operator.ok("topics", "create", "asked")
    code, said = at_a_terminal(operator.cluster.connect, "n", "topics", "delete", "asked")
    assert (code, "Delete 1 topic with all records?" in said) == (3, True), said
    assert "nothing was changed" in said
    assert not operator.zk.exists("/admin/delete_topics/asked")
    code, said = at_a_terminal(operator.cluster.connect, "y", "--timeout=60", "topics", "delete", "asked")
    assert (code, "1 of 1 topics are deleted" in said) == (0, True), said
    assert not exists(operator, "asked")


def test_dry_run_prints_the_writes_and_changes_nothing(operator: Operator) -> None:
    operator.ok("topics", "create", "drydelete")
    tried = operator.json("topics", "delete", "drydelete", "--dry-run")
    first, *_, last = tried["writes"]
    marker = "/admin/delete_topics/drydelete"
    assert (first["path"], first["new"], first["when"]) == (marker, "", "at once")
    assert (last["path"], last["new"], last["when"]) == (
        marker,
        None,
        "once brokers have deleted their replicas",
    )
    assert (tried["topics"][0]["topic"], tried["notes"]) == ("drydelete", [])
    assert not operator.zk.exists("/admin/delete_topics/drydelete")


def test_unknown_topics_stop_it_before_anything_is_asked(operator: Operator) -> None:
    operator.ok("topics", "create", "known")
    for name in ("nope", "a/b", ""):
        failed = operator.run("topics", "delete", "known", name, "--yes")
        assert failed.exit_code == 1
        assert f"no topic {name!r}" in failed.stderr
    assert not operator.zk.exists("/admin/delete_topics/known")


def test_what_holds_it_up_is_said(operator: Operator) -> None:
    operator.ok("topics", "create", "heldup", "--replica-assignment=98", "--no-wait")
    operator.ok("topics", "delete", "heldup", "--yes", "--no-wait")
    failed = operator.run("--timeout=3", "topics", "delete", "heldup", "--yes")
    assert failed.exit_code == 1
    assert (
        "1 of 1 topics are still there (heldup: replica 98 of heldup-0: its broker or disk is not online"
        in failed.stderr
    )
    assert "1 replica left" in failed.stderr
    assert "continues in the background" in failed.stderr
