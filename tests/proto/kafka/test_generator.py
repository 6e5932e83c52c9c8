"""The generator: names, versions, what it refuses, and that what is committed is what it writes."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from controller.embedded_kafka import jars
from proto.kafka import generator
from proto.kafka.generator import differing, modules
from proto.kafka.specifications import SpecificationError, Versions, apis, message, snake

JARS = sorted((jars.KAFKA.home() / jars.NEWEST).glob("kafka-clients-*.jar"))


@pytest.mark.skipif(not JARS, reason="Kafka's jars are not here: make kafka-jars")
def test_what_is_committed_is_what_the_jar_says() -> None:
    assert differing(modules(JARS[0])) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Topics", "topics"),
        ("topics", "topics"),
        ("isKRaftController", "is_kraft_controller"),
        ("NewIsrWithEpochs", "new_isr_with_epochs"),
        ("ThrottleTimeMs", "throttle_time_ms"),
        ("LeaderAndIsrRequest", "leader_and_isr_request"),
        ("UpdateRaftVoter", "update_raft_voter"),
        ("HTTPPort", "http_port"),
    ],
)
def test_names_of_kafka_become_snake_case(name: str, expected: str) -> None:
    assert snake(name) == expected


def test_a_range_of_versions_becomes_the_shortest_test() -> None:
    among = Versions(0, 7)
    tests = {
        "0+": "True",
        "2+": "version >= 2",
        "0-1": "version <= 1",
        "3": "3 <= version <= 3",
        "8+": "False",
    }
    assert {text: Versions.parse(text).test(among) for text in tests} == tests
    assert not Versions.parse("none")
    assert not Versions.parse(None)


def _spec(**field: Any) -> str:
    return "// a comment\n" + json.dumps(
        {
            "apiKey": 4,
            "type": "request",
            "name": "XRequest",
            "validVersions": "0-3",
            "flexibleVersions": "2+",
            "fields": [{"name": "A", "versions": "0+", **field}],
        }
    )


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        ({"type": "int32", "nullableVersions": "1+"}, "A: int32 cannot be null"),
        ({"type": "int32", "versions": "1+", "taggedVersions": "2+"}, "A: tagged in some versions only"),
        ({"type": "string", "flexibleVersions": "none"}, "A: has flexible versions of its own"),
        ({"type": "B", "fields": []}, "A: a structure outside an array"),
        ({"type": "int32", "name": "Class"}, "Class: a keyword of Python"),
    ],
)
def test_what_it_does_not_know_it_refuses(field: dict[str, Any], problem: str) -> None:
    with pytest.raises(SpecificationError, match=f"^{problem}$"):
        message(_spec(**field))


def test_what_differs_is_named_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = _spec(type="int32", default="0x10")
    jar = tmp_path / "kafka.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        for kind in ("Request", "Response"):
            archive.writestr(f"common/message/X{kind}.json", spec.replace("XRequest", f"X{kind}"))
    monkeypatch.setattr(generator, "SPOKEN", ("X",))
    monkeypatch.setattr(generator, "FOLDER", tmp_path / "out")
    monkeypatch.setattr(sys, "argv", ["generator", "--jar", str(jar)])
    assert generator.main() == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "__init__.py", "table.py", "x_request.py", "x_response.py",
    }  # fmt: skip
    assert "    a: int = 16\n" in (tmp_path / "out" / "x_request.py").read_text()
    assert apis({"XRequest": spec}) == {"X": (4, Versions(0, 3), Versions(2, 1000))}

    (tmp_path / "out" / "x_request.py").write_text("")
    (tmp_path / "out" / "old.py").write_text("")
    monkeypatch.setattr(sys, "argv", ["generator", "--jar", str(jar), "--check"])
    assert generator.main() == 1
    assert [line.rpartition("/")[2] for line in capsys.readouterr().out.splitlines()] == [
        "old.py: differs",
        "x_request.py: differs",
    ]
    monkeypatch.setattr(sys, "argv", ["generator", "--jar", str(jar)])
    assert generator.main() == 0
    assert differing(modules(jar)) == []
