from proto import broker_control_pb2 as _broker_control_pb2
from proto import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DescribeClusterRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BrokerDescription(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "endpoints", "rack", "leader_count", "replica_count", "pending_pushes", "push_problem")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    LEADER_COUNT_FIELD_NUMBER: _ClassVar[int]
    REPLICA_COUNT_FIELD_NUMBER: _ClassVar[int]
    PENDING_PUSHES_FIELD_NUMBER: _ClassVar[int]
    PUSH_PROBLEM_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    endpoints: _containers.RepeatedCompositeFieldContainer[_broker_control_pb2.Endpoint]
    rack: str
    leader_count: int
    replica_count: int
    pending_pushes: int
    push_problem: str
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., endpoints: _Optional[_Iterable[_Union[_broker_control_pb2.Endpoint, _Mapping]]] = ..., rack: _Optional[str] = ..., leader_count: _Optional[int] = ..., replica_count: _Optional[int] = ..., pending_pushes: _Optional[int] = ..., push_problem: _Optional[str] = ...) -> None: ...

class DescribeClusterResponse(_message.Message):
    __slots__ = ("error_code", "controller_id", "controller_epoch", "event_id", "brokers", "topic_count", "partition_count", "offline_partition_count", "preferred_replica_imbalance_count", "problems")
    class ProblemsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_ID_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_COUNT_FIELD_NUMBER: _ClassVar[int]
    PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    OFFLINE_PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    PREFERRED_REPLICA_IMBALANCE_COUNT_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    controller_id: int
    controller_epoch: int
    event_id: int
    brokers: _containers.RepeatedCompositeFieldContainer[BrokerDescription]
    topic_count: int
    partition_count: int
    offline_partition_count: int
    preferred_replica_imbalance_count: int
    problems: _containers.ScalarMap[str, str]
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., controller_id: _Optional[int] = ..., controller_epoch: _Optional[int] = ..., event_id: _Optional[int] = ..., brokers: _Optional[_Iterable[_Union[BrokerDescription, _Mapping]]] = ..., topic_count: _Optional[int] = ..., partition_count: _Optional[int] = ..., offline_partition_count: _Optional[int] = ..., preferred_replica_imbalance_count: _Optional[int] = ..., problems: _Optional[_Mapping[str, str]] = ...) -> None: ...
