from proto.gen import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AuditVerdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    AUDIT_NOT_YET: _ClassVar[AuditVerdict]
    AUDIT_EQUAL: _ClassVar[AuditVerdict]
    AUDIT_DIFFERENT: _ClassVar[AuditVerdict]
    AUDIT_PENDING: _ClassVar[AuditVerdict]
    AUDIT_UNREACHABLE: _ClassVar[AuditVerdict]
    AUDIT_PARTIAL: _ClassVar[AuditVerdict]
AUDIT_NOT_YET: AuditVerdict
AUDIT_EQUAL: AuditVerdict
AUDIT_DIFFERENT: AuditVerdict
AUDIT_PENDING: AuditVerdict
AUDIT_UNREACHABLE: AuditVerdict
AUDIT_PARTIAL: AuditVerdict

class TopicPartitionDescription(_message.Message):
    __slots__ = ("partition", "leader", "leader_epoch", "partition_epoch", "replicas", "isr", "adding_replicas", "removing_replicas", "offline_replicas", "error_code", "leader_problem")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    ADDING_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    REMOVING_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    OFFLINE_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    LEADER_PROBLEM_FIELD_NUMBER: _ClassVar[int]
    partition: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    isr: _containers.RepeatedScalarFieldContainer[int]
    adding_replicas: _containers.RepeatedScalarFieldContainer[int]
    removing_replicas: _containers.RepeatedScalarFieldContainer[int]
    offline_replicas: _containers.RepeatedScalarFieldContainer[int]
    error_code: _common_pb2.ErrorCode
    leader_problem: str
    def __init__(self, partition: _Optional[int] = ..., leader: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., partition_epoch: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ..., isr: _Optional[_Iterable[int]] = ..., adding_replicas: _Optional[_Iterable[int]] = ..., removing_replicas: _Optional[_Iterable[int]] = ..., offline_replicas: _Optional[_Iterable[int]] = ..., error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., leader_problem: _Optional[str] = ...) -> None: ...

class TopicDescription(_message.Message):
    __slots__ = ("name", "topic_id", "error_code", "error_message", "partitions")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    error_code: _common_pb2.ErrorCode
    error_message: str
    partitions: _containers.RepeatedCompositeFieldContainer[TopicPartitionDescription]
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ..., error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[TopicPartitionDescription, _Mapping]]] = ...) -> None: ...

class DescribeTopicsRequest(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topics: _Optional[_Iterable[str]] = ...) -> None: ...

class DescribeTopicsResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "topics")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    topics: _containers.RepeatedCompositeFieldContainer[TopicDescription]
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., topics: _Optional[_Iterable[_Union[TopicDescription, _Mapping]]] = ...) -> None: ...

class DescribeReplicasRequest(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topics: _Optional[_Iterable[str]] = ...) -> None: ...

class ReplicaOnDisk(_message.Message):
    __slots__ = ("broker", "size_bytes", "offset_lag", "on_failed_disk")
    BROKER_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    OFFSET_LAG_FIELD_NUMBER: _ClassVar[int]
    ON_FAILED_DISK_FIELD_NUMBER: _ClassVar[int]
    broker: int
    size_bytes: int
    offset_lag: int
    on_failed_disk: bool
    def __init__(self, broker: _Optional[int] = ..., size_bytes: _Optional[int] = ..., offset_lag: _Optional[int] = ..., on_failed_disk: _Optional[bool] = ...) -> None: ...

class PartitionOnDisk(_message.Message):
    __slots__ = ("topic", "partition", "replicas")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    replicas: _containers.RepeatedCompositeFieldContainer[ReplicaOnDisk]
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., replicas: _Optional[_Iterable[_Union[ReplicaOnDisk, _Mapping]]] = ...) -> None: ...

class SilentBroker(_message.Message):
    __slots__ = ("broker", "why")
    BROKER_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    broker: int
    why: str
    def __init__(self, broker: _Optional[int] = ..., why: _Optional[str] = ...) -> None: ...

class DescribeReplicasResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "partitions", "silent")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    SILENT_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionOnDisk]
    silent: _containers.RepeatedCompositeFieldContainer[SilentBroker]
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[PartitionOnDisk, _Mapping]]] = ..., silent: _Optional[_Iterable[_Union[SilentBroker, _Mapping]]] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("partition", "broker", "controller", "deletion", "reassignment")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    DELETION_FIELD_NUMBER: _ClassVar[int]
    REASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.PartitionName
    broker: int
    controller: bool
    deletion: str
    reassignment: _common_pb2.PartitionName
    def __init__(self, partition: _Optional[_Union[_common_pb2.PartitionName, _Mapping]] = ..., broker: _Optional[int] = ..., controller: _Optional[bool] = ..., deletion: _Optional[str] = ..., reassignment: _Optional[_Union[_common_pb2.PartitionName, _Mapping]] = ...) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "explanation")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    explanation: str
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., explanation: _Optional[str] = ...) -> None: ...

class PlanRequest(_message.Message):
    __slots__ = ("broker_loss", "rack_loss", "rolling_restart", "drain", "preferred_election", "min_isr_default", "list_writes", "batch")
    BROKER_LOSS_FIELD_NUMBER: _ClassVar[int]
    RACK_LOSS_FIELD_NUMBER: _ClassVar[int]
    ROLLING_RESTART_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    PREFERRED_ELECTION_FIELD_NUMBER: _ClassVar[int]
    MIN_ISR_DEFAULT_FIELD_NUMBER: _ClassVar[int]
    LIST_WRITES_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    broker_loss: BrokerSet
    rack_loss: str
    rolling_restart: BrokerSet
    drain: int
    preferred_election: bool
    min_isr_default: int
    list_writes: bool
    batch: int
    def __init__(self, broker_loss: _Optional[_Union[BrokerSet, _Mapping]] = ..., rack_loss: _Optional[str] = ..., rolling_restart: _Optional[_Union[BrokerSet, _Mapping]] = ..., drain: _Optional[int] = ..., preferred_election: _Optional[bool] = ..., min_isr_default: _Optional[int] = ..., list_writes: _Optional[bool] = ..., batch: _Optional[int] = ...) -> None: ...

class BrokerSet(_message.Message):
    __slots__ = ("broker_ids",)
    BROKER_IDS_FIELD_NUMBER: _ClassVar[int]
    broker_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, broker_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class PlanResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "plan", "safe")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    SAFE_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    plan: str
    safe: bool
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., plan: _Optional[str] = ..., safe: _Optional[bool] = ...) -> None: ...

class DryRunRequest(_message.Message):
    __slots__ = ("steps",)
    STEPS_FIELD_NUMBER: _ClassVar[int]
    steps: _containers.RepeatedCompositeFieldContainer[DryRunStep]
    def __init__(self, steps: _Optional[_Iterable[_Union[DryRunStep, _Mapping]]] = ...) -> None: ...

class DryRunStep(_message.Message):
    __slots__ = ("method", "request")
    METHOD_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    method: str
    request: bytes
    def __init__(self, method: _Optional[str] = ..., request: _Optional[bytes] = ...) -> None: ...

class DryRunResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "responses", "dry_run")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RESPONSES_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    responses: _containers.RepeatedScalarFieldContainer[bytes]
    dry_run: str
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., responses: _Optional[_Iterable[bytes]] = ..., dry_run: _Optional[str] = ...) -> None: ...

class CheckStoppableRequest(_message.Message):
    __slots__ = ("broker_ids", "min_isr_default", "tolerate_under_replicated")
    BROKER_IDS_FIELD_NUMBER: _ClassVar[int]
    MIN_ISR_DEFAULT_FIELD_NUMBER: _ClassVar[int]
    TOLERATE_UNDER_REPLICATED_FIELD_NUMBER: _ClassVar[int]
    broker_ids: _containers.RepeatedScalarFieldContainer[int]
    min_isr_default: int
    tolerate_under_replicated: bool
    def __init__(self, broker_ids: _Optional[_Iterable[int]] = ..., min_isr_default: _Optional[int] = ..., tolerate_under_replicated: _Optional[bool] = ...) -> None: ...

class CheckStoppableResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "answer", "stoppable")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    STOPPABLE_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    answer: str
    stoppable: bool
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., answer: _Optional[str] = ..., stoppable: _Optional[bool] = ...) -> None: ...

class ApproveStopRequest(_message.Message):
    __slots__ = ("check", "reason", "author", "override")
    CHECK_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    OVERRIDE_FIELD_NUMBER: _ClassVar[int]
    check: CheckStoppableRequest
    reason: str
    author: str
    override: bool
    def __init__(self, check: _Optional[_Union[CheckStoppableRequest, _Mapping]] = ..., reason: _Optional[str] = ..., author: _Optional[str] = ..., override: _Optional[bool] = ...) -> None: ...

class WithdrawStopApprovalRequest(_message.Message):
    __slots__ = ("broker_ids", "reason", "author")
    BROKER_IDS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    broker_ids: _containers.RepeatedScalarFieldContainer[int]
    reason: str
    author: str
    def __init__(self, broker_ids: _Optional[_Iterable[int]] = ..., reason: _Optional[str] = ..., author: _Optional[str] = ...) -> None: ...

class WithdrawStopApprovalResponse(_message.Message):
    __slots__ = ("error_code", "error_message")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ...) -> None: ...

class AuditRequest(_message.Message):
    __slots__ = ("topics", "recorded")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    RECORDED_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    recorded: bool
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., recorded: _Optional[bool] = ...) -> None: ...

class BrokerAudit(_message.Message):
    __slots__ = ("broker_id", "verdict", "why", "asked_at_ms", "differences", "topics_left", "age_s")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    ASKED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCES_FIELD_NUMBER: _ClassVar[int]
    TOPICS_LEFT_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    verdict: AuditVerdict
    why: str
    asked_at_ms: int
    differences: int
    topics_left: int
    age_s: float
    def __init__(self, broker_id: _Optional[int] = ..., verdict: _Optional[_Union[AuditVerdict, str]] = ..., why: _Optional[str] = ..., asked_at_ms: _Optional[int] = ..., differences: _Optional[int] = ..., topics_left: _Optional[int] = ..., age_s: _Optional[float] = ...) -> None: ...

class ReplicaProblem(_message.Message):
    __slots__ = ("topic", "partition", "broker_id", "kind", "what", "mend")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    MEND_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    broker_id: int
    kind: str
    what: str
    mend: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., broker_id: _Optional[int] = ..., kind: _Optional[str] = ..., what: _Optional[str] = ..., mend: _Optional[str] = ...) -> None: ...

class AuditResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "brokers", "problems", "problems_left")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_LEFT_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    brokers: _containers.RepeatedCompositeFieldContainer[BrokerAudit]
    problems: _containers.RepeatedCompositeFieldContainer[ReplicaProblem]
    problems_left: int
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., brokers: _Optional[_Iterable[_Union[BrokerAudit, _Mapping]]] = ..., problems: _Optional[_Iterable[_Union[ReplicaProblem, _Mapping]]] = ..., problems_left: _Optional[int] = ...) -> None: ...
