"""What a Kafka broker of ours is started with; brokers that run: tests/kafka."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from controller.embedded_kafka import brokers
from controller.embedded_kafka.brokers import SMALL, KafkaBroker, lasting_ports
from controller.embedded_kafka.jars import KAFKA
from controller.errors import EnvironmentFault


def broker(directory: Path, **more: str) -> KafkaBroker:
    return KafkaBroker(
        4, "h:1/kafka", directory, {"PLAINTEXT": 9092, "SSL": 9093}, properties=more, log_dirs=2
    )


def test_a_broker_is_told_who_it_is_and_given_properties_go_before_ours(tmp_path: Path) -> None:
    (small,) = (name for name in SMALL if name == "num.io.threads")
    found = broker(tmp_path, **{small: "9", "broker.id": "5"}).effective_properties()
    assert (found[small], found["broker.id"], found["zookeeper.connect"]) == ("9", "5", "h:1/kafka")
    assert found["listeners"] == "PLAINTEXT://127.0.0.1:9092,SSL://127.0.0.1:9093"
    assert found["log.dirs"] == f"{tmp_path / 'data-1'},{tmp_path / 'data-2'}"
    assert broker(tmp_path).effective_properties()[small] == SMALL[small]
    assert broker(tmp_path).address == "127.0.0.1:9092"


def test_a_logger_with_a_file_of_its_own_writes_to_that_one_only(tmp_path: Path) -> None:
    lines = brokers._log4j(tmp_path).splitlines()
    assert "log4j.logger.kafka.controller=INFO, controller" in lines
    assert "log4j.additivity.kafka.controller=false" in lines
    assert f"log4j.appender.controller.File={tmp_path / 'controller'}.log" in lines


def test_a_broker_that_is_started_again_releases_its_former_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released: list[object] = []
    launched: list[Any] = ["first", "second"]
    monkeypatch.setattr(brokers, "find_java", lambda: "java")
    monkeypatch.setattr(type(KAFKA), "class_path", lambda *_: "kafka.jar")
    monkeypatch.setattr(brokers, "release", released.append)
    monkeypatch.setattr(brokers, "launch", lambda *_: launched.pop(0))
    started = broker(tmp_path)
    for _ in range(2):
        started.start()
    process: Any = started.process
    assert [*released, process] == [None, "first", "second"]
    assert "broker.id=4\n" in (tmp_path / "server.properties").read_text()


def test_a_port_on_which_somebody_listens_is_not_given() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(EnvironmentFault):
            lasting_ports(1, range(port, port + 1))
