"""Whatever is in a znode: decoded, or MalformedError with its path. Nothing else, ever."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.effects import TopicInfo
from controller.core.model import LeaderAndIsr, Maintenance, Mark, StopApproval
from controller.core.producer_ids import ProducerIdBlock
from controller.errors import MalformedError
from controller.runtime import control_znodes, znodes
from tests.runtime.test_znodes import DECODERS, STATE

MARK = Mark("because", "ann")
#: What only this controller writes, and what it writes as others do.
CONTROL: dict[str, Any] = {
    "/controllers/maintenance": Maintenance(MARK, {3: MARK}, MARK, True, (4, 5)),
    "/controllers/approvals": {2: StopApproval(7, "because", "ann", 5, ("margin",))},
    "/latest_producer_id_block": ProducerIdBlock(1, 0, 999),
    "/cluster/id": "A" * 22,
}
CHANGE = "/config/changes/config_change_0000000001"
VALID: dict[str, list[bytes]] = {
    "/controller": [znodes.encode_controller(1, "h:1")],
    "/controller_epoch": [b"7"],
    "/brokers/ids/7": [
        b'{"version":5,"host":"h1","port":9092,"endpoints":["GRPC://h1:9092"],'
        b'"listener_security_protocol_map":{"GRPC":"PLAINTEXT"},"rack":"r1","features":{}}'
    ],
    "/brokers/topics/t": [
        b'{"version":3,"topic_id":"x","partitions":{"0":[1,2]},"adding_replicas":{"0":[2]},"removing_replicas":{}}'
    ],
    STATE: [znodes.encode_state(LeaderAndIsr(1, 4, (1, 2), 9, 7, 1))],
    "/admin/preferred_replica_election": [znodes.encode_partition_list([("t", 0)])],
    "/log_dir_event_notification/log_dir_event_7": [b'{"version":1,"broker":2,"event":1}'],
    "/config/topics/t": [znodes.encode_config({"a": "b"})],
    "/feature": [znodes.encode_feature({"f": 3})],
    **{path: [control_znodes.encode(path, value)] for path, value in CONTROL.items()},
    CHANGE: [
        control_znodes.encode_config_change("topics/t"),
        b'{"version":1,"entity_type":"users","entity_name":"a"}',
    ],
}
DECODE: dict[str, Callable[[bytes], Any]] = {
    **DECODERS,
    **{path: partial(control_znodes.decode, path) for path in CONTROL},
    CHANGE: partial(control_znodes.decode_config_change, CHANGE),
}
ODD: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(
        [-1, -2, 2**31, 2**63, 10**30, "0", "1" * 4400, "²", "\ud800".encode(errors="replace").decode()]
    ),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3)
    ),
    max_leaves=5,
)


def survives(path: str, data: bytes) -> None:
    told: MalformedError | None = None
    try:
        DECODE[path](data)
    except MalformedError as error:
        told = error
    if told is not None:
        assert told.path == path
        assert told.problem
        assert len(told.problem) < 1000


@pytest.mark.parametrize("path", DECODE)
@given(data=st.binary(max_size=60))
def test_arbitrary_bytes(path: str, data: bytes) -> None:
    survives(path, data)


@pytest.mark.parametrize("path", DECODE)
@given(data=st.data())
def test_valid_json_with_bytes_changed(path: str, data: st.DataObject) -> None:
    raw = bytearray(data.draw(st.sampled_from(VALID[path])))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, max(len(raw) - 1, 0)))
        raw[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    survives(path, bytes(raw))


@pytest.mark.parametrize("path", [p for p in DECODE if p != "/controller_epoch"])
@given(data=st.data())
def test_valid_json_with_a_field_replaced_or_missing(path: str, data: st.DataObject) -> None:
    fields = json.loads(data.draw(st.sampled_from(VALID[path])))
    key = data.draw(st.sampled_from(sorted(fields)))
    if data.draw(st.booleans()):
        fields[key] = data.draw(ODD)
    else:
        del fields[key]
    with suppress(ValueError):  # json refuses integers of more than 4300 digits: not our test's business
        survives(path, json.dumps(fields).encode(errors="surrogatepass"))


@given(name=st.text(max_size=12))
def test_any_name_below_brokers_ids(name: str) -> None:
    path = f"/brokers/ids/{name}"
    with suppress(MalformedError):
        broker = znodes.decode_broker(path, b'{"version":4,"host":"h","port":1}', 1)
        assert str(broker.id) == name.rsplit("/", 1)[-1].lstrip("0") or "0"


ids = st.integers(0, 2**31 - 1)
epochs = st.integers(0, 2**31 - 2)
replicas = st.lists(ids, min_size=1, max_size=4, unique=True).map(tuple)


@given(
    st.builds(
        LeaderAndIsr,
        leader=st.integers(-1, 2**31 - 1),
        leader_epoch=epochs,
        isr=st.lists(ids, max_size=4, unique=True).map(tuple),
        partition_epoch=ids,
        controller_epoch=epochs,
        recovery=st.sampled_from([0, 1]),
    )
)
def test_state_round_trip(state: LeaderAndIsr) -> None:
    assert znodes.decode_state("t", 0, znodes.encode_state(state), state.partition_epoch) == state


@given(
    partitions=st.dictionaries(ids, replicas, max_size=4),
    adding=st.dictionaries(ids, replicas, max_size=2),
    removing=st.dictionaries(ids, replicas, max_size=2),
    topic_id=st.sampled_from(["", "A" * 22]),
)
def test_topic_round_trip(
    partitions: dict[int, Any], adding: dict[int, Any], removing: dict[int, Any], topic_id: str
) -> None:
    info = TopicInfo("t", topic_id, partitions, adding, removing, 5, 6)
    assert znodes.decode_topic("t", znodes.encode_topic(info), 5, 6) == info


@given(st.lists(st.tuples(st.text(), ids), max_size=4), st.dictionaries(st.text(), st.text(), max_size=4))
def test_list_and_config_round_trip(partitions: list[tuple[str, int]], config: dict[str, str]) -> None:
    assert znodes.decode_partition_list("/p", znodes.encode_partition_list(partitions)) == partitions
    assert znodes.decode_config("/c", znodes.encode_config(config)) == config


@pytest.mark.parametrize("path", CONTROL)
def test_what_is_written_is_read(path: str) -> None:
    assert control_znodes.decode(path, control_znodes.encode(path, CONTROL[path])) == CONTROL[path]
