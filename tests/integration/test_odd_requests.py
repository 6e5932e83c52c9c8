"""What an outside tool may write to the request znodes and below ``/brokers/topics``: however odd it is, the controller
goes on to hear the next request of each kind, and request nodes never stay for ever."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress

import pytest
from kazoo.exceptions import NoNodeError

from controller.core import znode_paths
from tests.support.cli.operator import Operator, operating

pytestmark = pytest.mark.slow

#: One line each; ``ok-0`` exists, with replicas 1 and 2.
REASSIGNMENTS = """
not json
[]
null
{}
{"version":1}
{"version":1,"partitions":null}
{"version":1,"partitions":[]}
{"version":1,"partitions":{}}
{"version":1,"partitions":[{"topic":"ok"}]}
{"version":1,"partitions":[{"topic":"ok","partition":0,"replicas":[]}]}
{"version":1,"partitions":[{"topic":"ok","partition":0,"replicas":[2,2]}]}
{"version":1,"partitions":[{"topic":"ok","partition":0,"replicas":[-1]}]}
{"version":1,"partitions":[{"topic":"ok","partition":0,"replicas":[1.5]}]}
{"version":1,"partitions":[{"topic":"ok","partition":0,"replicas":[99999999999999]}]}
{"version":1,"partitions":[{"topic":"ok","partition":-1,"replicas":[1]}]}
{"version":1,"partitions":[{"topic":"ok","partition":7,"replicas":[1]}]}
{"version":1,"partitions":[{"topic":"../x","partition":0,"replicas":[1]}]}
{"version":1,"partitions":[{"topic":"","partition":0,"replicas":[1]}]}
{"version":1,"partitions":[{"topic":"nosuch","partition":0,"replicas":[1]}]}
{"version":1,"partitions":[{"topic":"ok","partition":0,"replicas":[1,2]}]}
{"version":1,"partitions":[{"topic":"ok","partition":0,"replicas":[1,2],"log_dirs":["any","any"]}],"by":"us"}
""".strip().splitlines()
ELECTIONS = """
not json
[]
null
{}
{"version":1}
{"version":1,"partitions":[]}
{"version":1,"partitions":[{"topic":"ok"}]}
{"version":1,"partitions":[{"topic":"ok","partition":"0"}]}
{"version":1,"partitions":[{"topic":"ok","partition":7},{"topic":"nosuch","partition":0},{"topic":"","partition":0}]}
{"version":1,"partitions":[{"topic":"ok","partition":0},{"topic":"ok","partition":0}],"by":"us"}
{"partitions":[{"topic":"ok","partition":0,"more":1}]}
""".strip().splitlines()
#: Few of these can be a topic, and none a good one.
TOPICS = """
not json
[]
null
{}
{"version":1}
{"version":1,"partitions":{}}
{"version":1,"partitions":{"x":[1]}}
{"version":1,"partitions":{"-1":[1]}}
{"version":1,"partitions":{"0":[]}}
{"version":1,"partitions":{"0":[1,1]}}
{"version":1,"partitions":{"0":["1"]}}
{"version":1,"partitions":{"0":[77]}}
{"version":1,"partitions":{"3":[1]}}
{"version":9,"partitions":{"0":[1]}}
{"version":3,"topic_id":7,"partitions":{"0":[1]}}
{"version":3,"topic_id":"no id","partitions":{"0":[1]}}
{"version":3,"partitions":{"0":[1]},"adding_replicas":{"0":[9]},"removing_replicas":{"5":[1]}}
""".strip().splitlines()
DELETIONS = ("nosuch", "with spaces", "ünknown", "__x", "a" * 300)


@pytest.fixture(scope="module")
def operator(zookeeper_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    directory = tmp_path_factory.mktemp("hands")
    with operating(f"{zookeeper_server}/hands-{os.getpid()}", directory / "run", 2) as running:
        running.ok("topics", "create", "ok", "--replica-assignment=1:2")
        yield running


def gone(operator: Operator, path: str) -> None:
    operator.wait(lambda: operator.zk.exists(path) is None)


def request(operator: Operator, path: str, entries: list[dict[str, object]]) -> None:
    operator.zk.create(path, json.dumps({"version": 1, "partitions": entries}).encode())
    gone(operator, path)


def hears(operator: Operator) -> None:
    """A request of each kind is carried out, a topic is made and deleted."""
    for wanted in ([2, 1], [1, 2]):
        request(
            operator, znode_paths.REASSIGN_PARTITIONS, [{"topic": "ok", "partition": 0, "replicas": wanted}]
        )
        assert json.loads(operator.zk.get("/brokers/topics/ok")[0])["partitions"] == {"0": wanted}
        request(operator, znode_paths.PREFERRED_ELECTION, [{"topic": "ok", "partition": 0}])
        assert operator.state("ok", 0)["leader"] == wanted[0]
    made_and_deleted(operator, "probe")


def made_and_deleted(operator: Operator, name: str) -> None:
    path = f"/brokers/topics/{name}"
    operator.zk.create(path, b'{"version":1,"partitions":{"0":[2,1]}}')
    operator.wait(lambda: operator.zk.exists(f"{path}/partitions/0/state") is not None)
    operator.zk.create(f"/admin/delete_topics/{name}", b"")
    gone(operator, path)
    gone(operator, f"/admin/delete_topics/{name}")


@pytest.mark.parametrize("content", REASSIGNMENTS)
def test_odd_reassignments(operator: Operator, content: str) -> None:
    operator.zk.create(znode_paths.REASSIGN_PARTITIONS, content.encode())
    gone(operator, znode_paths.REASSIGN_PARTITIONS)
    hears(operator)


@pytest.mark.parametrize("content", ELECTIONS)
def test_odd_elections(operator: Operator, content: str) -> None:
    operator.zk.create(znode_paths.PREFERRED_ELECTION, content.encode())
    gone(operator, znode_paths.PREFERRED_ELECTION)
    hears(operator)


@pytest.mark.parametrize("name", DELETIONS)
def test_odd_deletions(operator: Operator, name: str) -> None:
    operator.zk.create(f"/admin/delete_topics/{name}", b"whatever")
    gone(operator, f"/admin/delete_topics/{name}")
    hears(operator)


@pytest.mark.parametrize("content", TOPICS)
def test_odd_topics(operator: Operator, content: str) -> None:
    """Also when it is to be deleted, which may have to wait, for a broker that never was, say: then people wipe the
    topic and the request by hand, and make it anew."""
    path, marker = "/brokers/topics/odd", "/admin/delete_topics/odd"
    operator.zk.create(path, content.encode())
    operator.zk.create(marker, b"")
    hears(operator)
    for wiped in (path, marker):
        with suppress(NoNodeError):
            operator.zk.delete(wiped, recursive=True)
    made_and_deleted(operator, "odd")
