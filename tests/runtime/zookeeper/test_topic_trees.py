"""The paths of topics to be deleted, by a session that knows only children and nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from controller.runtime.zookeeper import jute, topic_trees
from controller.runtime.zookeeper.jute import Node
from controller.runtime.zookeeper.session import NoNodeError


class Znodes:
    """``children`` by path; what is not there has none."""

    def __init__(self, children: Mapping[str, Sequence[str]], nodes: Sequence[str] = ()) -> None:
        self._children, self._nodes = children, nodes

    async def children(self, path: str) -> list[str]:
        if path not in self._children:
            raise NoNodeError(path)
        return list(self._children[path])

    async def bulk_get(self, paths: Sequence[str]) -> list[Node | int]:
        return [Node(b"", 1, 0) if path in self._nodes else jute.NO_NODE for path in paths]


async def test_each_topic_is_looked_at_once_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_trees, "_TOGETHER", 2)
    names = ["a", "b", "c", "d", "e"]
    session: Any = Znodes({f"/brokers/topics/{n}": [] for n in "bd"}, ["/config/topics/e"])
    found = await topic_trees.topic_trees(session, names, {"a": [0], "e": []}, thorough=False)
    assert found == [
        [
            "/brokers/topics/a/partitions/0/state",
            "/brokers/topics/a/partitions/0",
            "/brokers/topics/a/partitions",
            "/brokers/topics/a",
        ],
        ["/brokers/topics/b"],
        [],
        ["/brokers/topics/d"],
        ["/brokers/topics/e/partitions", "/brokers/topics/e", "/config/topics/e"],
    ]


async def test_partitions_that_vanish_meanwhile_have_nothing_below_them() -> None:
    session: Any = Znodes({"/brokers/topics/t": ["partitions"]})
    (found,) = await topic_trees.topic_trees(session, ["t"], {}, thorough=False)
    assert found == ["/brokers/topics/t/partitions", "/brokers/topics/t"]


@pytest.mark.parametrize("thorough", [False, True])
async def test_what_is_below_a_topic_comes_before_it(thorough: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_trees, "_TOGETHER", 1)
    topic = "/brokers/topics/t"
    children = {
        topic: ["partitions", "odd"],
        f"{topic}/odd": ["child"],
        f"{topic}/odd/child": [],
        f"{topic}/partitions": ["0", "1"],
        f"{topic}/partitions/0": ["state"],
        f"{topic}/partitions/0/state": [],
        f"{topic}/partitions/1": [],
    }
    session: Any = Znodes(children, [f"{topic}/partitions/0/state"])
    (found,) = await topic_trees.topic_trees(session, ["t"], {}, thorough=thorough)
    assert sorted(found) == sorted(children)
    for path in found:
        assert all(
            found.index(path) < found.index(above) for above in children if path.startswith(f"{above}/")
        )
