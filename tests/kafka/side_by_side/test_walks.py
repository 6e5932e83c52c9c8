"""Random walks of our controller beside Kafka's own: a short one, and that what differs is seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controller.core import znode_paths
from proto.gen.kafka.leader_and_isr_request import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from proto.gen.kafka.stop_replica_request import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from proto.gen.kafka.update_metadata_request import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from proto.kafka.apis import Message, decode_request_header, encode_request
from tests.kafka.conftest import require
from tests.kafka.side_by_side.acceptors import AcceptingBroker
from tests.kafka.side_by_side.lanes import comparable, compared, told
from tests.kafka.side_by_side.run_deviations import unexplained
from tests.kafka.side_by_side.walks import walk

STATE = znode_paths.state_path("t", 0)
TOPIC = znode_paths.topic_path("t")


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.kafka_long
@pytest.mark.parametrize(("steps", "together"), [(15, 1), (8, 4)])
def test_both_controllers_do_the_same(tmp_path: Path, steps: int, together: int) -> None:
    require("3.9.1")
    said: list[str] = []
    assert not walk(1, steps, tmp_path, said.append, together), "\n".join(said)
    assert len(said) > steps if together > 1 else len(said) == steps


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


def hears(broker: AcceptingBroker, request: Message, version: int) -> Any:
    data = encode_request(request, version, 1, "test")
    header, at = decode_request_header(data)
    return broker.answer_to(header, data, at)


def metadata(epoch: int, leader: int) -> UpdateMetadataRequest:
    state = UpdateMetadataPartitionState("", 0, 1, leader, 4, [2, 1], 5, [1, 2, 3], [3])
    return UpdateMetadataRequest(
        broker_epoch=epoch,
        topic_states=[UpdateMetadataTopicState("t", partition_states=[state])],
        live_brokers=[UpdateMetadataBroker(2), UpdateMetadataBroker(1)],
    )


def leading(epoch: int, *, new: bool) -> LeaderAndIsrRequest:
    state = LeaderAndIsrPartitionState("", 0, 1, 1, 4, [1], 5, [1, 2, 3], [3, 2], [], new)
    return LeaderAndIsrRequest(
        broker_epoch=epoch, topic_states=[LeaderAndIsrTopicState("t", partition_states=[state])]
    )


def stopping(epoch: int, *, delete: bool) -> StopReplicaRequest:
    topic = StopReplicaTopicState("t", [StopReplicaPartitionState(0, 4, delete)])
    return StopReplicaRequest(broker_epoch=epoch, topic_states=[topic])


def test_what_a_broker_was_told_last_in_this_life_is_kept() -> None:
    broker = AcceptingBroker(hold=True)
    hears(broker, metadata(7, 1), 8)
    hears(broker, leading(7, new=False), 7)
    both = {"metadata of t-0": [1, [1, 2], [1, 2, 3], [3]], "replica of t-0": [1, [1, 2, 3], [2, 3], []]}
    assert broker.told == {"brokers": [1, 2], **both}
    hears(broker, metadata(6, 9), 8)
    assert broker.told == {"brokers": [1, 2], **both}
    hears(broker, stopping(7, delete=False), 4)
    assert broker.told["replica of t-0"] == "stopped"
    hears(broker, stopping(7, delete=True), 4)
    hears(broker, metadata(7, -2), 8)
    assert broker.told == {"brokers": [1, 2]}
    hears(broker, leading(8, new=False), 7)
    assert broker.told.keys() == {"replica of t-0"}


def test_replicas_of_a_failed_disk_are_refused_until_they_are_made_anew() -> None:
    broker = AcceptingBroker(hold=True)
    broker.failed = set()

    def errors(*, new: bool) -> tuple[int, int]:
        (led,) = hears(broker, leading(1, new=new), 7).topics[0].partition_errors
        (stopped,) = hears(broker, stopping(1, delete=False), 4).partition_errors
        return led.error_code, stopped.error_code

    assert (errors(new=False), broker.told) == ((56, 56), {})
    assert [errors(new=True), errors(new=False)] == [(0, 0), (0, 0)]
    assert broker.told == {"replica of t-0": "stopped"}


def test_what_brokers_were_told_is_compared_of_those_that_are_registered() -> None:
    found: dict[str, dict[str, Any]] = {
        "1": {"brokers": [1, 2, 100], "metadata of a-b-0": [1], "replica of gone-0": "stopped"},
        "2": {"brokers": [2]},
    }
    assert told(found, ["1"], ["gone"]) == {
        "broker 1 was told of brokers": [1, 2],
        "broker 1 was told, metadata of a-b-0": [1],
    }
