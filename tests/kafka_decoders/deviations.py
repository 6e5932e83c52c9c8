"""Where our decoders differ from Kafka's on purpose: the one table, each entry with its reason.

Equal are: the same value; both refuse; we refuse what Kafka passes over in silence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from controller.core.cluster.configs import entity_problem

INT_MAX = 2**31 - 1
_OURS = ("original_replicas", "queued_replicas", "stray_replicas")
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_UUID = re.compile(r"[A-Za-z0-9_-]{21}[AQgw]")


@dataclass(frozen=True)
class Compared:
    """One input, what Kafka makes of it and what we do, both as the helper answers."""

    who: str
    znode: str
    data: bytes
    kafka: dict[str, Any]
    ours: dict[str, Any]

    @property
    def equal(self) -> bool:
        if "value" in self.ours and "value" in self.kafka:
            return bool(self.ours["value"] == self.kafka["value"])
        return "value" not in self.ours and "value" not in self.kafka

    @property
    def refused(self) -> bool:
        """By us alone."""
        return "value" in self.kafka and "value" not in self.ours

    @property
    def accepted(self) -> bool:
        """By us alone."""
        return "value" in self.ours and "value" not in self.kafka

    @cached_property
    def document(self) -> Any:
        """The JSON as a lenient reader has it; None where there is none."""
        try:
            text = self.data.decode(json.detect_encoding(self.data), "surrogateescape")
            return json.JSONDecoder(strict=False).raw_decode(text.lstrip(" \t\r\n"))[0]
        except (ValueError, RecursionError):
            return None

    def field(self, name: str) -> Any:
        """A field of the document, None where it is not."""
        return self.document.get(name) if isinstance(self.document, dict) else None


@dataclass(frozen=True)
class Deviation:
    name: str
    znodes: str
    reason: str
    applies: Callable[[Compared], bool]


def _leaves(value: object) -> Iterator[object]:
    match value:
        case dict():
            for name, below in value.items():
                yield name
                yield from _leaves(below)
        case list():
            for below in value:
                yield from _leaves(below)
        case _:
            yield value


def _lists(value: object) -> Iterator[list[Any]]:
    below: Sequence[object] = list(value.values()) if isinstance(value, dict) else []
    if isinstance(value, list):
        yield value
        below = value
    for item in below:
        yield from _lists(item)


def _is_int(value: object, low: int = -(2**31), high: int = INT_MAX) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


# --- what we alone refuse ----------------------------------------------------------------------------------


def _odd_number(found: Compared) -> bool:
    """Kafka's value has a negative number, or an epoch that cannot grow."""
    value = found.kafka.get("value")
    leaves = list(_leaves(value))
    if isinstance(value, dict) and value.get("leader") == -1:
        leaves.remove(-1)
    numbers = [int(str(n)) for n in leaves if isinstance(n, int) or re.fullmatch(r"-\d+", str(n))]
    return any(n < 0 or n == INT_MAX for n in numbers)


def _repeated(found: Compared) -> bool:
    both = [found.kafka["value"], found.document]
    return any(len(ids) != len(set(map(str, ids))) for ids in _lists(both))


def _cut(found: Compared) -> bool:
    if found.znode == "state":
        return found.field("leader_recovery_state") not in (0, 1)
    return any(isinstance(n, int) and not 0 <= n < 2**15 for n in _leaves(found.field("features")))


def _no_address(found: Compared) -> bool:
    endpoints = found.kafka["value"]["endpoints"]
    return not endpoints or not all(1 <= port <= 65535 for *_, port in endpoints)


def _unread(found: Compared) -> bool:
    """A field that Kafka does not look at, or not in this version, is of another kind than it is there."""
    kinds: dict[str, dict[str, Any]] = {
        "controller": {"endpoint": str},
        "broker": {"host": (str, type(None)), "endpoints": (list, type(None)),
                   "listener_security_protocol_map": (dict, type(None))},
        "config_change": {"entity_path": str, "entity_type": str, "entity_name": str},
        "topic": dict.fromkeys(_OURS, dict),
    }  # fmt: skip
    document = found.document or {}
    if any(
        name in document and not isinstance(document[name], kind) for name, kind in kinds[found.znode].items()
    ):
        return True
    if found.znode == "broker":
        inner = [
            *_leaves(document.get("endpoints")),
            *_leaves(document.get("listener_security_protocol_map")),
        ]
        return not _is_int(document.get("port", 0), -1, 65535) or not all(isinstance(x, str) for x in inner)
    if found.znode != "topic":
        return False
    listed = document["partitions"]
    moves = [document[name] for name in ("adding_replicas", "removing_replicas", *_OURS) if name in document]
    return any(number not in listed for by_number in moves for number in by_number)


def _no_text(found: Compared) -> bool:
    """Bytes or escapes that stand for no character, or for a control character."""
    try:
        text = found.data.decode(json.detect_encoding(found.data))
    except ValueError:
        return True
    return re.search(r"\\u(?:[dD][89a-fA-F]|00[01])", text) is not None


def _nameless(found: Compared) -> bool:
    value = found.kafka["value"]
    match found.znode:
        case "cluster_id":
            return bool(value == "")
        case "feature":
            return "" in value["features"]
    entity = value if isinstance(value, str) and found.who == "controller" else f"topics/{value}"
    if value is None:  # the broker looks at topics only
        return str(found.field("entity_path")).endswith("/") or found.field("entity_name") == ""
    return entity_problem(entity) is not None


def _padded(found: Compared) -> bool:
    return re.search(rb"\d{20}", found.data) is not None


def _guessed(found: Compared) -> bool:
    for entry in found.field("partitions"):
        number = entry.get("partition")
        if not isinstance(entry.get("topic"), str) or isinstance(number, float) or number in (None, ""):
            return True
        if isinstance(number, str) and not re.fullmatch(r"-?(?:0|[1-9]\d{0,9})", number, re.ASCII):
            return True
    return False


# --- what we alone accept, or read otherwise ---------------------------------------------------------------


def _listed(found: Compared) -> list[Any]:
    value = found.ours.get("value")
    return value["endpoints"] if isinstance(value, dict) else []


def _other_protocol(found: Compared) -> bool:
    known = found.field("listener_security_protocol_map")
    names = (
        known
        if isinstance(known, dict)
        else ()
        if "listener_security_protocol_map" in found.document
        else None
    )
    return any(
        protocol not in _PROTOCOLS or (names is not None and listener not in names)
        for listener, protocol, *_ in _listed(found)
    ) or (names is not None and not all(str(name).upper() in _PROTOCOLS for name in known.values()))


def _unlisted(found: Compared) -> bool:
    return not any(isinstance(x, str) and x.strip() for x in found.field("endpoints") or ()) and bool(
        _listed(found)
    )


def _feature_label(found: Compared) -> bool:
    features = found.field("features") or {}
    return any(not _is_int(level) for labels in features.values() for level in labels.values())


def _parser_limit(found: Compared) -> bool:
    too_long = re.search(rb"\d{1001}", found.data) or re.search(rb'"[^"]{50001}', found.data)
    return bool(too_long) or max(found.data.count(b"["), found.data.count(b"{")) > 1000 or _no_text(found)


def _other_id(found: Compared) -> bool:
    return "topic_id" in (found.document or {}) and not _UUID.fullmatch(str(found.field("topic_id")))


def _spelt_twice(found: Compared) -> bool:
    numbers = [
        key
        for name in ("partitions", "adding_replicas", "removing_replicas")
        for key in found.field(name) or ()
    ]
    return any(not re.fullmatch(r"0|[1-9]\d*", key, re.ASCII) for key in numbers)


def _numbered_twice(found: Compared) -> bool:
    spelt = [key for key in found.field("partitions") or () if re.fullmatch(r"[+-]?\d+", key)]
    return len({int(key) for key in spelt}) < len(spelt)


def _extras(found: Compared) -> bool:
    known = {"version", "partitions", "topic", "partition", "replicas"}
    names = set(re.findall(r'"((?:[^"\\]|\\.)*)"\s*:', found.data.decode(errors="replace"), re.DOTALL))
    once = all(found.data.count(f'"{name}":'.encode()) <= 1 for name in ("version", "partitions"))
    entries = found.document["partitions"]
    twice = not once or any(
        found.data.count(f'"{name}":'.encode()) > len(entries) for name in ("topic", "partition", "replicas")
    )
    numbers = [
        found.field("version"),
        *(n for entry in entries for n in (entry["partition"], *entry["replicas"])),
    ]
    return not names <= known or twice or not all(map(_is_int, numbers))


def _of(*rows: tuple[str, str, str, Callable[[Compared], bool]]) -> tuple[Deviation, ...]:
    return tuple(Deviation(*row) for row in rows)


REFUSED = _of(
    (
        "odd number",
        "controller controller_epoch state topic producer_ids",
        "A negative id, epoch or partition is nobody's, and the next decision adds one to an "
        "epoch, which goes over the wire in 32 bits.",
        _odd_number,
    ),
    (
        "replica twice",
        "topic state",
        "A replica counted twice would count twice towards min.insync.replicas.",
        _repeated,
    ),
    (
        "no replicas",
        "topic",
        "A partition without replicas can have no leader.",
        lambda found: found.who == "controller" and [] in found.kafka["value"]["partitions"].values(),
    ),
    (
        "topic id",
        "topic",
        "Ids are compared, not computed with: one that is not spelt as Kafka spells it would be another one.",
        _other_id,
    ),
    (
        "partition twice",
        "topic",
        "0 and 00 are one partition: Kafka takes the last of them.",
        _numbered_twice,
    ),
    (
        "no partitions",
        "topic",
        "Kafka takes a topic without the field for one without partitions, and would write it "
        "back like that. We report it.",
        lambda found: "partitions" not in (found.document or {}),
    ),
    ("cut number", "state broker feature", "Kafka cuts numbers to 8 or 16 bits: 65537 becomes 1.", _cut),
    (
        "no address",
        "broker",
        "Nobody can reach a broker without an endpoint, or on a port there cannot be.",
        _no_address,
    ),
    (
        "unread field",
        "controller broker config_change topic",
        "Kafka does not look at it (in this version, or as it is ours); of the wrong kind it "
        "shows a writer that does not know the format.",
        _unread,
    ),
    (
        "no text",
        "*",
        "What is no Unicode could not be written back, and Kafka trims control characters.",
        _no_text,
    ),
    (
        "no configuration",
        "config",
        "Kafka takes everything without an object `config` for an empty configuration: defaults "
        "come into force in silence. We report it.",
        lambda found: found.kafka["value"] == {} and not isinstance(found.field("config"), dict),
    ),
    (
        "name",
        "config_change cluster_id feature",
        "Nothing is called so: no topic, broker, cluster or feature.",
        _nameless,
    ),
    (
        "padded number",
        "controller_epoch topic producer_ids",
        "Numbers of more than 20 digits are not looked at.",
        _padded,
    ),
    (
        "guessed partition",
        "reassignment",
        "Kafka takes a missing or odd partition for 0 or for what is before its decimal point, "
        "and a number for a topic's name: replicas of a partition that nobody named would move.",
        _guessed,
    ),
    (
        "backward block",
        "producer_ids",
        "Ids of a block that ends before it starts would be given out twice.",
        lambda found: found.kafka["value"][2] < found.kafka["value"][1],
    ),
)
ACCEPTED = _of(
    ("jmx_port", "broker", "We do not use it.", lambda found: not _is_int(found.field("jmx_port"))),
    (
        "protocol",
        "broker",
        "Our brokers have protocols of their own; without a mapping the listener's name is the protocol's.",
        _other_protocol,
    ),
    (
        "host and port",
        "broker",
        "Where there are no endpoints, host and port are one, in any version.",
        _unlisted,
    ),
    (
        "feature's label",
        "broker feature",
        "Labels besides minimum and maximum are not looked at.",
        _feature_label,
    ),
    (
        "limit of the parser",
        "*",
        "Kafka's parser limits and validates what nobody reads, too.",
        _parser_limit,
    ),
    ("no topic id", "topic", "An empty one is none.", lambda found: found.field("topic_id") == ""),
    (
        "count only",
        "topic",
        "The broker counts partitions and looks at nothing else.",
        lambda found: found.who == "broker_stub",
    ),
    (
        "blanks",
        "controller_epoch",
        "Written by hand with a line end.",
        lambda found: found.data != found.data.strip(),
    ),
    (
        "type",
        "config_change",
        "Version 1 may tell of any type; the broker passes over all but topics.",
        lambda found: found.field("version") == 1 or found.who == "broker_stub",
    ),
    (
        "only a maximum",
        "feature",
        "A level is both minimum and maximum, in version 1 too.",
        lambda found: found.field("version") == 1,
    ),
    (
        "no block yet",
        "producer_ids",
        "Brokers create the znode empty; Kafka looks at that before it decodes.",
        lambda found: not found.data,
    ),
    (
        "large block",
        "producer_ids",
        "Only where a block ends matters.",
        lambda found: found.ours["value"][2] - found.ours["value"][1] >= INT_MAX,
    ),
    (
        "extras",
        "reassignment",
        "Kafka refuses fields it does not know, ids beyond 32 bits or written as texts, and all "
        "moves with them; we look at each move by itself. It is strict about the first of two "
        "values of a field, too.",
        _extras,
    ),
)
DIFFERENT = _of(
    (
        "host and port",
        "broker",
        "Where there are no endpoints, host and port are one, in any version.",
        _unlisted,
    ),
    (
        "spelt otherwise",
        "topic",
        "01 and 1 are the same partition, also for what is added and removed.",
        _spelt_twice,
    ),
)


def deviation(found: Compared) -> str | None:
    """The name of the first entry that explains why two answers differ; None when none does."""
    table = REFUSED if found.refused else ACCEPTED if found.accepted else DIFFERENT
    for entry in table:
        if (entry.znodes == "*" or found.znode in entry.znodes.split()) and entry.applies(found):
            return entry.name
    return None
