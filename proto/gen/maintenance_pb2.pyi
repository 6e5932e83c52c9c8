from proto.gen import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Attribution(_message.Message):
    __slots__ = ("reason", "author")
    REASON_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    reason: str
    author: str
    def __init__(self, reason: _Optional[str] = ..., author: _Optional[str] = ...) -> None: ...

class DescribeMaintenanceRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeMaintenanceResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "paused", "maintenance", "entered_automatically", "drained", "shutting_down", "gone", "known_brokers", "offline_limit", "accepted", "frozen", "frozen_until_ms")
    class DrainedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: Attribution
        def __init__(self, key: _Optional[int] = ..., value: _Optional[_Union[Attribution, _Mapping]] = ...) -> None: ...
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    MAINTENANCE_FIELD_NUMBER: _ClassVar[int]
    ENTERED_AUTOMATICALLY_FIELD_NUMBER: _ClassVar[int]
    DRAINED_FIELD_NUMBER: _ClassVar[int]
    SHUTTING_DOWN_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    KNOWN_BROKERS_FIELD_NUMBER: _ClassVar[int]
    OFFLINE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    FROZEN_FIELD_NUMBER: _ClassVar[int]
    FROZEN_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    paused: Attribution
    maintenance: Attribution
    entered_automatically: bool
    drained: _containers.MessageMap[int, Attribution]
    shutting_down: _containers.RepeatedScalarFieldContainer[int]
    gone: _containers.RepeatedScalarFieldContainer[int]
    known_brokers: int
    offline_limit: int
    accepted: _containers.RepeatedScalarFieldContainer[int]
    frozen: Attribution
    frozen_until_ms: int
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., paused: _Optional[_Union[Attribution, _Mapping]] = ..., maintenance: _Optional[_Union[Attribution, _Mapping]] = ..., entered_automatically: _Optional[bool] = ..., drained: _Optional[_Mapping[int, Attribution]] = ..., shutting_down: _Optional[_Iterable[int]] = ..., gone: _Optional[_Iterable[int]] = ..., known_brokers: _Optional[int] = ..., offline_limit: _Optional[int] = ..., accepted: _Optional[_Iterable[int]] = ..., frozen: _Optional[_Union[Attribution, _Mapping]] = ..., frozen_until_ms: _Optional[int] = ...) -> None: ...

class SetPauseRequest(_message.Message):
    __slots__ = ("paused", "reason", "author")
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    paused: bool
    reason: str
    author: str
    def __init__(self, paused: _Optional[bool] = ..., reason: _Optional[str] = ..., author: _Optional[str] = ...) -> None: ...

class SetMaintenanceRequest(_message.Message):
    __slots__ = ("entered", "reason", "author")
    ENTERED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    entered: bool
    reason: str
    author: str
    def __init__(self, entered: _Optional[bool] = ..., reason: _Optional[str] = ..., author: _Optional[str] = ...) -> None: ...

class SetFreezeRequest(_message.Message):
    __slots__ = ("frozen", "reason", "author", "until_ms")
    FROZEN_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    frozen: bool
    reason: str
    author: str
    until_ms: int
    def __init__(self, frozen: _Optional[bool] = ..., reason: _Optional[str] = ..., author: _Optional[str] = ..., until_ms: _Optional[int] = ...) -> None: ...

class ForgetBrokerRequest(_message.Message):
    __slots__ = ("broker_id", "reason", "author")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    reason: str
    author: str
    def __init__(self, broker_id: _Optional[int] = ..., reason: _Optional[str] = ..., author: _Optional[str] = ...) -> None: ...

class SetDrainRequest(_message.Message):
    __slots__ = ("broker_id", "drained", "reason", "author", "force")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    DRAINED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    drained: bool
    reason: str
    author: str
    force: bool
    def __init__(self, broker_id: _Optional[int] = ..., drained: _Optional[bool] = ..., reason: _Optional[str] = ..., author: _Optional[str] = ..., force: _Optional[bool] = ...) -> None: ...

class CancelShutdownRequest(_message.Message):
    __slots__ = ("broker_id", "broker_epoch")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class OperatorResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "remaining")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REMAINING_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    remaining: _containers.RepeatedCompositeFieldContainer[_common_pb2.PartitionName]
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., remaining: _Optional[_Iterable[_Union[_common_pb2.PartitionName, _Mapping]]] = ...) -> None: ...

class ResignControllerRequest(_message.Message):
    __slots__ = ("to_kafka", "reason", "author", "successor")
    TO_KAFKA_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    SUCCESSOR_FIELD_NUMBER: _ClassVar[int]
    to_kafka: bool
    reason: str
    author: str
    successor: int
    def __init__(self, to_kafka: _Optional[bool] = ..., reason: _Optional[str] = ..., author: _Optional[str] = ..., successor: _Optional[int] = ...) -> None: ...

class ClaimControllerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListQuarantineRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Suspect(_message.Message):
    __slots__ = ("name", "event", "detail", "error", "digest", "count", "quarantined", "controller_id", "controller_epoch", "at_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_ID_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    event: str
    detail: str
    error: str
    digest: str
    count: int
    quarantined: bool
    controller_id: int
    controller_epoch: int
    at_ms: int
    def __init__(self, name: _Optional[str] = ..., event: _Optional[str] = ..., detail: _Optional[str] = ..., error: _Optional[str] = ..., digest: _Optional[str] = ..., count: _Optional[int] = ..., quarantined: _Optional[bool] = ..., controller_id: _Optional[int] = ..., controller_epoch: _Optional[int] = ..., at_ms: _Optional[int] = ...) -> None: ...

class ListQuarantineResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "suspects")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SUSPECTS_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    suspects: _containers.RepeatedCompositeFieldContainer[Suspect]
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., suspects: _Optional[_Iterable[_Union[Suspect, _Mapping]]] = ...) -> None: ...

class ReleaseQuarantineRequest(_message.Message):
    __slots__ = ("name", "reason", "author")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    name: str
    reason: str
    author: str
    def __init__(self, name: _Optional[str] = ..., reason: _Optional[str] = ..., author: _Optional[str] = ...) -> None: ...
