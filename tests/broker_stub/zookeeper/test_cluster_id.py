"""Which cluster a broker joins: on a real server, with a registrar and without."""

from __future__ import annotations

import json
import queue
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, NoNodeError

from broker_stub.errors import RegistrationFault
from broker_stub.zookeeper import registration
from broker_stub.zookeeper.cluster_id import make_cluster_id, read_cluster_id
from broker_stub.zookeeper.codecs import MalformedZnode
from broker_stub.zookeeper.registration import Identity, Registrar, Timeouts
from proto.incarnations import new_incarnation

PATH = "/cluster/id"
OURS = b'{"version":"1","id":"ours"}'


@pytest.fixture
def outside(zookeeper_server: str) -> Iterator[KazooClient]:
    """A client that is in no chroot, as a registrar's at its start."""
    client = KazooClient(zookeeper_server)
    client.start(20)
    yield client
    client.stop()
    client.close()


@pytest.fixture
def chroot(zookeeper: str) -> str:
    return "/" + zookeeper.partition("/")[2]


@pytest.fixture
def begin(zookeeper: str) -> Iterator[Callable[..., Any]]:
    """Starts a registrar; returns what it was told, in order: an error, or the cluster before the broker epoch."""
    begun: list[Registrar] = []

    def starter(cluster_id: str = "", connect: str = zookeeper) -> queue.SimpleQueue[Any]:
        told: queue.SimpleQueue[Any] = queue.SimpleQueue()
        identity = Identity(1, "h", 9092, None, new_incarnation(), cluster_id=cluster_id)
        registrar = Registrar(
            identity, connect, Timeouts(4000, 20_000), told.put, told.put, on_cluster=told.put
        )
        registrar.start()
        begun.append(registrar)
        return told

    yield starter
    for registrar in begun:
        registrar.stop(20)


def registered(zk: KazooClient) -> str:
    return str(json.loads(zk.get("/brokers/ids/1")[0])["cluster_id"])


def test_the_first_broker_names_the_cluster(begin: Callable[..., Any], zk: KazooClient) -> None:
    told = begin()
    cluster_id = told.get(timeout=60)
    assert len(cluster_id) == 22
    assert json.loads(zk.get(PATH)[0]) == {"version": "1", "id": cluster_id}
    assert told.get(timeout=60) == zk.exists("/brokers/ids/1").czxid
    assert registered(zk) == cluster_id


@pytest.mark.parametrize("known", ["", "ours"])
def test_a_broker_joins_the_cluster_that_is_there(
    begin: Callable[..., Any], zk: KazooClient, known: str
) -> None:
    zk.create(PATH, OURS, makepath=True)
    told = begin(known)
    assert told.get(timeout=60) == "ours"
    assert isinstance(told.get(timeout=60), int)
    assert registered(zk) == "ours"
    assert zk.get(PATH)[1].version == 0


def test_a_broker_of_another_cluster_changes_nothing(begin: Callable[..., Any], zk: KazooClient) -> None:
    zk.create(PATH, OURS, makepath=True)
    fault = begin("theirs").get(timeout=60)
    assert isinstance(fault, RegistrationFault)
    assert "belongs to cluster theirs" in str(fault)
    assert "holds cluster ours" in str(fault)
    assert zk.get_children("/") == ["cluster"]


def test_a_mistyped_chroot_is_not_made(
    begin: Callable[..., Any], zookeeper: str, outside: KazooClient, chroot: str
) -> None:
    fault = begin("ours", f"{zookeeper}-mistyped").get(timeout=60)
    assert f"{chroot}-mistyped of ZooKeeper holds no cluster" in str(fault)
    assert outside.exists(f"{chroot}-mistyped") is None


def test_a_cluster_that_lost_its_id_gets_it_back(begin: Callable[..., Any], zk: KazooClient) -> None:
    zk.create("/brokers/topics", makepath=True)
    told = begin("ours")
    assert told.get(timeout=60) == "ours"
    assert isinstance(told.get(timeout=60), int)
    assert zk.get(PATH)[0] == OURS


def test_a_connection_that_is_lost_meanwhile(
    begin: Callable[..., Any], zk: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client is in its chroot by then."""
    zk.create("/brokers/topics", makepath=True)
    lost = [ConnectionLoss()]

    def make(client: KazooClient, cluster_id: str, timeout_s: float) -> str:
        if lost:
            raise lost.pop()
        return make_cluster_id(client, cluster_id, timeout_s)

    monkeypatch.setattr(registration, "make_cluster_id", make)
    assert begin("ours").get(timeout=60) == "ours"
    assert zk.get(PATH)[0] == OURS


@pytest.mark.parametrize("known", ["", "ours"])
def test_what_cannot_be_read_proves_nothing(begin: Callable[..., Any], zk: KazooClient, known: str) -> None:
    zk.create(PATH, b"{", makepath=True)
    assert isinstance(begin(known).get(timeout=60), int)
    assert registered(zk) == known


def test_of_two_that_name_it_the_first_counts(zk: KazooClient) -> None:
    assert make_cluster_id(zk, "ours", 5.0) == "ours"
    assert make_cluster_id(zk, "theirs", 5.0) == "ours"


@pytest.mark.parametrize("content", [b"", b"{}", b'{"id":1}', b'{"id":""}', b'{"id":"a b"}', b"[" * 10_000])
def test_a_malformed_id_is_named(zk: KazooClient, outside: KazooClient, chroot: str, content: bytes) -> None:
    zk.create(PATH, content, makepath=True)
    with pytest.raises(MalformedZnode, match=PATH):
        read_cluster_id(outside, chroot, "ours", 5.0)


def test_it_is_found_by_who_is_in_the_chroot_already(zk: KazooClient, chroot: str) -> None:
    """As after a connection that was lost just then."""
    zk.create("/brokers/topics", makepath=True)
    assert read_cluster_id(zk, chroot, "ours", 5.0) == ""
    zk.create(PATH, OURS, makepath=True)
    assert read_cluster_id(zk, chroot, "ours", 5.0) == "ours"


def test_it_is_looked_for_under_the_chroot_alone(zk: KazooClient, outside: KazooClient, chroot: str) -> None:
    zk.create(PATH, OURS, makepath=True)
    assert read_cluster_id(outside, chroot, "", 5.0) == "ours"
    with pytest.raises(NoNodeError):
        outside.get(PATH)
    assert read_cluster_id(outside, "", "", 5.0) == ""
