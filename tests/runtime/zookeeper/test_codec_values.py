"""Znodes of any values: what is written is read. Whatever else may be in one: tests/provers/fuzz."""

from __future__ import annotations

import json
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.cluster.producer_ids import PATH as PRODUCER_IDS
from controller.core.cluster.producer_ids import ProducerIdBlock
from controller.core.cluster.quarantine import Quarantine, SubjectKind, Suspect
from controller.core.config_keys import LONG_MAX
from controller.core.effects import NotifyConfig, TopicInfo
from controller.core.model import Attribution, LeaderAndIsr, Maintenance, StopApproval
from controller.core.znode_paths import (
    APPROVALS,
    FORGOTTEN,
    MAINTENANCE,
    QUARANTINE,
    RESIGNED,
    SETTINGS,
    TERM_HISTORY,
    NodePath,
)
from controller.errors import MalformedError
from controller.runtime.zookeeper import codecs, single_codecs

MARK = Attribution("because", "ann")
#: What only this controller writes, and what it writes as others do.
CONTROL: dict[str, Any] = {
    "/controllers/maintenance": Maintenance(MARK, {3: MARK}, MARK, True, (4, 5)),
    "/controllers/approvals": {2: StopApproval(7, "because", "ann", 5, ("margin",))},
    "/controllers/quarantine": Quarantine(
        {
            "topic/t": Suspect(
                SubjectKind.TOPIC, "t", "TopicChange", "KeyError: 1", "d", 1, 2, 3, "t-0", 2, True
            )
        }
    ),
    "/latest_producer_id_block": ProducerIdBlock(1, 0, 999),
    "/cluster/id": "A" * 22,
}


@given(name=st.text(max_size=12))
def test_any_name_below_brokers_ids(name: str) -> None:
    path = f"/brokers/ids/{name}"
    with suppress(MalformedError):
        broker = codecs.decode_broker(path, b'{"version":4,"host":"h","port":1}', 1)
        assert str(broker.id) == name.rsplit("/", 1)[-1].lstrip("0") or "0"


#: Of URL-safe base64.
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


@pytest.mark.parametrize("last", "AQgw")
@pytest.mark.parametrize("start", [0, 21, 43])
def test_ids_have_any_character_of_base64(start: int, last: str) -> None:
    """Sixteen bytes: of the last character only the first two bits count, and Kafka writes the others as 0."""
    id_ = ALPHABET[start : start + 21] + last
    topic = f'{{"version":3,"topic_id":"{id_}","partitions":{{"0":[1]}}}}'
    assert codecs.decode_topic("t", topic.encode(), 1, 0).topic_id == id_
    broker = f'{{"version":5,"host":"h","port":1,"directories":["{id_}"]}}'
    assert len(codecs.decode_broker("/brokers/ids/1", broker.encode(), 1).directories) == 1


@pytest.mark.parametrize(
    ("field", "recovery"), [("", 0), (',"leader_recovery_state":0', 0), (',"leader_recovery_state":1', 1)]
)
def test_a_state_has_recovered_unless_it_says_otherwise(field: str, recovery: int) -> None:
    """Before 3.2 Kafka writes nothing of that."""
    data = f'{{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":3,"isr":[1]{field}}}'
    found = codecs.decode_state("t", 0, data.encode(), 5)
    assert found == LeaderAndIsr(1, 3, (1,), 5, 1, recovery=recovery)


@pytest.mark.parametrize("status", [-1, 2])
def test_features_are_enabled_or_disabled_and_nothing_else(status: int) -> None:
    data = f'{{"version":2,"status":{status},"features":{{}}}}'
    with pytest.raises(MalformedError, match="status"):
        codecs.decode_feature(data.encode(), 1)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_what_is_no_number_of_json_is_refused(number: str) -> None:
    with pytest.raises(MalformedError):
        codecs.decode_config("/config/topics/t", f'{{"version":1,"config":{{}},"x":{number}}} '.encode())


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
    assert codecs.decode_state("t", 0, codecs.encode_state(state), state.partition_epoch) == state


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
    assert codecs.decode_topic("t", codecs.encode_topic(info), 5, 6) == info


@given(st.lists(st.tuples(st.text(), ids), max_size=4), st.dictionaries(st.text(), st.text(), max_size=4))
def test_list_and_config_round_trip(partitions: list[tuple[str, int]], config: dict[str, str]) -> None:
    assert codecs.decode_partition_list("/p", codecs.encode_partition_list(partitions)) == partitions
    assert codecs.decode_config("/c", codecs.encode_config(config)) == config


@pytest.mark.parametrize("path", CONTROL)
def test_what_is_written_is_read(path: str) -> None:
    assert (
        single_codecs.decode(NodePath[Any](path), single_codecs.encode(path, CONTROL[path])) == CONTROL[path]
    )


def test_an_empty_znode_of_producer_ids_has_no_block_yet() -> None:
    assert [single_codecs.decode(PRODUCER_IDS, data) for data in (None, b"")] == [None, None]


def test_a_block_ends_where_64_bits_do() -> None:
    def decoded(end: int) -> object:
        text = f'{{"version":1,"broker":1,"block_start":"0","block_end":"{end}"}}'
        return single_codecs.decode(PRODUCER_IDS, text.encode())

    assert decoded(LONG_MAX) == ProducerIdBlock(1, 0, LONG_MAX)
    with pytest.raises(MalformedError, match="block_end"):
        decoded(LONG_MAX + 1)


def test_what_is_ours_is_written_with_its_version() -> None:
    written = {
        MAINTENANCE: Maintenance(),
        APPROVALS: {},
        SETTINGS: {},
        TERM_HISTORY: (),
        FORGOTTEN: {},
        RESIGNED: single_codecs.Resignation("why", "who", 9),
        QUARANTINE: Quarantine(),
    }
    versions = {
        path: json.loads(single_codecs.encode(path, value))["version"] for path, value in written.items()
    }
    assert versions == dict.fromkeys(written, 1)


def test_a_notification_gets_its_number_from_zookeeper() -> None:
    session: Any = SimpleNamespace(op_create_sequential=lambda *args: args)
    packed: Any = single_codecs.pack(session, NotifyConfig("topics/t"))
    path, data = packed
    assert path == "/config/changes/config_change_"
    assert json.loads(data) == {"version": 2, "entity_path": "topics/t"}
