"""Kafka's names of error codes, for texts."""

from __future__ import annotations

from proto.gen.common_pb2 import ErrorCode


def error_name(code: int) -> str:
    """The name; of a code that only a newer peer knows ``error 999``."""
    known = ErrorCode.DESCRIPTOR.values_by_number.get(code)
    return known.name if known is not None else f"error {code}"
