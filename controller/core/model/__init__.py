"""The controller's cluster state: brokers, topics, partitions, replicas and their states. Imported from here.

A million partitions must fit in about a gigabyte. So tuples of broker ids are shared through ``interned``, and the
replica states of a partition are one shared tuple parallel to ``Partition.replicas``.

Not here: decisions.
"""

from controller.core.model.broker_ids import (
    BROKER_ID_MAX,
    EPOCH_MAX,
    LEADER_DURING_DELETE,
    NO_EPOCH,
    NO_LEADER,
    REPLICAS_MAX,
    SHARED_LENGTH_MAX,
    BrokerIds,
    DirectoryIds,
    interned,
    members,
    of_several,
    shared_directories,
)
from controller.core.model.brokers import (
    Broker,
    ControlProtocol,
    Endpoint,
    FeatureRange,
    Flapping,
    Forgotten,
    StopApproval,
    lacks_directory,
    without_data,
)
from controller.core.model.cluster import PROBLEMS_SHOWN_MAX, Cluster
from controller.core.model.leadership import RECOVERED, RECOVERING, LeaderAndIsr, LeaderRecoveryState
from controller.core.model.maintenance import Attribution, Freeze, Maintenance, Suspension, SuspensionKind
from controller.core.model.reassignments import Ineligible, Reassignments
from controller.core.model.states import (
    PartitionState,
    ReplicaState,
    ReplicaStates,
    shared_states,
    uniform_states,
    with_state,
)
from controller.core.model.topics import Partition, Topic

__all__ = [
    "BROKER_ID_MAX",
    "EPOCH_MAX",
    "LEADER_DURING_DELETE",
    "NO_EPOCH",
    "NO_LEADER",
    "PROBLEMS_SHOWN_MAX",
    "RECOVERED",
    "RECOVERING",
    "REPLICAS_MAX",
    "SHARED_LENGTH_MAX",
    "Attribution",
    "Broker",
    "BrokerIds",
    "Cluster",
    "ControlProtocol",
    "DirectoryIds",
    "Endpoint",
    "FeatureRange",
    "Flapping",
    "Forgotten",
    "Freeze",
    "Ineligible",
    "LeaderAndIsr",
    "LeaderRecoveryState",
    "Maintenance",
    "Partition",
    "PartitionState",
    "Reassignments",
    "ReplicaState",
    "ReplicaStates",
    "StopApproval",
    "Suspension",
    "SuspensionKind",
    "Topic",
    "interned",
    "lacks_directory",
    "members",
    "of_several",
    "shared_directories",
    "shared_states",
    "uniform_states",
    "with_state",
    "without_data",
]
