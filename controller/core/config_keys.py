"""Configuration keys of topics, brokers and controllers: their types and ranges (Kafka 3.9).

A key that is not here is stored unchanged and reported as unknown: brokers may know more keys than the controller.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

#: What is shown in place of a sensitive value (Kafka: ``Password.HIDDEN``).
HIDDEN = "[hidden]"
_SENSITIVE = ("password", "secret", "token", "credential", "jaas")
#: Keys of type PASSWORD that have none of these words in their names (KIP-651).
_PASSWORDS = ("ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.truststore.certificates")

INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1

#: Returns the problem of a value as text; None: the value is valid.
Check = Callable[[str], str | None]


def is_sensitive(key: str) -> bool:
    """Whether a value of this key is shown to nobody: of Kafka's type PASSWORD, also with a listener's prefix, or named
    like one. Brokers may know more keys than we do."""
    lower = key.lower()
    return any(word in lower for word in _SENSITIVE) or lower.endswith(_PASSWORDS)


def shown_value(key: str, value: str) -> str:
    """A configured value for people, logs and dumps."""
    return HIDDEN if is_sensitive(key) else value


def _number(low: int, high: int = LONG_MAX) -> Check:
    allowed = f"must be a whole number from {low} to {high}"

    def check(value: str) -> str | None:
        text = value.strip()
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", text) or not low <= int(text) <= high:
            return allowed
        return None

    return check


def _fraction(value: str) -> str | None:
    text = value.strip()
    valid = re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,18})?", text) and 0 <= float(text) <= 1
    return None if valid else "must be a number from 0 to 1"


def _boolean(value: str) -> str | None:
    return None if value.strip().lower() in ("true", "false") else "must be true or false"


def _one_of(*names: str) -> Check:
    return lambda value: None if value.strip() in names else f"must be one of {', '.join(names)}"


def _some_of(*names: str) -> Check:
    def check(value: str) -> str | None:
        given = [part.strip() for part in value.split(",")]
        return None if set(given) <= set(names) else f"must be a list of {', '.join(names)}"

    return check


def _throttled(value: str) -> str | None:
    valid = value.strip() in ("", "*") or all(
        re.fullmatch(r"[0-9]{1,9}:[0-9]{1,9}", part.strip()) for part in value.split(",")
    )
    return None if valid else "must be * or a list of PARTITION:BROKER"


def _any(value: str) -> str | None:
    del value
    return None


_INT_FROM_0, _LONG_FROM_0 = _number(0, INT_MAX), _number(0)
_INT_FROM_1, _LONG_FROM_1 = _number(1, INT_MAX), _number(1)
_COMPRESSION = _one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")

UNCLEAN, MIN_ISR = "unclean.leader.election.enable", "min.insync.replicas"
#: A topic's keys by which its partitions are decided or judged: plans tell topics apart by these alone.
HEEDED = (UNCLEAN, MIN_ISR)

TOPIC_KEYS: Mapping[str, Check] = {
    "cleanup.policy": _some_of("delete", "compact"),
    "compression.type": _COMPRESSION,
    "delete.retention.ms": _LONG_FROM_0,
    "file.delete.delay.ms": _LONG_FROM_0,
    "flush.messages": _LONG_FROM_1,
    "flush.ms": _LONG_FROM_0,
    "follower.replication.throttled.replicas": _throttled,
    "index.interval.bytes": _INT_FROM_0,
    "leader.replication.throttled.replicas": _throttled,
    "local.retention.bytes": _number(-2),
    "local.retention.ms": _number(-2),
    "max.compaction.lag.ms": _LONG_FROM_1,
    "max.message.bytes": _INT_FROM_0,
    "message.downconversion.enable": _boolean,
    "message.format.version": _any,
    "message.timestamp.after.max.ms": _LONG_FROM_0,
    "message.timestamp.before.max.ms": _LONG_FROM_0,
    "message.timestamp.difference.max.ms": _LONG_FROM_0,
    "message.timestamp.type": _one_of("CreateTime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": _fraction,
    "min.compaction.lag.ms": _LONG_FROM_0,
    MIN_ISR: _INT_FROM_1,
    "preallocate": _boolean,
    "remote.storage.enable": _boolean,
    "retention.bytes": _number(-1),
    "retention.ms": _number(-1),
    "segment.bytes": _number(14, INT_MAX),
    "segment.index.bytes": _number(4, INT_MAX),
    "segment.jitter.ms": _LONG_FROM_0,
    "segment.ms": _LONG_FROM_1,
    UNCLEAN: _boolean,
}

#: What of a controller's settings is dynamic, in the ranges of ``controller/runtime/config.py``.
CONTROLLER_KEYS: Mapping[str, Check] = {
    "auto_leader_rebalance_enable": _boolean,
    "broker_flapping_hold_seconds": _number(0, 3600),
    "delete_topic_enable": _boolean,
    "leader_imbalance_check_interval_seconds": _number(1, 10**7),
    "leader_imbalance_per_broker_percentage": _number(0, 100),
    "leader_rebalance_leaders_per_second": _number(0, 10**7),
    "maintenance_healthy_seconds": _number(0, 10**6),
    "maintenance_offline_brokers_min": _number(1, 10**6),
    "maintenance_offline_brokers_percentage": _number(0, 100),
    "reassignment_concurrent_moves_max": _number(0, 10**9),
    "reassignment_concurrent_moves_per_broker_max": _number(0, 10**9),
}

BROKER_KEYS: Mapping[str, Check] = {
    "background.threads": _INT_FROM_1,
    "compression.type": _COMPRESSION,
    "follower.replication.throttled.rate": _LONG_FROM_0,
    "leader.replication.throttled.rate": _LONG_FROM_0,
    "log.cleaner.threads": _INT_FROM_0,
    "log.cleanup.policy": _some_of("delete", "compact"),
    "log.flush.interval.messages": _LONG_FROM_1,
    "log.retention.bytes": _number(-1),
    "log.retention.ms": _number(-1),
    "log.segment.bytes": _number(14, INT_MAX),
    "max.connections": _INT_FROM_0,
    "message.max.bytes": _INT_FROM_0,
    MIN_ISR: _INT_FROM_1,
    "num.io.threads": _INT_FROM_1,
    "num.network.threads": _INT_FROM_1,
    "num.recovery.threads.per.data.dir": _INT_FROM_1,
    "num.replica.fetchers": _INT_FROM_1,
    "replica.alter.log.dirs.io.max.bytes.per.second": _LONG_FROM_0,
    UNCLEAN: _boolean,
}
