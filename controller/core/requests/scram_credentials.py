"""Requests to alter what users' passwords are checked by (KIP-554)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from controller.core.requests.api import ControllerRequest
from controller.core.requests.errors import ErrorCode


class ScramCredential(msgspec.Struct, frozen=True):
    """``text``: as it is stored (``ScramCredentialUtils.credentialToString``)."""

    iterations: int
    text: str

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"


class ScramAlteration(msgspec.Struct, frozen=True):
    """One mechanism of one user. ``mechanism``: Kafka's name, which is the key of the user's configuration; None: not
    known. ``credential`` None: delete it."""

    user: str
    mechanism: str | None
    credential: ScramCredential | None = None


@dataclass(frozen=True)
class AlterScramCredentials(ControllerRequest):
    alterations: Sequence[ScramAlteration]


class ScramAltered(msgspec.Struct, frozen=True):
    """The result for one user: all of its alterations are made or none."""

    user: str
    error: ErrorCode
    message: str = ""


@dataclass(frozen=True)
class AlterScramCredentialsReply:
    """Each user once, in the request's order; empty with a top-level error."""

    error: ErrorCode
    users: Sequence[ScramAltered] = ()
