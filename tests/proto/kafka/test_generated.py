"""What the generator makes of a specification with one field of each kind, against bytes that were typed by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proto.kafka.generator import _Module, _table
from proto.kafka.primitives import MalformedMessageError
from proto.kafka.specifications import Versions, apis, message

UUID = bytes(range(16))
FIELDS: list[dict[str, Any]] = [
    {"name": "Id", "type": "int32", "versions": "0+"},
    {"name": "Flag", "type": "bool", "versions": "1+", "default": "true"},
    {"name": "Late", "type": "int16", "versions": "1+", "ignorable": True, "default": "-1"},
    # The generated reader has a variable of this name.
    {"name": "Data", "type": "string", "versions": "0+", "nullableVersions": "1+"},
    {"name": "Numbers", "type": "[]int64", "versions": "0+"},
    {"name": "Ids", "type": "[]int32", "versions": "0-1", "ignorable": True},
    {"name": "Names", "type": "[]string", "versions": "0+", "nullableVersions": "2+"},
    {"name": "Parts", "type": "[]Part", "versions": "0+", "fields": [
        {"name": "Part", "type": "int8", "versions": "0+", "default": "0x10"},
        {"name": "Owner", "type": "uuid", "versions": "1+", "ignorable": True},
        {"name": "Old", "type": "int16", "versions": "0", "ignorable": True},
    ]},
    {"name": "Places", "type": "[]Place", "versions": "3+", "ignorable": True},
    {"name": "Extra", "type": "int32", "versions": "2+", "taggedVersions": "2+", "tag": 1, "default": "7"},
    {"name": "Cluster", "type": "string", "versions": "3+", "taggedVersions": "3+", "tag": 0,
     "nullableVersions": "3+", "default": "null", "ignorable": True},
    {"name": "Never", "type": "int32", "versions": "9+"},
]  # fmt: skip
SPECIFICATION = "// a comment\n" + json.dumps(
    {
        "apiKey": 4,
        "type": "request",
        "name": "XRequest",
        "validVersions": "0-3",
        "flexibleVersions": "2+",
        "fields": FIELDS,
        "commonStructs": [
            {
                "name": "Place",
                "versions": "3+",
                "fields": [{"name": "Port", "type": "uint16", "versions": "3+"}],
            }
        ],
    }
)


@pytest.fixture
def made() -> dict[str, Any]:
    found: dict[str, Any] = {"__name__": "made"}
    exec(compile(_Module(message(SPECIFICATION)).source(), "made", "exec", dont_inherit=True), found)
    return found


def encoded(made: dict[str, Any], version: int) -> tuple[Any, str]:
    """A message with something in each field that this version has, and its bytes."""
    x, part = made["XRequest"], made["Part"]
    match version:
        case 0:
            return x(5, data="ab", numbers=[1], ids=[2, 3], names=["x"], parts=[part(4, old=9)]), (
                "00000005" "0002" "6162" "00000001" "0000000000000001" "00000002" "00000002" "00000003"
                "00000001" "0001" "78" "00000001" "04" "0009"
            )  # fmt: skip
        case 1:
            return x(5, False, 7, None, [], [2], [], [part(owner=UUID)]), (
                "00000005" "00" "0007" "ffff" "00000000" "00000001" "00000002" "00000000" "00000001" "10"
            ) + UUID.hex()  # fmt: skip
        case 2:
            return x(5, True, -1, None, [1], [], None, [part(4, UUID)], extra=9), (
                "00000005" "01" "ffff" "00" "02" "0000000000000001" "00" "02" "04"
                + UUID.hex() + "00" "01" "01" "04" "00000009"
            )  # fmt: skip
        case _:
            place = made["Place"](65535)
            return x(5, data="ab", names=["x"], places=[place], extra=9, cluster="c"), (
                "00000005" "01" "ffff" "03" "6162" "01" "02" "02" "78" "01" "02" "ffff" "00"
                "02" "00" "02" "02" "63" "01" "04" "00000009"
            )  # fmt: skip


@pytest.mark.parametrize("version", range(4))
def test_each_version_has_its_fields_in_their_order(made: dict[str, Any], version: int) -> None:
    given, data = encoded(made, version)
    assert given.encode(version).hex() == data
    assert made["XRequest"].decode(bytes.fromhex(data), version) == given


def test_a_class_says_what_it_is_the_message_of(made: dict[str, Any]) -> None:
    x = made["XRequest"]
    assert (4, range(4), 2) == (x.API_KEY, x.VERSIONS, x.FLEXIBLE)
    assert x.__struct_fields__ == (
        "id", "flag", "late", "data", "numbers", "ids", "names", "parts", "places", "extra", "cluster",
    )  # fmt: skip
    assert x() == x(0, True, -1, "", [], [], [], [], [], 7, None)


@pytest.mark.parametrize(
    ("version", "fields", "field"),
    [
        (0, {"flag": False}, "flag"),
        (0, {"data": None}, "data"),
        (1, {"names": None}, "names"),
        (1, {"extra": 8}, "extra"),
    ],
)
def test_what_a_version_cannot_carry_is_no_message(
    made: dict[str, Any], version: int, fields: dict[str, Any], field: str
) -> None:
    with pytest.raises(ValueError, match=rf"XRequest\.{field}: "):
        made["XRequest"](**fields).encode(version)


def test_what_may_be_ignored_is_left_out(made: dict[str, Any]) -> None:
    x, part = made["XRequest"], made["Part"]
    assert x(late=5, cluster="c").encode(0) == x().encode(0)
    assert x(cluster="c").encode(2) == x().encode(2)
    assert x(ids=[1], parts=[part(old=5)]).encode(2) == x(parts=[part()]).encode(2)


@pytest.mark.parametrize(
    ("version", "end", "found"),
    [
        (2, "00", 7),
        (2, "01" "05" "03" "616263", 7),
        (2, "02" "01" "04" "00000009" "05" "00", 9),
        (2, "01" "00" "02" "0263", 7),
        (2, "01" "01" "05" "0000000900", None),
        # What is left of it looks like the next one.
        (2, "02" "01" "05" "00000009" "05" "00", None),
        (2, "01" "01" "04" "000000", None),
    ],
    ids=["none", "unknown", "known and unknown", "of a later version", "too long", "two in one", "cut"],
)  # fmt: skip
def test_tagged_fields_are_taken_or_passed_over(
    made: dict[str, Any], version: int, end: str, found: int | None
) -> None:
    whole = made["XRequest"]().encode(version)
    assert whole[-1:] == b"\0"
    data = whole[:-1] + bytes.fromhex(end)
    if found is None:
        with pytest.raises(MalformedMessageError):
            made["XRequest"].decode(data, version)
    else:
        assert made["XRequest"].decode(data, version) == made["XRequest"](extra=found)


@pytest.mark.parametrize("version", [0, 1])
def test_null_is_read_where_the_version_has_it(made: dict[str, Any], version: int) -> None:
    data = made["XRequest"](7).encode(version)
    # Behind the fields of fixed size stands the length of `data`.
    at = 4 if version == 0 else 7
    nulled = data[:at] + b"\xff\xff" + data[at + 2 :]
    if version == 0:
        with pytest.raises(MalformedMessageError):
            made["XRequest"].decode(nulled, version)
    else:
        assert made["XRequest"].decode(nulled, version).data is None


def test_the_table_has_the_first_flexible_version_of_each_api() -> None:
    def of(name: str, key: int, flexible: str) -> str:
        return json.dumps(
            {"name": f"{name}Request", "apiKey": key, "validVersions": "1-3", "flexibleVersions": flexible}
        )

    rows = apis(
        {"AllRequest": of("All", 9, "0+"), "ZRequest": of("Z", 2, "none"), "LateRequest": of("Late", 5, "4+")}
    )
    assert list(rows) == ["Z", "Late", "All"]
    assert rows["All"] == (9, Versions(1, 3), Versions(0, 1000))
    source = _table(rows)
    assert "    9: 1,\n" in source
    assert "    2: None,\n    5: None,\n" in source
    assert "    Z = 2\n    LATE = 5\n    ALL = 9\n" in source
