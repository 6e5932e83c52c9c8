"""What a znode holds as text, byte for byte as it is written: for people who ask what would be."""

from __future__ import annotations

import msgspec

from controller.core.effects import FeatureAnswer, ReassignmentRequest, StoredNode, TopicInfo
from controller.core.model import LeaderAndIsr
from controller.runtime import control_znodes, znodes


def node_text(path: str, stored: object) -> str | None:
    """The text of a value at its path; None for an absent znode. A bare string of a notification is its entity."""
    match stored:
        case None:
            return None
        case LeaderAndIsr():
            return znodes.encode_state(stored).decode()
        case TopicInfo():
            return znodes.encode_topic(stored).decode()
        case ReassignmentRequest():
            return znodes.encode_reassignments(stored.entries).decode()
        case FeatureAnswer():
            return znodes.encode_feature({f.name: f.max for f in stored.features}).decode()
        case StoredNode():
            return control_znodes.encode(path, stored.value).decode()
        case str() if path.startswith(control_znodes.NOTIFICATION_PREFIX):
            return control_znodes.encode_config_change(stored).decode()
        case str():
            return stored
        case _:
            return msgspec.json.encode(stored).decode()
