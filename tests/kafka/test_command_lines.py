"""The command lines of Kafka's tools; the tools themselves run in ``tests/kafka``."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.kafka import tools
from tests.support.kafka.tools import KafkaTools, Tool


@pytest.fixture(autouse=True)
def no_jars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "find_java", lambda: "java")
    monkeypatch.setattr(tools, "KAFKA", SimpleNamespace(class_path=lambda _: "jars"))


def options(tmp_path: Path, tool: Tool, client: dict[str, str]) -> list[str]:
    """What follows the tool's name, without arguments of the caller."""
    command = KafkaTools("h:1", tmp_path, client).command(tool, "--last")
    assert command[-1] == "--last"
    return command[command.index(tool) + 1 : -1]


@pytest.mark.parametrize(
    ("tool", "servers", "settings"),
    [
        (Tool.TOPICS, ["--bootstrap-server", "h:1"], "--command-config"),
        (Tool.CONSOLE_CONSUMER, ["--bootstrap-server", "h:1"], "--consumer.config"),
        (Tool.LEADER_ELECTION, ["--bootstrap-server", "h:1"], "--admin.config"),
        (Tool.VERIFIABLE_PRODUCER, ["--bootstrap-server", "h:1"], "--producer.config"),
        (Tool.PRODUCER_PERFORMANCE, ["--producer-props", "bootstrap.servers=h:1"], "--producer.config"),
        (Tool.DUMP_LOG, [], None),
    ],
)
def test_each_tool_gets_its_connection_by_its_own_options(
    tmp_path: Path, tool: Tool, servers: list[str], settings: str | None
) -> None:
    assert options(tmp_path, tool, {}) == servers
    file = tmp_path / "client.properties"
    secured = options(tmp_path, tool, {"security.protocol": "SSL"})
    assert secured == (servers if settings is None else [*servers, settings, str(file)])
    assert not secured or file.read_text() == "security.protocol=SSL\n"
