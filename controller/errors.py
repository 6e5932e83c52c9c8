"""The exception tree of the controller.

::

    ControllerError
    ├── ConfigError                 a setting is invalid: names key, value and what is allowed; exit code 2
    ├── MalformedError              external data does not decode: names path, field and problem
    ├── TooLargeError               a request above ZooKeeper's size limit; it was not sent
    ├── EnvironmentFault            this machine lacks something (Java, a jar, a free port)
    ├── DuplicateIdError            another running controller has this controller's id; exit code 1
    └── LeadershipError             this process is not the active controller (any more): resign and reload
        ├── FencedError             a newer controller epoch exists
        ├── OutrankedError          brokers have seen a higher controller epoch than ours
        ├── NamesakeError           a broker is registered with this controller's id
        ├── SessionLostError        the ZooKeeper session expired or was closed
        └── LeaseExpiredError       by the local clock the session may have expired

Any other exception is a bug, and the state is dumped. In a term of leadership it ends the term, and is remembered
(docs/adr/0014); elsewhere the process exits non-zero, and systemd restarts it.
"""

from __future__ import annotations

from proto.texts import is_secret

#: Characters of a setting's value that its error repeats.
VALUE_CHARS_MAX = 200


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= VALUE_CHARS_MAX else f"{text[:VALUE_CHARS_MAX]}... ({len(text)} characters)"


class ControllerError(Exception):
    """Base of all exceptions that this project raises deliberately."""


class ConfigError(ControllerError):
    """A setting is invalid.

    ``key`` and ``value`` are as the user wrote them, ``allowed`` describes the allowed values, ``source`` is
    the flag, environment variable or file.
    """

    def __init__(self, key: str, value: object, allowed: str, source: str = "") -> None:
        self.key, self.value, self.allowed, self.source = key, value, allowed, source
        origin = f" (from {source})" if source else ""
        name = key if key.isprintable() else repr(key)
        shown = "[hidden]" if is_secret(key) else _shown(value)
        super().__init__(f"{name[:VALUE_CHARS_MAX]} = {shown}{origin}: must be {allowed}")


class MalformedError(ControllerError):
    """External data (a znode, a message) does not decode."""

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(f"{path}: {problem}")


class TooLargeError(ControllerError):
    """A request so large that ZooKeeper would close the connection; it was not sent."""


class EnvironmentFault(ControllerError):  # noqa: N818  (a fault of the machine, not of a call)
    """The machine lacks something; the message says what to install or free."""


class DuplicateIdError(ControllerError):
    """Another process is running with this controller's id; the message names its host."""


class LeadershipError(ControllerError):
    """This process may not act as the active controller."""


class FencedError(LeadershipError):
    """A write found a newer ``/controller_epoch`` (reference, section 1.2)."""


class OutrankedError(LeadershipError):
    """Brokers have seen controller epoch ``epoch``, higher than ours although ``/controller`` is ours.

    ``/controller_epoch`` went back: it was deleted, or restored from a backup.
    """

    def __init__(self, epoch: int, ours: int) -> None:
        super().__init__(
            f"brokers have seen controller epoch {epoch}, ours is {ours}: /controller_epoch went back;"
            f" the next election exceeds {epoch}"
        )
        self.epoch = epoch


class NamesakeError(LeadershipError):
    """A Kafka broker has this controller's id: others take one for the other."""


class SessionLostError(LeadershipError):
    """The ZooKeeper session has ended, and its ephemeral znodes are deleted."""


class LeaseExpiredError(LeadershipError):
    """ZooKeeper has been silent so long that the session may have expired (reference, section 14, point 12)."""


def reason_of(error: Exception) -> str:
    """What an error says, or its name: timeouts and lost connections say nothing."""
    return str(error) or type(error).__name__
