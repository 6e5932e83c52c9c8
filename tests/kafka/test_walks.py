"""Random walks of our controller beside Kafka's own: a short one, and that what differs is seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controller.core import znode_paths
from tests.kafka.conftest import require
from tests.kafka.run_deviations import unexplained
from tests.kafka.walks import comparable, compared, walk

STATE = znode_paths.state_path("t", 0)
TOPIC = znode_paths.topic_path("t")


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.kafka_long
def test_both_controllers_do_the_same(tmp_path: Path) -> None:
    require("3.9.1")
    said: list[str] = []
    assert not walk(1, 15, tmp_path, said.append), "\n".join(said)
    assert len(said) == 15


def state(leader: int, isr: list[int], epoch: int) -> str:
    return f'{{"controller_epoch":E{epoch},"isr":{isr},"leader":{leader},"leader_epoch":{epoch},"version":1}}'


def test_epochs_are_not_compared_and_all_else_of_a_state_is() -> None:
    first = compared({STATE: state(1, [1, 2], 1)})
    assert not unexplained(first, compared({STATE: state(1, [1, 2], 2)}), set())
    assert unexplained(first, compared({STATE: state(2, [1, 2], 1)}), set())
    assert unexplained(first, compared({STATE: state(1, [1], 1)}), set())
    assert unexplained(first, compared({}), set())


def test_states_of_a_topic_to_be_deleted_are_not_compared_and_its_znodes_are() -> None:
    marker = f"{znode_paths.DELETE_TOPICS}/t"
    first = compared({STATE: state(1, [1, 2], 1), TOPIC: "{}", marker: ""})
    assert first == {TOPIC: "{}", marker: ""}
    assert unexplained(first, compared({STATE: state(1, [1, 2], 1), TOPIC: "{}"}), set())


def test_answers_are_compared_without_texts_and_order() -> None:
    entries: list[dict[str, Any]] = [
        {"partition": 1, "error_code": 0},
        {"partition": 0, "error_code": 85, "error_message": "no"},
    ]
    other: list[dict[str, Any]] = [
        {"partition": 0, "error_code": 85, "error_message": "none"},
        {"partition": 1, "error_code": 0},
    ]
    assert comparable({"throttle_time_ms": 1, "results": entries}) == comparable({"results": other})
    assert comparable({"results": entries}) != comparable({"results": other[:1]})
    assert comparable({"results": entries}) != comparable(
        {"results": [other[0] | {"error_code": 3}, other[1]]}
    )
