"""Every API that is answered here. To add one: a row, and its handler in ``apis``; in ``admission`` if its requests
grow with the number of partitions, in ``call`` if brokers answer it.

What is not listed is hung up on: Kafka's clients then ask another node.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from controller.core.requests.errors import ErrorCode
from controller.runtime.kafka_api.apis import (
    brokers,
    cluster,
    configs,
    forwarded,
    operations,
    own_node,
    topics,
    users,
)
from controller.runtime.kafka_api.call import Call
from proto.kafka.apis import APIS, ApiKey


@dataclass(frozen=True)
class Served:
    """``handle`` answers; None: hang up. ``fail`` makes the response to a request that a bug stopped. ``recorded``: a
    request that was carried out is in the audit log."""

    handle: Callable[[Call[Any]], Awaitable[Any]]
    fail: Callable[[ApiKey, Call[Any]], Any]
    recorded: bool


def _failed(key: ApiKey, call: Call[Any]) -> Any:
    """A response with an error for the whole request."""
    del call
    return APIS[key].response(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)


def _without(key: ApiKey, call: Call[Any]) -> Any:
    """A response without results, of an API that has no error for the whole request."""
    del call
    return APIS[key].response()


def _without_elections(key: ApiKey, call: Call[Any]) -> Any:
    del key
    return operations.no_elections(call, ErrorCode.UNKNOWN_SERVER_ERROR)


def _without_coordinators(key: ApiKey, call: Call[Any]) -> Any:
    del key
    return forwarded.no_coordinators(call)


#: Whether a request that was carried out is in the audit log.
_CHANGES, _READS = True, False

SERVED: Mapping[ApiKey, Served] = {
    ApiKey.API_VERSIONS: Served(cluster.describe_versions, _failed, _READS),
    ApiKey.METADATA: Served(cluster.metadata, _without, _READS),
    ApiKey.DESCRIBE_CLUSTER: Served(cluster.describe_cluster, _failed, _READS),
    # One that is carried out has records of its own.
    ApiKey.ALTER_PARTITION: Served(brokers.alter_partition, _failed, _READS),
    ApiKey.CONTROLLED_SHUTDOWN: Served(brokers.controlled_shutdown, _failed, _CHANGES),
    ApiKey.ALLOCATE_PRODUCER_IDS: Served(brokers.allocate_producer_ids, _failed, _CHANGES),
    ApiKey.CREATE_TOPICS: Served(topics.create_topics, _without, _CHANGES),
    ApiKey.CREATE_PARTITIONS: Served(topics.create_partitions, _without, _CHANGES),
    ApiKey.DELETE_TOPICS: Served(topics.delete_topics, _without, _CHANGES),
    ApiKey.ELECT_LEADERS: Served(operations.elect_leaders, _without_elections, _CHANGES),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Served(operations.alter_reassignments, _failed, _CHANGES),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Served(operations.list_reassignments, _failed, _READS),
    ApiKey.UPDATE_FEATURES: Served(operations.update_features, _failed, _CHANGES),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Served(users.alter_scram_credentials, _without, _CHANGES),
    ApiKey.DESCRIBE_CONFIGS: Served(configs.describe_configs, _without, _READS),
    ApiKey.ALTER_CONFIGS: Served(configs.alter_configs, _without, _CHANGES),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Served(configs.incremental_alter_configs, _without, _CHANGES),
    ApiKey.DESCRIBE_ACLS: Served(forwarded.describe_acls, _failed, _READS),
    ApiKey.CREATE_ACLS: Served(forwarded.create_acls, _without, _CHANGES),
    ApiKey.DELETE_ACLS: Served(forwarded.delete_acls, _without, _CHANGES),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Served(forwarded.describe_scram_credentials, _failed, _READS),
    ApiKey.FIND_COORDINATOR: Served(forwarded.find_coordinator, _without_coordinators, _READS),
    ApiKey.DESCRIBE_LOG_DIRS: Served(own_node.describe_log_dirs, _failed, _READS),
    ApiKey.LIST_GROUPS: Served(own_node.list_groups, _failed, _READS),
    ApiKey.LIST_TRANSACTIONS: Served(own_node.list_transactions, _failed, _READS),
}
#: gRPC and Kafka's documentation write names so: ``DeleteTopics``.
METHOD_NAMES: Mapping[ApiKey, str] = {
    key: "".join(word.capitalize() for word in key.name.split("_")) for key in SERVED
}

#: What authenticates a connection, in the versions that are spoken: SaslHandshake 0 comes without headers.
AUTHENTICATION_VERSIONS: Mapping[int, range] = {
    ApiKey.SASL_HANDSHAKE: range(1, 2),
    ApiKey.SASL_AUTHENTICATE: APIS[ApiKey.SASL_AUTHENTICATE].versions,
}
#: Versions of what is served, by the API's number.
SERVED_VERSIONS: Mapping[int, range] = {int(key): APIS[key].versions for key in SERVED}
