"""Kafka's jars, of the versions that have their checksums beside this module."""

from __future__ import annotations

from pathlib import Path

from controller.maven import PinnedJars

#: The newest first: tools of this version work with brokers of all.
VERSIONS = ("3.9.1", "3.6.2", "3.3.2", "2.8.2")
NEWEST = VERSIONS[0]
KAFKA = PinnedJars("kafka", "Kafka", Path(__file__).parent, VERSIONS)
