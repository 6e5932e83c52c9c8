"""The base types of requests to the active controller and its responses. ``core/handlers.py`` has the table of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from controller.core.requests.errors import ErrorCode


class ControllerRequest:
    """The base of every request. Every request may be repeated: the repetition finds what the first one wrote."""


class ControllerResponse(Protocol):
    """A response; each can be made from an error alone."""

    @property
    def error(self) -> ErrorCode: ...


@dataclass(frozen=True)
class Reply:
    """The response to the request of the event with this ``serial``."""

    serial: int
    value: ControllerResponse
