from proto.gen import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class UpgradeType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UPGRADE_TYPE_UNKNOWN: _ClassVar[UpgradeType]
    UPGRADE: _ClassVar[UpgradeType]
    SAFE_DOWNGRADE: _ClassVar[UpgradeType]
    UNSAFE_DOWNGRADE: _ClassVar[UpgradeType]
UPGRADE_TYPE_UNKNOWN: UpgradeType
UPGRADE: UpgradeType
SAFE_DOWNGRADE: UpgradeType
UNSAFE_DOWNGRADE: UpgradeType

class DescribeFeaturesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FeatureRange(_message.Message):
    __slots__ = ("name", "min_version_level", "max_version_level")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MIN_VERSION_LEVEL_FIELD_NUMBER: _ClassVar[int]
    MAX_VERSION_LEVEL_FIELD_NUMBER: _ClassVar[int]
    name: str
    min_version_level: int
    max_version_level: int
    def __init__(self, name: _Optional[str] = ..., min_version_level: _Optional[int] = ..., max_version_level: _Optional[int] = ...) -> None: ...

class DescribeFeaturesResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "finalized", "supported", "finalized_epoch")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FINALIZED_FIELD_NUMBER: _ClassVar[int]
    SUPPORTED_FIELD_NUMBER: _ClassVar[int]
    FINALIZED_EPOCH_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    finalized: _containers.RepeatedCompositeFieldContainer[FeatureRange]
    supported: _containers.RepeatedCompositeFieldContainer[FeatureRange]
    finalized_epoch: int
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., finalized: _Optional[_Iterable[_Union[FeatureRange, _Mapping]]] = ..., supported: _Optional[_Iterable[_Union[FeatureRange, _Mapping]]] = ..., finalized_epoch: _Optional[int] = ...) -> None: ...

class FeatureUpdate(_message.Message):
    __slots__ = ("name", "max_version_level", "upgrade_type")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MAX_VERSION_LEVEL_FIELD_NUMBER: _ClassVar[int]
    UPGRADE_TYPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    max_version_level: int
    upgrade_type: UpgradeType
    def __init__(self, name: _Optional[str] = ..., max_version_level: _Optional[int] = ..., upgrade_type: _Optional[_Union[UpgradeType, str]] = ...) -> None: ...

class UpdateFeaturesRequest(_message.Message):
    __slots__ = ("updates", "validate_only")
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    updates: _containers.RepeatedCompositeFieldContainer[FeatureUpdate]
    validate_only: bool
    def __init__(self, updates: _Optional[_Iterable[_Union[FeatureUpdate, _Mapping]]] = ..., validate_only: _Optional[bool] = ...) -> None: ...

class FeatureResult(_message.Message):
    __slots__ = ("name", "error_code", "error_message")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    name: str
    error_code: _common_pb2.ErrorCode
    error_message: str
    def __init__(self, name: _Optional[str] = ..., error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ...) -> None: ...

class UpdateFeaturesResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "results")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    results: _containers.RepeatedCompositeFieldContainer[FeatureResult]
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., results: _Optional[_Iterable[_Union[FeatureResult, _Mapping]]] = ...) -> None: ...
