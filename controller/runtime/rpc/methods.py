"""Every RPC: its authorization rule (docs/adr/0007), and for requests to the core's machine their translation.

To add one: a method in proto/, a row here, and its handler; a request to the machine has it in the core's table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from google.protobuf import message_factory
from google.protobuf.message import Message

from controller.core.config_keys import UNCLEAN
from controller.core.requests.api import ControllerRequest
from controller.runtime.rpc.translate import admin, features, inspection, maintenance, topics
from proto.gen import admin_service_pb2 as pb
from proto.gen import controller_service_pb2, inspection_pb2
from proto.security.authorization import CLUSTER, Operation, Resource, topic

_SERVICES = {
    service.full_name: service
    for service in (
        pb.DESCRIPTOR.services_by_name["AdminService"],
        controller_service_pb2.DESCRIPTOR.services_by_name["ControllerService"],
    )
}
ADMIN_SERVICE, CONTROLLER_SERVICE = _SERVICES


#: Beside a rule's own operation.
Also = Sequence[tuple[Operation, Resource]]


def _the_cluster(request: Any) -> Resource:
    del request
    return CLUSTER


def _nothing_else(request: Any) -> Also:
    del request
    return ()


@dataclass(frozen=True)
class Whole:
    """A request is allowed or refused as a whole. ``resource`` takes None for a request that did not parse.

    ``also``: what else it takes, from the request or None. ``of_broker``: the caller must be the broker that the
    request names.
    """

    operation: Operation
    resource: Callable[[Any], Resource] = _the_cluster
    also: Callable[[Any], Also] = _nothing_else
    of_broker: bool = False


@dataclass(frozen=True)
class Each:
    """Each entry of a request is allowed, or answered with its own error.

    ``asked`` and ``answered``: the repeated fields of request and response, in the same order. ``refusal`` makes an
    entry of the response from one of the request. ``named_once``: naming a resource twice is reported before a denial.
    """

    operation: Operation
    asked: str
    answered: str
    resource: Callable[[Any], Resource]
    refusal: Callable[[Any], Any]
    named_once: bool = True
    #: Permission on the cluster includes every topic.
    cluster_suffices: bool = False
    #: A request without entries means all entries: the response has those that the caller may see.
    none_means_all: bool = False
    #: What else an entry takes.
    also: Callable[[Any], Also] = _nothing_else


@dataclass(frozen=True)
class Shown:
    """Every caller may send the request; the response has only those entries of ``answered`` that it may see."""

    operation: Operation
    answered: str
    resource: Callable[[Any], Resource]


Rule = Whole | Each | Shown


def _config_resource(entry: pb.ConfigResource) -> Resource:
    return topic(entry.resource_name) if entry.resource_type == pb.TOPIC else CLUSTER


def _explained(request: inspection_pb2.ExplainRequest | None) -> Resource:
    """The topic of a partition, deletion or reassignment, else the cluster."""
    subject = request.WhichOneof("subject") if request is not None else None
    if request is None or subject not in ("partition", "deletion", "reassignment"):
        return CLUSTER
    named = getattr(request, subject)
    return topic(named if isinstance(named, str) else named.topic)


def _by_name(entry: Any) -> Resource:
    return topic(entry.name)


def _losing_election(request: pb.ElectLeadersRequest | None) -> Also:
    return (
        [(Operation.LOSE_DATA, CLUSTER)]
        if request is not None and request.election_type == pb.UNCLEAN
        else ()
    )


def _overriding(request: inspection_pb2.ApproveStopRequest | None) -> Also:
    return [(Operation.LOSE_DATA, CLUSTER)] if request is not None and request.override else ()


def _losing_config(entry: pb.AlterConfigsResource) -> Also:
    """What a configuration takes beside ALTER_CONFIGS: who lets out-of-sync replicas lead loses records later."""
    losing = any(
        config.name == UNCLEAN and config.value.strip().lower() == "true" for config in entry.configs
    )
    return [(Operation.LOSE_DATA, _config_resource(entry.resource))] if losing else ()


def never(request: Any) -> bool:
    del request
    return False


def always(request: Any) -> bool:
    del request
    return True


@dataclass(frozen=True)
class Rpc:
    """One RPC. ``quiet``: what it changes has records of its own, or it changes nothing although its operation does."""

    rule: Rule
    _: KW_ONLY
    quiet: bool = False
    #: Whether a request may lose data; its ``reason`` is then required.
    loses: Callable[[Any], bool] = never

    @property
    def recorded(self) -> bool:
        """Whether a request that was carried out is in the audit log."""
        return not self.quiet and self.rule.operation not in (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS)


@dataclass(frozen=True)
class Asked(Rpc):
    """An RPC that the core's machine handles. ``read`` makes the core's request and raises BadRequestError; ``show``
    makes the response."""

    read: Callable[[Any], ControllerRequest]
    show: Callable[[Any], Message]


_DESCRIBE_CLUSTER = Whole(Operation.DESCRIBE)
_ALTER_CLUSTER = Whole(Operation.ALTER)
_OF_BROKERS = Whole(Operation.CLUSTER_ACTION, of_broker=True)

#: By service and method. An RPC that is not listed is refused.
METHODS: Mapping[str, Mapping[str, Rpc]] = {
    ADMIN_SERVICE: {
        "DescribeCluster": Rpc(_DESCRIBE_CLUSTER),
        "CreateTopics": Asked(
            Each(
                Operation.CREATE,
                "topics",
                "topics",
                _by_name,
                lambda entry: pb.CreatedTopic(name=entry.name),
                cluster_suffices=True,
            ),
            topics.read_creation,
            topics.show_creation,
        ),
        "CreatePartitions": Asked(
            Each(
                Operation.ALTER,
                "topics",
                "results",
                _by_name,
                lambda entry: pb.CreatePartitionsResult(name=entry.name),
            ),
            topics.read_expansion,
            topics.show_expansion,
        ),
        "DeleteTopics": Asked(
            Each(
                Operation.DELETE,
                "topics",
                "responses",
                _by_name,
                # A topic given by id has no name here: for Kafka the name is secret, but not the id.
                lambda entry: pb.DeletedTopic(name=entry.name, topic_id=entry.topic_id),
            ),
            admin.read_deletion,
            admin.show_deletion,
            loses=always,
        ),
        "ListTopicDeletions": Rpc(Shown(Operation.DESCRIBE, "topics", _by_name)),
        "AlterPartitionReassignments": Asked(
            _ALTER_CLUSTER, admin.read_reassignment, admin.show_reassignment
        ),
        "ListPartitionReassignments": Asked(_DESCRIBE_CLUSTER, admin.read_listing, admin.show_listing),
        "ElectLeaders": Asked(
            Whole(Operation.ALTER, also=_losing_election),
            admin.read_election,
            admin.show_election,
            loses=lambda request: bool(_losing_election(request)),
        ),
        "AlterConfigs": Asked(
            Each(
                Operation.ALTER_CONFIGS,
                "resources",
                "responses",
                lambda entry: _config_resource(entry.resource),
                lambda entry: pb.AlterConfigsResult(resource=entry.resource),
                also=_losing_config,
            ),
            topics.read_alteration,
            topics.show_alteration,
        ),
        "DescribeConfigs": Asked(
            Each(
                Operation.DESCRIBE_CONFIGS,
                "resources",
                "results",
                _config_resource,
                lambda entry: pb.DescribeConfigsResult(resource=entry),
                named_once=False,
            ),
            topics.read_description,
            topics.show_description,
        ),
        "DescribeFeatures": Asked(_DESCRIBE_CLUSTER, features.read_description, features.show_description),
        "UpdateFeatures": Asked(_ALTER_CLUSTER, features.read_update, features.show_update),
        "DescribeMaintenance": Rpc(_DESCRIBE_CLUSTER),
        "SetPause": Asked(_ALTER_CLUSTER, maintenance.read_pause, maintenance.show_outcome),
        "SetMaintenance": Asked(_ALTER_CLUSTER, maintenance.read_maintenance, maintenance.show_outcome),
        "SetDrain": Asked(_ALTER_CLUSTER, maintenance.read_drain, maintenance.show_outcome),
        "SetFreeze": Asked(_ALTER_CLUSTER, maintenance.read_freeze, maintenance.show_outcome),
        "ForgetBroker": Asked(
            Whole(Operation.ALTER, also=lambda _: [(Operation.LOSE_DATA, CLUSTER)]),
            maintenance.read_forgetting,
            maintenance.show_outcome,
            loses=always,
        ),
        "CancelShutdown": Asked(_ALTER_CLUSTER, maintenance.read_cancel, maintenance.show_outcome),
        "ListQuarantine": Rpc(_DESCRIBE_CLUSTER),
        "ReleaseQuarantine": Rpc(_ALTER_CLUSTER),
        "ResignController": Rpc(_ALTER_CLUSTER),
        "ClaimController": Rpc(_ALTER_CLUSTER),
        "DescribeReplicas": Rpc(_DESCRIBE_CLUSTER),
        "DescribeTopics": Rpc(
            Each(
                Operation.DESCRIBE,
                "topics",
                "topics",
                lambda entry: topic(entry if isinstance(entry, str) else entry.name),
                lambda entry: inspection_pb2.TopicDescription(name=entry),
                named_once=False,
                none_means_all=True,
            )
        ),
        "Audit": Rpc(_DESCRIBE_CLUSTER),
        "Explain": Rpc(Whole(Operation.DESCRIBE, _explained)),
        "Plan": Rpc(_DESCRIBE_CLUSTER),
        "DryRun": Rpc(_ALTER_CLUSTER, quiet=True),
        "CheckStoppable": Rpc(_DESCRIBE_CLUSTER),
        "ApproveStop": Rpc(Whole(Operation.ALTER, also=_overriding)),
        "WithdrawStopApproval": Asked(_ALTER_CLUSTER, inspection.read_withdrawal, inspection.show_withdrawal),
        "ListHistory": Rpc(_DESCRIBE_CLUSTER),
        "Watch": Rpc(_DESCRIBE_CLUSTER),
    },
    CONTROLLER_SERVICE: {
        "AlterPartition": Rpc(_OF_BROKERS, quiet=True),
        "ControlledShutdown": Rpc(_OF_BROKERS),
        "AllocateProducerIds": Rpc(_OF_BROKERS),
    },
}

#: The methods of AdminService that the machine handles.
ASKED: Mapping[str, Asked] = {
    name: method for name, method in METHODS[ADMIN_SERVICE].items() if isinstance(method, Asked)
}


def request_of(service: str, method: str) -> type[Message]:
    """The request's class. Raises KeyError for a method that proto/ does not have."""
    return message_factory.GetMessageClass(_SERVICES[service].methods_by_name[method].input_type)


def response_of(service: str, method: str) -> type[Message]:
    """The response's class. Raises KeyError for a method that proto/ does not have."""
    return message_factory.GetMessageClass(_SERVICES[service].methods_by_name[method].output_type)
