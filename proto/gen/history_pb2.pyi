from proto.gen import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HistoryFilter(_message.Message):
    __slots__ = ("topic", "partition", "has_partition", "brokers", "controller_epoch", "kinds", "since_us", "until_us")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    HAS_PARTITION_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    SINCE_US_FIELD_NUMBER: _ClassVar[int]
    UNTIL_US_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    has_partition: bool
    brokers: _containers.RepeatedScalarFieldContainer[int]
    controller_epoch: int
    kinds: _containers.RepeatedScalarFieldContainer[str]
    since_us: int
    until_us: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., has_partition: _Optional[bool] = ..., brokers: _Optional[_Iterable[int]] = ..., controller_epoch: _Optional[int] = ..., kinds: _Optional[_Iterable[str]] = ..., since_us: _Optional[int] = ..., until_us: _Optional[int] = ...) -> None: ...

class ListHistoryRequest(_message.Message):
    __slots__ = ("filter", "limit", "standby_too")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    STANDBY_TOO_FIELD_NUMBER: _ClassVar[int]
    filter: HistoryFilter
    limit: int
    standby_too: bool
    def __init__(self, filter: _Optional[_Union[HistoryFilter, _Mapping]] = ..., limit: _Optional[int] = ..., standby_too: _Optional[bool] = ...) -> None: ...

class ListHistoryResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "records", "more", "oldest_us", "forgotten", "controller_id")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    OLDEST_US_FIELD_NUMBER: _ClassVar[int]
    FORGOTTEN_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_ID_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    records: _containers.RepeatedScalarFieldContainer[str]
    more: bool
    oldest_us: int
    forgotten: int
    controller_id: int
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., records: _Optional[_Iterable[str]] = ..., more: _Optional[bool] = ..., oldest_us: _Optional[int] = ..., forgotten: _Optional[int] = ..., controller_id: _Optional[int] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("filter", "whole_epoch")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    WHOLE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    filter: HistoryFilter
    whole_epoch: bool
    def __init__(self, filter: _Optional[_Union[HistoryFilter, _Mapping]] = ..., whole_epoch: _Optional[bool] = ...) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "records", "missed", "controller_id", "controller_epoch")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_ID_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    records: _containers.RepeatedScalarFieldContainer[str]
    missed: int
    controller_id: int
    controller_epoch: int
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., records: _Optional[_Iterable[str]] = ..., missed: _Optional[int] = ..., controller_id: _Optional[int] = ..., controller_epoch: _Optional[int] = ...) -> None: ...
