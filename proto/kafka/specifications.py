"""Kafka's message specifications, as the JSON files in a kafka-clients jar have them (``generator/`` in Kafka's sources
reads the same files).

Names are as in Kafka's files or in snake case, where Python calls something by them.
"""

from __future__ import annotations

import json
import keyword
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

#: Types of fixed size, and how struct calls them.
FIXED = {
    "bool": "?", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q", "float64": "d",
}  # fmt: skip
#: Types of any size that are no structures.
VARIABLE = {"string": "str", "bytes": "bytes", "uuid": "bytes"}
#: More versions than any message has.
_OPEN = 1000
_FOLDER = "common/message/"


class SpecificationError(Exception):
    """A specification has something that this generator does not know."""


class Versions(NamedTuple):
    """First to last, inclusive; none if the last is before the first."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str | None) -> Versions:
        """The versions that ``3``, ``3+``, ``3-5`` or ``none`` stands for."""
        if text is None or text == "none":
            return cls(0, -1)
        if text.endswith("+"):
            return cls(int(text[:-1]), _OPEN)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def __bool__(self) -> bool:
        return self.first <= self.last

    def within(self, other: Versions) -> Versions:
        return Versions(max(self.first, other.first), min(self.last, other.last))

    def test(self, among: Versions) -> str:
        """The condition that a version among the others is one of these; ``True`` and ``False`` if all or none is."""
        found = self.within(among)
        if not found:
            return "False"
        if found == among:
            return "True"
        if found.last == among.last:
            return f"version >= {found.first}"
        if found.first == among.first:
            return f"version <= {found.last}"
        return f"{found.first} <= version <= {found.last}"


class Field(NamedTuple):
    name: str
    #: Without the brackets of an array: of FIXED, of VARIABLE, or the name of a structure.
    type: str
    array: bool
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int
    ignorable: bool
    #: The default as Python writes it.
    default: str


class StructureSpec(NamedTuple):
    name: str
    versions: Versions
    fields: list[Field]


class MessageSpec(NamedTuple):
    name: str
    #: "request" or "response".
    kind: str
    api_key: int
    versions: Versions
    flexible: Versions
    #: Those inside others first; the last is the message.
    structures: list[StructureSpec]


def snake(name: str) -> str:
    """``isKRaftController`` is ``is_kraft_controller``, ``NewIsrWithEpochs`` is ``new_isr_with_epochs``."""
    found = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name.replace("KRaft", "Kraft"))
    found = found.lower()
    if keyword.iskeyword(found):
        raise SpecificationError(f"{name}: a keyword of Python")
    return found


def _default(name: str, field: dict[str, Any], array: bool) -> str:
    given, kind = field.get("default"), field["type"]
    if given == "null":
        return "None"
    if array:
        return "[]"
    if kind == "bool":
        return str(str(given).lower() == "true")
    if kind == "float64":
        return repr(float(given or 0))
    if kind in FIXED:
        return str(int(given, 0) if isinstance(given, str) else given or 0)
    if kind == "string":
        return json.dumps(given or "")
    if kind == "uuid":
        return "ZERO_UUID"
    if kind == "bytes":
        return 'b""'
    raise SpecificationError(f"{name}: a structure outside an array")


def _field(found: dict[str, Any], around: Versions) -> Field:
    name, kind = found["name"], found["type"].removeprefix("[]")
    array = found["type"].startswith("[]")
    versions = Versions.parse(found["versions"]).within(around)
    tagged = Versions.parse(found.get("taggedVersions")).within(around)
    nullable = Versions.parse(found.get("nullableVersions")).within(versions)
    if tagged and tagged != versions:
        raise SpecificationError(f"{name}: tagged in some versions only")
    if nullable and not array and (kind in FIXED or kind == "uuid"):
        raise SpecificationError(f"{name}: {found['type']} cannot be null")
    if "flexibleVersions" in found:
        raise SpecificationError(f"{name}: has flexible versions of its own")
    return Field(
        snake(name),
        kind,
        array,
        versions,
        nullable,
        tagged,
        int(found.get("tag", 0)),
        found.get("ignorable", False),
        _default(name, found, array),
    )


def _structures(
    name: str,
    fields: list[dict[str, Any]],
    around: Versions,
    common: dict[str, tuple[list[dict[str, Any]], Versions]],
) -> Iterator[StructureSpec]:
    for found in fields:
        kind = found["type"].removeprefix("[]")
        if "fields" in found:
            yield from _structures(
                kind, found["fields"], Versions.parse(found["versions"]).within(around), common
            )
        elif kind in common:
            yield from _structures(kind, *common[kind], common)
    parsed = [_field(found, around) for found in fields]
    yield StructureSpec(name, around, [field for field in parsed if field.versions])


def _parsed(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    return found


def message(text: str) -> MessageSpec:
    """One JSON file, which may have comments. Raises SpecificationError."""
    found = _parsed(text)
    versions = Versions.parse(found["validVersions"])
    common = {
        each["name"]: (each["fields"], Versions.parse(each["versions"]).within(versions))
        for each in found.get("commonStructs", [])
    }
    structures = {spec.name: spec for spec in _structures(found["name"], found["fields"], versions, common)}
    return MessageSpec(
        found["name"],
        found["type"],
        found["apiKey"],
        versions,
        Versions.parse(found["flexibleVersions"]).within(versions),
        list(structures.values()),
    )


def texts(jar: Path) -> dict[str, str]:
    """Name of each request and response in a kafka-clients jar to its specification. Raises OSError, BadZipFile."""
    with zipfile.ZipFile(jar) as archive:
        return {
            Path(name).stem: archive.read(name).decode()
            for name in archive.namelist()
            if name.startswith(_FOLDER) and name.endswith(("Request.json", "Response.json"))
        }


def apis(found: dict[str, str]) -> dict[str, tuple[int, Versions, Versions]]:
    """Name of each API to its key, its versions and those of them that are flexible, by key."""
    rows = {}
    for name, text in found.items():
        if name.endswith("Request"):
            spec = _parsed(text)
            rows[name.removesuffix("Request")] = (
                spec["apiKey"],
                Versions.parse(spec["validVersions"]),
                Versions.parse(spec["flexibleVersions"]),
            )
    return dict(sorted(rows.items(), key=lambda row: row[1]))
