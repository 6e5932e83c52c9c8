"""The content of a znode as text, as it would be written but for sensitive values of configurations: for the output of
plans and dry runs."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from controller.core import znode_paths
from controller.core.config_keys import shown_value
from controller.core.effects import FeatureAnswer, ReassignmentRequest, StoredNode, TopicInfo
from controller.core.model import LeaderAndIsr
from controller.runtime.zookeeper import codecs, single_codecs


def node_text(path: str, stored: object) -> str | None:
    """The text of a value at its path; None for an absent znode. For a config notification the value is the entity."""
    match stored:
        case None:
            return None
        case LeaderAndIsr():
            return codecs.encode_state(stored).decode()
        case TopicInfo():
            return codecs.encode_topic(stored).decode()
        case ReassignmentRequest():
            return codecs.encode_reassignments(stored.entries).decode()
        case FeatureAnswer():
            return codecs.encode_feature({f.name: f.max for f in stored.features}).decode()
        case StoredNode(value=Mapping() as config) if path.startswith(znode_paths.CONFIG):
            masked = {key: shown_value(key, value) for key, value in config.items()}
            return single_codecs.encode(path, masked).decode()
        case StoredNode():
            return single_codecs.encode(path, stored.value).decode()
        case str() if path.startswith(znode_paths.CONFIG_CHANGE):
            return single_codecs.encode_config_change(stored).decode()
        case str():
            return stored
        case _:
            return msgspec.json.encode(stored).decode()
