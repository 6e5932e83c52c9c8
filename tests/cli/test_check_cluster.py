"""``check-cluster`` on what ZooKeeper alone says; real brokers: tests/kafka."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest
from click.testing import CliRunner, Result
from kazoo.client import KazooClient

from controller.cli import check_cluster
from controller.cli.main import main
from controller.core.model import Broker, Endpoint
from controller.runtime.config import Settings
from controller.runtime.kafka import cluster_facts
from controller.runtime.kafka.cluster_check import BrokerFacts, ClusterFacts
from controller.runtime.zookeeper import cluster_reader
from tests.support.ports import free_port


def check(zookeeper: str, *arguments: str) -> Result:
    result = CliRunner().invoke(
        main,
        ["check-cluster", f"--zookeeper={zookeeper}", "--controller-id=9001", *arguments],
        env={"PARTITION_CONTROLLER_CONNECTION_TIMEOUT_MS": "2000"},
    )
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def put(zk: KazooClient, path: str, value: object, **options: Any) -> None:
    zk.create(path, json.dumps(value).encode(), makepath=True, **options)


@pytest.fixture
def brokers(zk: KazooClient) -> None:
    """Two registrations whose brokers do not answer, and a topic."""
    for id_ in (1, 2):
        port = free_port()
        registration = {
            "version": 5, "host": "127.0.0.1", "port": port, "jmx_port": -1, "timestamp": "1",
            "endpoints": [f"PLAINTEXT://127.0.0.1:{port}"], "rack": None, "features": {},
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
        }  # fmt: skip
        put(zk, f"/brokers/ids/{id_}", registration)
    put(
        zk,
        "/controller",
        {"version": 2, "brokerid": 1, "timestamp": "1", "kraftControllerEpoch": -1},
        ephemeral=True,
    )
    put(zk, "/controller_epoch", 7)
    put(zk, "/brokers/topics/t", {"version": 1, "partitions": {"0": [1, 2]}})
    state = {"version": 1, "leader": 2, "leader_epoch": 1, "controller_epoch": 7, "isr": [1, 2]}
    put(zk, "/brokers/topics/t/partitions/0/state", state)


@pytest.mark.usefixtures("brokers")
def test_unreachable_brokers_do_not_block(zookeeper: str) -> None:
    result = check(zookeeper)
    assert result.exit_code == 0
    assert "1 (controller)" in result.stdout
    assert result.stdout.count("was not asked") == 2
    assert "This cluster can be led." in result.stdout
    assert " ok " not in result.stdout
    assert "no sign of a migration" in check(zookeeper, "--details").stdout


@pytest.mark.usefixtures("brokers")
def test_json_has_brokers_findings_and_changes(zookeeper: str) -> None:
    answer = json.loads(check(zookeeper, "-o", "json").stdout)
    assert answer["can_be_led"] is True
    assert [(b["broker"], b["version"], b["controller"]) for b in answer["brokers"]] == [
        (1, None, True),
        (2, None, False),
    ]
    assert {c["what"]: c["now"] for c in answer["changes"]} == {
        "/controller": "broker 1",
        "/controller_epoch": "7",
        "/controllers/ids": "ours or absent",
        "live brokers in clients' metadata": "2",
        "topics without an id": "1",
        "leaders that are not preferred": "1",
    }
    assert set(answer["findings"][0]) == {"level", "check", "broker", "text"}


@pytest.mark.usefixtures("brokers")
def test_a_migration_blocks(zookeeper: str, zk: KazooClient) -> None:
    zk.set("/controller", b'{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":5}')
    result = check(zookeeper)
    assert result.exit_code == 3
    assert "a KRaft controller (epoch 5) holds /controller" in result.stdout
    assert "cannot be led with these settings: 1 blockers" in result.stdout


@pytest.mark.usefixtures("brokers")
def test_what_cannot_be_read_blocks(zookeeper: str, zk: KazooClient) -> None:
    zk.set("/brokers/ids/2", b"{")
    zk.set("/controller", b"nothing")
    result = check(zookeeper)
    assert result.exit_code == 3
    assert "/brokers/ids/2 cannot be read" in result.stdout
    assert "/controller cannot be read" in result.stdout


@pytest.mark.usefixtures("brokers")
def test_an_id_in_assignments_is_an_offline_brokers_unless_it_was_ours(
    zookeeper: str, zk: KazooClient
) -> None:
    put(zk, "/brokers/topics/u", {"version": 1, "partitions": {"0": [9001, 2]}})
    result = check(zookeeper)
    assert result.exit_code == 3
    assert "9001 is an offline broker's" in result.stdout
    zk.create("/controllers/kafka_ids/9001", makepath=True)
    assert check(zookeeper).exit_code == 0


def test_nothing_is_written_where_there_is_nothing(zookeeper: str, zk: KazooClient) -> None:
    result = check(zookeeper)
    assert result.exit_code == 3
    assert "no broker is registered" in result.stdout
    assert zk.get_children("/") == []


def test_a_chroot_that_is_not_there_is_not_made(zookeeper: str, zk: KazooClient) -> None:
    result = check(f"{zookeeper}/typo")
    assert result.exit_code == 1
    assert "partition-controller check-cluster:" in result.stderr
    assert zk.get_children("/") == []


@pytest.mark.parametrize("takeover", ["fallback", "exclusive"])
def test_only_a_takeover_for_ever_is_exclusive(takeover: Literal["fallback", "exclusive"]) -> None:
    settings = Settings(controller_id=9001, kafka_takeover=takeover)
    assert check_cluster._wanted(settings).exclusive is (takeover == "exclusive")


@pytest.mark.parametrize(("problems", "code"), [({}, 0), ({"/controller": "junk"}, 3)])
@pytest.mark.parametrize("style", ["table", "json"])
def test_a_cluster_that_cannot_be_led_ends_the_program_with_three(
    monkeypatch: pytest.MonkeyPatch, problems: dict[str, str], code: int, style: str
) -> None:
    async def facts(_: Settings) -> ClusterFacts:
        known = Broker(1, 1, (Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092),))
        return ClusterFacts([BrokerFacts(known, unreachable="away")], unreadable=problems)

    monkeypatch.setattr(check_cluster, "_facts", facts)
    assert check("h:1", "-o", style).exit_code == code


async def test_brokers_are_waited_for_as_long_as_zookeeper(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    @asynccontextmanager
    async def connected(_: str, timeout_ms: int, **__: Any) -> AsyncIterator[None]:
        waits.append(timeout_ms / 1000)
        yield

    async def same(facts: ClusterFacts, *_: Any) -> ClusterFacts:
        return facts

    monkeypatch.setattr(cluster_reader, "connected", connected)
    monkeypatch.setattr(cluster_facts, "read", lambda _: same(ClusterFacts([])))
    monkeypatch.setattr(cluster_facts, "asker", lambda *given: waits.append(given[-1]))
    monkeypatch.setattr(cluster_facts, "ask_all", same)
    await check_cluster._facts(Settings(controller_id=9001, connection_timeout_ms=2_500))
    assert waits == [2.5, 2.5]
