"""All znode paths: Kafka's layout (reference, section 1.1), and ours below ``/controllers``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

V = TypeVar("V")


class NodePath(str, Generic[V]):
    """The path of a znode that holds one value of type ``V``."""

    __slots__ = ()


CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
#: Ours: controller candidates, maintenance, and stop approvals.
CONTROLLER_IDS = "/controllers/ids"
MAINTENANCE = "/controllers/maintenance"
APPROVALS = "/controllers/approvals"
#: Ours: brokers that an operator declared gone for good.
FORGOTTEN = "/controllers/forgotten"
#: Ours: who led, from when to when, and why it ended.
TERM_HISTORY = "/controllers/history"
#: Ours: settings that operators change while controllers run.
SETTINGS = "/controllers/settings"
#: Ours: what raised unexpectedly, and what is left out because it raised again.
QUARANTINE = "/controllers/quarantine"
#: Ours: while it exists, none of our controllers claims ``/controller`` of a cluster of Kafka brokers.
RESIGNED = "/controllers/resigned"
#: Ours: the id of the candidate in whose favour the controller resigned, until one is elected.
SUCCESSOR = "/controllers/successor"
#: Ours: ids under which controllers of ours have led Kafka brokers, and that no broker has, as names of its children.
KAFKA_IDS = "/controllers/kafka_ids"

CLUSTER = "/cluster"
CLUSTER_ID: NodePath[str] = NodePath(f"{CLUSTER}/id")
BROKERS = "/brokers"
BROKER_IDS = f"{BROKERS}/ids"
TOPICS = f"{BROKERS}/topics"
FEATURE = "/feature"
PRODUCER_IDS = "/latest_producer_id_block"

CONFIG = "/config"
TOPIC_CONFIGS = f"{CONFIG}/topics"
BROKER_CONFIGS = f"{CONFIG}/brokers"
CONFIG_CHANGES = f"{CONFIG}/changes"
#: A sequential node: ZooKeeper appends its number.
CONFIG_CHANGE = f"{CONFIG_CHANGES}/config_change_"

DELETE_TOPICS = "/admin/delete_topics"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
ISR_NOTIFICATIONS = "/isr_change_notification"
LOG_DIR_NOTIFICATIONS = "/log_dir_event_notification"

#: Tokens of Kafka brokers (KIP-48); a notification is a sequential node.
DELEGATION_TOKENS = "/delegation_token/tokens"
TOKEN_CHANGES = "/delegation_token/token_changes"  # noqa: S105  (a path)
TOKEN_CHANGE = f"{TOKEN_CHANGES}/token_change_"

#: ACLs on names and on prefixes of names, and the znodes whose children announce their changes.
ACLS = "/kafka-acl"
PREFIXED_ACLS = "/kafka-acl-extended/prefixed"
ACL_CHANGES = ("/kafka-acl-changes", "/kafka-acl-extended-changes")

CONSUMERS = "/consumers"

#: What brokers and controllers create, with all that is below; but for `CONSUMERS`, which everybody may change
#: (``ZkData.SecureRootPaths``).
SECURED_ROOTS = (
    CONTROLLER,
    CONTROLLER_EPOCH,
    "/controllers",
    CLUSTER,
    BROKERS,
    FEATURE,
    PRODUCER_IDS,
    CONFIG,
    "/admin",
    ISR_NOTIFICATIONS,
    LOG_DIR_NOTIFICATIONS,
    "/delegation_token",
    ACLS,
    "/kafka-acl-extended",
    *ACL_CHANGES,
    "/migration",
)

#: Created at startup by brokers and by the controller, so that either may start first.
PERSISTENT = (
    CONSUMERS,
    BROKER_IDS,
    TOPICS,
    f"{BROKERS}/seqid",
    CONFIG_CHANGES,
    TOPIC_CONFIGS,
    BROKER_CONFIGS,
    f"{CONFIG}/clients",
    f"{CONFIG}/users",
    f"{CONFIG}/ips",
    DELETE_TOPICS,
    ISR_NOTIFICATIONS,
    PRODUCER_IDS,
    LOG_DIR_NOTIFICATIONS,
    CONTROLLER_IDS,
)


def candidate_path(controller_id: int) -> str:
    """The registration of a controller of ours."""
    return f"{CONTROLLER_IDS}/{controller_id}"


def kafka_id_path(controller_id: int) -> str:
    return f"{KAFKA_IDS}/{controller_id}"


def broker_path(broker_id: int | str) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    """The parent of a topic's partitions."""
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, number: int | str) -> str:
    """The parent of a partition's state."""
    return f"{TOPICS}/{topic}/partitions/{number}"


def state_path(topic: str, number: int | str, topics: str = TOPICS) -> str:
    """``topics``: the path of the topics parent, where it has a chroot."""
    return f"{topics}/{topic}/partitions/{number}/state"


def config_path(entity: str) -> NodePath[Mapping[str, str]]:
    """``entity``: ``topics/T``, ``brokers/1``, ``brokers/<default>``."""
    return NodePath(f"{CONFIG}/{entity}")


#: Bytes of a user's name that stay in its path as they are.
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._")


def user_entity(name: str) -> str:
    """A user's path below ``/config``: its name is encoded as ``org.apache.kafka.common.utils.Sanitizer`` does."""
    encoded = "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in name.encode())
    return f"users/{encoded}"


def topic_config_path(topic: str) -> NodePath[Mapping[str, str]]:
    return NodePath(f"{TOPIC_CONFIGS}/{topic}")


#: The entity of the brokers' cluster-wide defaults, and its path.
DEFAULT_BROKER = "brokers/<default>"
BROKER_DEFAULTS = config_path(DEFAULT_BROKER)


def deletion_path(topic: str) -> str:
    """The znode that requests a topic's deletion."""
    return f"{DELETE_TOPICS}/{topic}"


def child_of(parent: str, path: str) -> str | None:
    """The name of a node directly below another; None for any other path."""
    above, _, name = path.rpartition("/")
    return name if above == parent else None


def is_below(parent: str, path: str) -> bool:
    """Whether a node is anywhere below another."""
    return path.startswith(f"{parent}/")


def topic_of(path: str) -> str | None:
    """The topic whose znode this is, or is below; None for any other path."""
    return path.removeprefix(f"{TOPICS}/").split("/")[0] if is_below(TOPICS, path) else None


def partition_of(path: str) -> tuple[str, int] | None:
    """Topic and number of a partition state's path; None for any other path."""
    parts = path.removeprefix(f"{TOPICS}/").split("/")
    if len(parts) == 4 and path == state_path(parts[0], parts[2]) and parts[2].isdecimal():
        return parts[0], int(parts[2])
    return None
