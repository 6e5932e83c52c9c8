"""``python -m controller.embedded_kafka [VERSION ...]``: fetch Kafka's jars; without a version, the newest."""

from __future__ import annotations

from controller.embedded_kafka.jars import KAFKA

if __name__ == "__main__":
    KAFKA.main()
