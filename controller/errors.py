"""The one exception tree of the controller.

::

    ControllerError
    ├── ConfigError                 a setting is wrong: names key, value and what is allowed; exit 2
    ├── MalformedError              outside data is unreadable: names path, field and problem
    ├── TooLargeError               a write that ZooKeeper would not take; not sent
    ├── EnvironmentFault            this machine lacks something (Java, a jar, a free port)
    └── LeadershipError             we may not act (any more): resign and reload
        ├── FencedError             a newer controller epoch exists
        ├── SessionLostError        the ZooKeeper session expired or was closed
        └── LeaseExpiredError       our own clock says that the session may have expired

Anything outside this tree that reaches the top is a bug: state is dumped and the process exits
non-zero, for systemd to restart it.
"""

from __future__ import annotations

#: Of a setting's value that its error repeats.
VALUE_CHARS_MAX = 200
#: Of what a library says about outside data, which it may quote.
WORDS_MAX = 300


def printable(text: str) -> str:
    """For people: what comes from outside must not be able to move the cursor or forge a line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def in_words(error: Exception) -> str:
    """What a library says about outside data, as part of one printable line."""
    if isinstance(error, RecursionError):
        return "is nested too deeply"
    text = str(error)
    if len(text) > WORDS_MAX:
        # The place comes last.
        text = f"{text[: WORDS_MAX // 2]} ... {text[-WORDS_MAX // 2 :]}"
    return printable(text)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= VALUE_CHARS_MAX else f"{text[:VALUE_CHARS_MAX]}... ({len(text)} characters)"


class ControllerError(Exception):
    """Base of everything this project raises on purpose."""


class ConfigError(ControllerError):
    """A setting is unusable.

    ``key`` and ``value`` are as the user wrote them, ``allowed`` says what would be right, ``source`` where
    it came from (flag, environment variable, file).
    """

    def __init__(self, key: str, value: object, allowed: str, source: str = "") -> None:
        self.key, self.value, self.allowed, self.source = key, value, allowed, source
        origin = f" (from {source})" if source else ""
        name = key if key.isprintable() else repr(key)
        super().__init__(f"{name[:VALUE_CHARS_MAX]} = {_shown(value)}{origin}: must be {allowed}")


class MalformedError(ControllerError):
    """Data from outside (a znode, a message) does not decode."""

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(f"{path}: {problem}")


class TooLargeError(ControllerError):
    """A request that ZooKeeper would answer by ending the connection; it was not sent."""


class EnvironmentFault(ControllerError):  # noqa: N818  (a fault of the surroundings, not of a call)
    """The machine lacks what is needed; the message says what to install or free."""


class LeadershipError(ControllerError):
    """We may not act as the active controller."""


class FencedError(LeadershipError):
    """A write found a newer ``/controller_epoch`` (reference, section 1.2)."""


class SessionLostError(LeadershipError):
    """The ZooKeeper session is gone, and every ephemeral node with it."""


class LeaseExpiredError(LeadershipError):
    """No answer from ZooKeeper for so long that the session may have expired (reference, section 14, point 12)."""
