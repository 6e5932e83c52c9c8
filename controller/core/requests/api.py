"""What a request to the active controller is, and what an answer. ``core/handlers.py`` has the table of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from controller.core.requests.errors import ErrorCode


class ControllerRequest:
    """The base of every request. Each may be asked again: what it did until then is found by its repetition."""


class ControllerResponse(Protocol):
    """An answer; each is made of an error alone, too."""

    @property
    def error(self) -> ErrorCode: ...


@dataclass(frozen=True)
class Reply:
    """The answer to the request that came with event ``serial``."""

    serial: int
    value: ControllerResponse
