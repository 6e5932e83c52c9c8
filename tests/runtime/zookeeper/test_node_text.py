"""Values as text are what the store writes, byte for byte."""

from __future__ import annotations

import pytest

from controller.core.cluster.producer_ids import ProducerIdBlock
from controller.core.effects import FeatureAnswer, ReassignmentRequest, StoredNode, TopicInfo
from controller.core.model import FeatureRange, LeaderAndIsr
from controller.runtime.zookeeper import codecs
from controller.runtime.zookeeper.node_text import node_text

TOPIC = TopicInfo("t", "i" * 22, {0: (1, 2)}, {}, {}, 1, 1)


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        ("/anything", None, None),
        ("/admin/delete_topics/t", "", ""),
        ("/config/changes/config_change_", "topics/t", '{"version":2,"entity_path":"topics/t"}'),
        ("/config/topics/t", StoredNode({"a": "1"}, 3), '{"version":1,"config":{"a":"1"}}'),
        (
            "/latest_producer_id_block",
            StoredNode(ProducerIdBlock(1, 0, 999), 0),
            '{"version":1,"broker":1,"block_start":"0","block_end":"999"}',
        ),
        (
            "/feature",
            FeatureAnswer(True, 1, (FeatureRange("f", 3, 3),)),
            '{"version":2,"status":1,"features":{"f":{"max_version_level":3}}}',
        ),
        (
            "/brokers/topics/t/partitions/0/state",
            LeaderAndIsr(1, 4, (1, 2), 6, 7),
            '{"controller_epoch":7,"leader":1,"version":1,"leader_epoch":4,"isr":[1,2]}',
        ),
        ("/brokers/topics/t", TOPIC, codecs.encode_topic(TOPIC).decode()),
        (
            "/admin/reassign_partitions",
            ReassignmentRequest((("t", 0, (2, 1)),), 3),
            '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2,1]}]}',
        ),
    ],
)
def test_each_kind_of_value(path: str, value: object, text: str | None) -> None:
    assert node_text(path, value) == text
