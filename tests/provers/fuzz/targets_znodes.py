"""Znodes, as controller and broker read them, and the answers of bulk requests.

A clear error is MalformedError (the broker's is MalformedZnode) with the znode's path, whose problem is one printable
line of at most 1000 characters that tells the field, or where the data stops being JSON, or what is allowed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from hypothesis import strategies as st

from broker_stub.zookeeper import codecs as broker_znodes
from broker_stub.zookeeper.registration import Identity
from controller.core.cluster.producer_ids import ProducerIdBlock
from controller.core.cluster.term_history import TermRecord
from controller.core.effects import TopicInfo
from controller.core.model import Attribution, Forgotten, Freeze, LeaderAndIsr, Maintenance, StopApproval
from controller.core.znode_paths import NodePath
from controller.errors import MalformedError
from controller.runtime.zookeeper import codecs, jute, single_codecs
from controller.runtime.zookeeper.jute import Node
from proto.incarnations import Incarnation
from tests.provers.fuzz.harness import Outcome, Target, UnclearError, require_clear
from tests.provers.fuzz.mutation import chooser, choosing, chosen, mutate_bytes, mutate_json

#: What must come back of a value that was decoded, and what does.
Again = Callable[[Any], tuple[Any, Any]]
_STATE = "/brokers/topics/t/partitions/0/state"
_CHANGE = "/config/changes/config_change_0000000001"
_MARK = Attribution("because", "ann")


@dataclass(frozen=True)
class Codec:
    """``path`` ends with a slash: then the znode's name comes first in the input, up to a NUL."""

    path: str
    decode: Callable[[str, bytes], Any]
    seeds: Sequence[bytes]
    again: Again | None = None


def _in_json(**fields: object) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _topic_again(info: TopicInfo) -> tuple[TopicInfo, TopicInfo]:
    # Moves of partitions without replicas are not written.
    fields = ("adding", "removing", "original", "queued", "stray")
    kept: dict[str, Any] = {
        name: {n: ids for n, ids in getattr(info, name).items() if ids} for name in fields
    }
    written = codecs.encode_topic(info)
    return replace(info, **kept), codecs.decode_topic(info.name, written, info.czxid, info.version)


def _state_again(state: LeaderAndIsr) -> tuple[LeaderAndIsr, LeaderAndIsr]:
    return state, codecs.decode_state("t", 0, codecs.encode_state(state), state.partition_epoch)


def _feature_again(answer: Any) -> tuple[Any, Any]:
    """A level is the minimum too, as it is written now."""
    levels = {feature.name: feature.max for feature in answer.features}
    found = codecs.decode_feature(codecs.encode_feature(levels), answer.version)
    return levels, {feature.name: feature.min for feature in found.features}


CONTROLLER: tuple[Codec, ...] = (
    Codec(
        "/controller",
        lambda path, data: codecs.decode_controller(data),
        [codecs.encode_controller(1, "h:1"), _in_json(version=1, brokerid=7, timestamp="1")],
        lambda found: (found, codecs.decode_controller(codecs.encode_controller(*found))),
    ),
    Codec(
        "/controller_epoch",
        lambda path, data: codecs.decode_epoch(data),
        [b"7", b"2147483646"],
        lambda epoch: (epoch, codecs.decode_epoch(b"%d" % epoch)),
    ),
    Codec(
        "/controllers/ids/",
        codecs.decode_standby,
        [b"3\0" + codecs.encode_standby(3, "h:1", "h:2")],
        lambda s: (s, codecs.decode_standby(f"/controllers/ids/{s[0]}", codecs.encode_standby(*s))),
    ),
    Codec(
        "/brokers/ids/",
        lambda path, data: codecs.decode_broker(path, data, 5),
        [
            b"7\0" + Identity(7, "h1", 9092, "r1", Incarnation("i"), (("f", 1, 3),)).encode(5, 6000),
            b"0\0" + _in_json(version=1, host="h", port=9092, jmx_port=-1, timestamp="1"),
            b"1\0" + _in_json(version=4, endpoints=["PLAINTEXT://[::1]:9092", "SSL://h:1"]),
        ],
    ),
    Codec(
        "/brokers/topics/",
        lambda path, data: codecs.decode_topic(_name(path), data, 5, 6),
        [
            b"t\0" + codecs.encode_topic(TopicInfo("t", "A" * 22, {0: (1, 2), 1: (2,)}, {0: (2,)}, {}, 5, 6)),
            b"t\0"
            + _in_json(
                version=3,
                partitions={"0": [1, 2, 3]},
                adding_replicas={"0": [3]},
                removing_replicas={"0": [1]},
                original_replicas={"0": [1, 2]},
                queued_replicas={"0": [4]},
                stray_replicas={"0": [9]},
                other={"a": [1]},
            ),
            b"t\0" + _in_json(version=1, partitions={"0": [1]}),
        ],
        _topic_again,
    ),
    Codec(
        _STATE,
        lambda path, data: codecs.decode_state("t", 0, data, 9),
        [
            codecs.encode_state(LeaderAndIsr(1, 4, (1, 2), 9, 7, 1)),
            codecs.encode_state(LeaderAndIsr(-1, 0, (), 0, 0)),
        ],
        _state_again,
    ),
    Codec(
        "/admin/preferred_replica_election",
        codecs.decode_partition_list,
        [codecs.encode_partition_list([("t", 0), ("u", 7)])],
        lambda found: (found, codecs.decode_partition_list("/x", codecs.encode_partition_list(found))),
    ),
    Codec(
        "/admin/reassign_partitions",
        lambda path, data: codecs.decode_reassignments(path, data, 3),
        [codecs.encode_reassignments([("t", 0, (1, 2)), ("t", 1, (2,))])],
        lambda r: (r, codecs.decode_reassignments("/x", codecs.encode_reassignments(r.entries), r.version)),
    ),
    Codec(
        "/log_dir_event_notification/log_dir_event_0000000007",
        codecs.decode_log_dir_event,
        [_in_json(version=1, broker=2, event=1)],
    ),
    Codec("/feature", lambda path, data: codecs.decode_feature(data, 3), [
        codecs.encode_feature({"f": 3}),
        _in_json(version=1, status=1, features={"f": {"min_version_level": 1, "max_version_level": 3}}),
    ], _feature_again),
)  # fmt: skip


def _one_node(path: str, seeds: Sequence[bytes]) -> Codec:
    return Codec(
        path,
        lambda path, data: single_codecs.decode(NodePath[object](path), data),
        seeds,
        lambda value: (
            value,
            value
            if value is None
            else single_codecs.decode(NodePath[object](path), single_codecs.encode(path, value)),
        ),
    )


def _written(path: str, value: object) -> bytes:
    return single_codecs.encode(path, value)


CONTROL: tuple[Codec, ...] = (
    _one_node(
        "/controllers/maintenance",
        [
            _written(
                "/controllers/maintenance",
                Maintenance(_MARK, {3: _MARK}, _MARK, True, (4, 5), Freeze("why", "ann", 7)),
            )
        ],
    ),
    _one_node(
        "/controllers/forgotten",
        [_written("/controllers/forgotten", {2: Forgotten("burned", "ann", 5, {"t": (0, 1)})})],
    ),
    _one_node(
        "/controllers/settings", [_written("/controllers/settings", {"<default>": {"a": "1"}, "7": {}})]
    ),
    _one_node(
        "/controllers/history", [_written("/controllers/history", (TermRecord(1, 2, 3, 4, True, "why"),))]
    ),
    _one_node(
        "/controllers/approvals",
        [_written("/controllers/approvals", {2: StopApproval(7, "because", "ann", 5, ("margin",))})],
    ),
    _one_node(
        "/latest_producer_id_block", [_written("/latest_producer_id_block", ProducerIdBlock(1, 0, 999)), b""]
    ),
    _one_node("/cluster/id", [_written("/cluster/id", "A" * 22)]),
    _one_node("/config/topics/t", [codecs.encode_config({"retention.ms": "1", "a": "b"})]),
    _one_node("/config/brokers/<default>", [codecs.encode_config({})]),
    Codec(
        _CHANGE,
        single_codecs.decode_config_change,
        [
            single_codecs.encode_config_change("topics/t"),
            _in_json(version=1, entity_type="users", entity_name="a"),
        ],
        lambda e: (e, single_codecs.decode_config_change(_CHANGE, single_codecs.encode_config_change(e))),
    ),
)


def _broker_state_again(state: broker_znodes.PartitionState) -> tuple[Any, Any]:
    return state, broker_znodes.decode_state(_STATE, broker_znodes.encode_state(state))


BROKER: tuple[Codec, ...] = (
    Codec(
        "/controller",
        lambda path, data: broker_znodes.decode_endpoint(data),
        [codecs.encode_controller(1, "h:1"), codecs.encode_controller(1, "[::1]:9190")],
    ),
    Codec(
        "/config/topics/t",
        broker_znodes.decode_config,
        [broker_znodes.encode_config({"min.insync.replicas": "2"}), b""],
        lambda c: (c, broker_znodes.decode_config("/x", broker_znodes.encode_config(c))),
    ),
    Codec(
        _CHANGE,
        broker_znodes.decode_change,
        [
            single_codecs.encode_config_change("topics/t"),
            _in_json(version=1, entity_type="topics", entity_name="t"),
            _in_json(version=2, entity_path="brokers/1"),
        ],
    ),
    Codec(
        _STATE,
        broker_znodes.decode_state,
        [broker_znodes.encode_state(broker_znodes.PartitionState(1, 4, 7, (1, 2)))],
        _broker_state_again,
    ),
)


def checking(pairs: Sequence[Codec], refusal: type[Any]) -> Callable[[bytes], Outcome]:
    def check(data: bytes) -> Outcome:
        index, body = chosen(data, len(pairs))
        codec = pairs[index]
        path = codec.path
        if path.endswith("/"):
            # Names are text: kazoo decodes them before anybody sees them.
            name, _, body = body.partition(b"\0")
            path += name.decode(errors="replace").replace("/", "_")
        try:
            value = codec.decode(path, body)
        except refusal as error:
            if error.path != path:
                raise UnclearError(f"{error.path} is not {path}") from error
            require_clear(error.problem)
            return Outcome.REFUSED
        if codec.again is not None:
            expected, got = codec.again(value)
            assert got == expected, f"{expected} comes back as {got}"
        return Outcome.VALID

    return check


#: JSON with anything in it, for fields that JSON has no seed of.
ODD: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3)
    ),
    max_leaves=5,
)


def _named(seed: bytes) -> tuple[bytes, bytes]:
    name, nul, body = seed.rpartition(b"\0")
    return name + nul, body


def _mutate(data: bytes, rng: Random) -> bytes:
    name, body = _named(data)
    if name and rng.randrange(10) == 0:
        name = mutate_bytes(name, rng)
    return name + mutate_json(body, rng)


def _structured(pairs: Sequence[Codec]) -> st.SearchStrategy[bytes]:
    """Valid JSON with a field replaced by anything, or missing."""

    @st.composite
    def made(draw: Callable[..., Any]) -> bytes:
        index = draw(st.integers(0, len(pairs) - 1))
        name, body = _named(draw(st.sampled_from([seed for seed in pairs[index].seeds if seed])))
        fields = json.loads(body)
        if isinstance(fields, dict) and fields:
            key = draw(st.sampled_from(sorted(fields)))
            if draw(st.booleans()):
                fields[key] = draw(ODD)
            else:
                del fields[key]
        with suppress(ValueError):  # no JSON has integers of more than 4300 digits here
            body = json.dumps(fields).encode(errors="surrogatepass")
        return choosing(index, name + body)

    return made()


def target(name: str, pairs: Sequence[Codec], refusal: type[Any], weight: int) -> Target:
    return Target(
        name,
        checking(pairs, refusal),
        [choosing(index, seed) for index, codec in enumerate(pairs) for seed in codec.seeds],
        chooser([_mutate] * len(pairs)),
        _structured(pairs),
        weight,
        quick=150,
    )


# --- the answers of bulk requests -------------------------------------------------------------------------------


def _answer(*nodes: Node | int) -> bytes:
    parts = []
    for node in nodes:
        if isinstance(node, int):
            parts.append(jute._HEADER.pack(-1, False, node) + jute._INT.pack(node))
        else:
            stat = bytearray(jute.STAT_SIZE)
            stat[0:8], stat[32:36] = jute._LONG.pack(node.czxid), jute._INT.pack(node.version)
            parts.append(jute._HEADER.pack(4, False, -1) + jute._INT.pack(len(node.data)) + node.data + stat)
    return b"".join(parts) + jute._HEADER.pack(-1, True, -1)


def _check_jute(data: bytes) -> Outcome:
    """First byte: how many operations were asked for, and which parser reads the answer."""
    count, body = (data[0], data[1:]) if data else (0, b"")
    parse: Mapping[bool, Callable[[memoryview, int], Sequence[Any]]] = {
        False: jute.parse_multi_read,
        True: jute.parse_multi,
    }
    try:
        found = parse[count >= 128](memoryview(body), count % 128)
    except MalformedError as error:
        require_clear(str(error))
        return Outcome.REFUSED
    assert len(found) <= count % 128
    if count < 128:
        assert len(found) == count
    return Outcome.VALID


TARGETS = (
    target("znodes", CONTROLLER, MalformedError, 30),
    target("control-znodes", CONTROL, MalformedError, 15),
    target("broker-znodes", BROKER, broker_znodes.MalformedZnode, 10),
    Target(
        "jute",
        _check_jute,
        [
            bytes([2]) + _answer(Node(b"x", 3, 7), -101),
            bytes([1]) + _answer(Node(b"", 0, 1)),
            bytes([0]) + _answer(),
            bytes([130]) + _answer(0, -103),
            bytes([129]) + _answer(Node(b"", 0, 1)),
        ],
        weight=10,
    ),
)
