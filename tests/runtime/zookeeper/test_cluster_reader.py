"""What an operator's tool makes of the cluster as it read it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from controller.runtime.zookeeper import cluster_reader, codecs, jute
from controller.runtime.zookeeper.cluster_reader import ClusterState, ControllerInfo, PartitionInfo
from controller.runtime.zookeeper.session import NoNodeError
from tests.support.core.world import a_broker, state


def test_who_is_in_sync_beside_the_assignment_stands_for_no_replica() -> None:
    """As while a partition is being moved."""
    assert PartitionInfo("t", 0, (1, 2), state(1, [1, 3], 5, 7)).under_replicated()
    assert not PartitionInfo("t", 0, (1, 2), state(1, [1, 2, 3], 5, 7)).under_replicated()


def test_a_topic_s_own_setting_comes_before_the_brokers_default() -> None:
    found = ClusterState(
        configs={"t": {"min.insync.replicas": "1"}, "u": {"min.insync.replicas": "many"}},
        broker_defaults={"min.insync.replicas": "2"},
    )
    assert [found.min_isr(topic) for topic in ("t", "u", "v")] == [1, 2, 2]


@pytest.mark.parametrize(
    ("text", "counts"), [("2", 2), (" 2 ", 2), ("0", 3), ("-1", 3), ("", 3), ("\u0662", 3)]
)
def test_a_setting_that_is_no_number_from_1_on_says_nothing(text: str, counts: int) -> None:
    found = ClusterState(
        configs={"t": {"min.insync.replicas": text}}, broker_defaults={"min.insync.replicas": "3"}
    )
    assert found.min_isr("t") == counts


def test_a_cluster_that_was_there_once_is_not_none() -> None:
    assert ClusterState().empty
    controllers = [ControllerInfo(1, "h:1", "h:2", active=False)]
    for there in (
        {"controller_id": 0},
        {"controller_epoch": 0},
        {"controllers": controllers},
        {"deleting": ["t"]},
        {"problems": {"/feature": "odd"}},
    ):
        assert not ClusterState(**there).empty, there


def test_each_of_several_deletions_is_found() -> None:
    found = ClusterState(deleting=["a", "c", "e"])
    assert [found.is_deleting(name) for name in "abcdef"] == [True, False, True, False, True, False]


def test_who_has_replicas_and_is_not_registered_is_gone() -> None:
    partitions = [PartitionInfo("t", 0, (1, 3), None), PartitionInfo("t", 1, (4, 1), None)]
    assert ClusterState(partitions=partitions, brokers={1: a_broker(1, 1)}).gone == [3, 4]


async def test_a_short_session_ends_also_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []

    class Fake:
        def __init__(self, *args: object, access: object) -> None: ...

        async def start(self, timeout_s: float, *, create_chroot: bool) -> None:
            told.append((timeout_s, create_chroot))

        async def close(self) -> None:
            told.append("closed")

    monkeypatch.setattr(cluster_reader, "Session", Fake)
    with pytest.raises(ZeroDivisionError):
        async with cluster_reader.connected("h:1", 2000, create_chroot=False):
            raise ZeroDivisionError
    assert told == [(2.0, False), "closed"]


async def test_settings_are_told_apart_from_the_brokers_defaults() -> None:
    found: list[jute.Node | int] = [
        jute.Node(codecs.encode_config({"a": "1"}), 1, 0),
        jute.NO_NODE,
        jute.Node(b"oops", 1, 0),
        jute.NO_AUTH,
        jute.Node(codecs.encode_config({"b": "2"}), 1, 0),
    ]

    async def bulk_get(_: object) -> list[jute.Node | int]:
        return found

    session: Any = SimpleNamespace(bulk_get=bulk_get)
    configs, defaults, problems = await cluster_reader.read_configs(session, ["t", "u", "v", "w"])
    assert (configs, defaults) == ({"t": {"a": "1"}}, {"b": "2"})
    assert list(problems) == ["/config/topics/v", "/config/topics/w"]


async def test_deletions_are_found_whatever_order_zookeeper_names_them_in() -> None:
    async def absent(path: str) -> object:
        raise NoNodeError(path)

    async def children(path: str) -> list[str]:
        return ["c", "a", "b"] if path == "/admin/delete_topics" else []

    async def bulk_get(_: object) -> list[object]:
        return []

    session: Any = SimpleNamespace(get=absent, children=children, bulk_get=bulk_get)
    found = await cluster_reader.look(session)
    assert [found.is_deleting(name) for name in "abcd"] == [True, True, True, False]


@pytest.mark.parametrize(("epoch", "kraft"), [(-1, False), (0, True), (7, True)])
async def test_a_controller_of_kraft_is_known_by_its_epoch(epoch: int, kraft: bool) -> None:
    claim = b'{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":%d}' % epoch

    async def get(path: str) -> tuple[bytes, None]:
        if path != "/controller":
            raise NoNodeError(path)
        return claim, None

    async def children(_: str) -> list[str]:
        return []

    found = ClusterState()
    session: Any = SimpleNamespace(get=get, children=children)
    await cluster_reader._controllers(session, found)
    assert (found.controller_id, found.kraft) == (3000, kraft)
