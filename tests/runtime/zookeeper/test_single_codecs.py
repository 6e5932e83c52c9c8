"""Configuration, producer ids and the cluster id on a real ZooKeeper: bytes, watches, versions."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.client import KazooClient

from controller.core.cluster.automatic_maintenance import PATH as MAINTENANCE
from controller.core.cluster.producer_ids import ProducerIdBlock
from controller.core.config_keys import LONG_MAX
from controller.core.effects import write_node
from controller.core.model import StopApproval
from controller.core.requests.brokers import AllocateProducerIds, AllocateProducerIdsReply
from controller.core.requests.configs import (
    AlterConfigs,
    AlterConfigsReply,
    ConfigAlteration,
    ConfigChange,
    ConfigResource,
    ConfigScope,
)
from controller.core.requests.errors import ErrorCode
from controller.core.requests.operator import OperatorReply, SetDrain, SetPause
from controller.core.znode_paths import CLUSTER_ID, PRODUCER_IDS, NodePath
from controller.errors import MalformedError
from controller.runtime import state
from controller.runtime.zookeeper import jute, single_codecs
from proto.gen import common_pb2
from proto.gen import controller_service_pb2 as pb
from tests.support.runtime.callers import controller
from tests.support.runtime.pushes import FakeBroker
from tests.support.runtime.sessions import until

TOPIC = '{"0":[1,2]}'


@pytest.mark.parametrize(
    ("path", "data", "says"),
    [
        ("/cluster/id", b"", "is empty"),
        ("/cluster/id", b'{"version":"1","id":1}', "id"),
        ("/cluster/id", b'{"version":"1","id":""}', "id"),
        ("/latest_producer_id_block", b"x", "malformed"),
        (
            "/latest_producer_id_block",
            b'{"version":1,"broker":1,"block_start":0,"block_end":"9"}',
            "block_start",
        ),
        (
            "/latest_producer_id_block",
            b'{"version":1,"broker":1,"block_start":"9","block_end":"8"}',
            "from block_start 9",
        ),
        ("/config/topics/t", b'{"version":1,"config":{"a":1}}', "config"),
        ("/controllers/maintenance", b'{"version":1,"drained":{"x":{"reason":"r","author":"a"}}}', "int"),
        ("/controllers/maintenance", b'{"version":1,"paused":{"reason":"r"}}', "author"),
        ("/controllers/maintenance", b'{"drained":{"2147483648":{"reason":"r","author":"a"}}}', "drained"),
        (
            "/controllers/maintenance",
            b'{"drained":{"-1":{"reason":"r","author":"a"}}}',
            "from 0 to 2147483647",
        ),
        ("/controllers/maintenance", b'{"accepted":[1,99999999999]}', "accepted: broker id 99999999999"),
        (
            "/controllers/approvals",
            b'{"version":1,"approvals":{"1":{"broker_epoch":9223372036854775808,"reason":"r","author":"a","at_ms":1}}}',
            "approvals.1.broker_epoch",
        ),
        (
            "/controllers/approvals",
            b'{"version":1,"approvals":{"1":{"broker_epoch":1,"reason":"r","author":"a","at_ms":-1}}}',
            "approvals.1.at_ms",
        ),
        ("/controllers/approvals", b'{"version":2,"approvals":{}}', "version"),
        ("/controllers/approvals", b'{"version":1,"approvals":{"-1":{}}}', ">= 0"),
        ("/controllers/approvals", b'{"version":1,"approvals":{"1":{"reason":"r"}}}', "broker_epoch"),
        ("/controllers/approvals", b"[]", "object"),
        (
            "/controllers/forgotten",
            b'{"version":1,"brokers":{"7":{"reason":"r","author":"a","at_ms":1,"replicas":{"t":[0,2147483648]}}}}',
            "brokers.7.replicas.t: partition 2147483648",
        ),
        (
            "/controllers/settings",
            b'{"version":1,"settings":{"seven":{}}}',
            "settings.seven: must be a contr",
        ),
        *(
            (
                "/controllers/history",
                json.dumps(
                    {
                        "version": 1,
                        "terms": [
                            {
                                "controller_id": 1,
                                "controller_epoch": 1,
                                "from_ms": 1,
                                "until_ms": 1,
                                "why": "x",
                            }
                            | {field: -1}
                        ],
                    }
                ).encode(),
                f"terms.0.{field} = -1",
            )
            for field in ("controller_id", "controller_epoch", "from_ms", "until_ms")
        ),
        ("/controllers/settings", b'{"version":1,"settings":{"\xc2\xb2":{}}}', "must be a controller id"),
        ("/controllers/settings", b'{"version":1,"settings":{"12345678901":{}}}', "must be a controller id"),
        ("/controllers/quarantine", b'{"version":2,"suspects":{}}', "version"),
        ("/controllers/quarantine", b'{"version":1,"suspects":{"a":{"kind":"x"}}}', "kind"),
    ],
)
def test_malformed_nodes_are_named(path: str, data: bytes, says: str) -> None:
    with pytest.raises(MalformedError, match=says) as raised:
        single_codecs.decode(NodePath[object](path), data)
    assert raised.value.path == path


def test_the_cluster_id_is_written_as_kafka_writes_it() -> None:
    assert single_codecs.encode(CLUSTER_ID, "A" * 22) == b'{"version":"1","id":"' + b"A" * 22 + b'"}'


def test_approvals_are_read_as_they_are_written() -> None:
    path = "/controllers/approvals"
    approvals = {
        1: StopApproval(2**40, "kernel", "ann", 5, ("t-0 would have no leader",)),
        2: StopApproval(3, "r", "b", 0),
    }
    assert single_codecs.decode(NodePath[object](path), single_codecs.encode(path, approvals)) == approvals


@pytest.mark.parametrize(
    ("data", "entity"),
    [
        (b'{"version":2,"entity_path":"topics/t"}', "topics/t"),
        (b'{"version":2,"entity_path":"brokers/<default>"}', "brokers/<default>"),
        (b'{"version":1,"entity_type":"topics","entity_name":"t"}', "topics/t"),
        (b'{"version":2,"entity_path":"users/u/clients/c"}', "users/u/clients/c"),
        (b'{"version":1,"entity_path":"topics/u","entity_type":"topics","entity_name":"t"}', "topics/t"),
        (b'{"version":2,"entity_type":"topics","entity_name":"t"}', None),
        (b'{"version":2,"entity_path":"topics"}', None),
        (b'{"version":2,"entity_path":"topics/a b"}', None),
        (b'{"version":2,"entity_path":"brokers/x"}', None),
        (b'{"version":3,"entity_path":"topics/t"}', None),
        (b"", None),
    ],
)
def test_notifications(data: bytes, entity: str | None) -> None:
    path = "/config/changes/config_change_0000000000"
    if entity is None:
        with pytest.raises(MalformedError):
            single_codecs.decode_config_change(path, data)
    else:
        assert single_codecs.decode_config_change(path, data) == entity


@pytest.mark.parametrize(("start", "end"), [(0, 0), (5, 5), (0, 999), (7, LONG_MAX)])
def test_a_block_of_producer_ids_may_be_of_one(start: int, end: int) -> None:
    path = NodePath[ProducerIdBlock](PRODUCER_IDS)
    block = ProducerIdBlock(1, start, end)
    assert single_codecs.decode(path, single_codecs.encode(path, block)) == block


@pytest.mark.parametrize("version", [0, 3])
def test_a_write_is_of_the_version_that_was_read(version: int) -> None:
    session: Any = SimpleNamespace(packed_path=str.encode)
    write = write_node(NodePath[dict[str, str]]("/config/topics/t"), {"a": "b"}, version)
    data = b'{"version":1,"config":{"a":"b"}}'
    assert single_codecs.pack(session, write) == jute.op_set(b"/config/topics/t", data, version)


@pytest.mark.slow
async def test_configuration(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    async with controller(
        zookeeper, zk, tmp_path, FakeBroker(1), FakeBroker(2), topics={"t": TOPIC}
    ) as active:
        cluster_id = json.loads(zk.get("/cluster/id")[0])
        assert cluster_id == {"version": "1", "id": active.term.machine.cluster.cluster_id}
        assert len(cluster_id["id"]) == 22
        changes = [ConfigChange("retention.ms", "5")]
        reply = await active.term.ask(
            AlterConfigs([ConfigAlteration(ConfigResource(ConfigScope.TOPIC, "t"), changes)])
        )
        assert isinstance(reply, AlterConfigsReply)
        assert reply.resources[0].error is ErrorCode.NONE
        assert zk.get("/config/topics/t")[0] == b'{"version":1,"config":{"retention.ms":"5"}}'
        (name,) = zk.get_children("/config/changes")
        assert name == "config_change_0000000000"
        assert zk.get(f"/config/changes/{name}")[0] == b'{"version":2,"entity_path":"topics/t"}'
        # Others' tools: the node first, told afterwards; each is noticed, so the watch is armed again.
        cluster = active.term.machine.cluster
        for value in ("true", "false"):
            data = f'{{"version":1,"config":{{"unclean.leader.election.enable":"{value}"}}}}'.encode()
            zk.ensure_path("/config/brokers/<default>")
            zk.set("/config/brokers/<default>", data)
            note = b'{"version":2,"entity_path":"brokers/<default>"}'
            zk.create("/config/changes/config_change_", note, sequence=True)
            await until(lambda value=value: cluster.unclean_default is (value == "true"), "the default")  # type: ignore[misc]


@pytest.mark.slow
async def test_producer_ids(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    async with controller(zookeeper, zk, tmp_path, FakeBroker(1), topics={}) as active:
        epoch = active.term.machine.cluster.brokers[1].epoch
        request = pb.AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch)
        raw = await active.caller.raw("AllocateProducerIds", request.SerializeToString())
        answer = pb.AllocateProducerIdsResponse.FromString(raw)
        assert (answer.error_code, answer.producer_id_start, answer.producer_id_len) == (0, 0, 1000)
        assert zk.get("/latest_producer_id_block")[0] == (
            b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}'
        )
        many = await asyncio.gather(*(active.term.ask(AllocateProducerIds(1, epoch)) for _ in range(20)))
        starts = {reply.start for reply in many if isinstance(reply, AllocateProducerIdsReply)}
        assert starts == {1000 * n for n in range(1, 21)}
        garbage = pb.AllocateProducerIdsResponse.FromString(
            await active.caller.raw("AllocateProducerIds", b"\xff")
        )
        assert garbage.error_code == common_pb2.INVALID_REQUEST


@pytest.mark.slow
async def test_maintenance(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    async with controller(
        zookeeper, zk, tmp_path, FakeBroker(1), FakeBroker(2), topics={"t": TOPIC}
    ) as active:
        reply = await active.term.ask(SetDrain(1, True, "new disks", "ann"))
        assert isinstance(reply, OperatorReply)
        assert (reply.error, reply.remaining) == (ErrorCode.NONE, [])
        await active.term.ask(SetPause(True, "network", "bob"))
        assert active.stored()[0] == 2
        data = zk.get("/controllers/maintenance")[0]
        assert json.loads(data) == {
            "version": 1,
            "paused": {"reason": "network", "author": "bob"},
            "drained": {"1": {"reason": "new disks", "author": "ann"}},
            "entered": None,
            "freeze": None,
            "automatic": False,
            "accepted": [],
        }
        found = single_codecs.decode(MAINTENANCE, data)
        assert found == active.term.machine.cluster.maintenance
        assert (await state.state(active.daemon))["term"]["maintenance"]["drained"]["1"]["author"] == "ann"


def test_settings_of_all_controllers_and_of_one() -> None:
    data = b'{"version":1,"settings":{"<default>":{"a":"1"},"2147483647":{"b":"2"}}}'
    found = single_codecs.decode(NodePath[object]("/controllers/settings"), data)
    assert found == {"<default>": {"a": "1"}, "2147483647": {"b": "2"}}
