"""Kafka's own command-line tools, run by bootstrap servers; always those of the newest version."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from controller.embedded_kafka.jars import KAFKA, NEWEST
from controller.embedded_zookeeper.ensemble import find_java

TIMEOUT_S = 90.0
_LOG4J = """\
log4j.rootLogger=WARN, err
log4j.appender.err=org.apache.log4j.ConsoleAppender
log4j.appender.err.Target=System.err
log4j.appender.err.layout=org.apache.log4j.PatternLayout
log4j.appender.err.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


class Tool(StrEnum):
    """A tool's main class."""

    ACLS = "kafka.admin.AclCommand"
    BROKER_API_VERSIONS = "kafka.admin.BrokerApiVersionsCommand"
    CONFIGS = "kafka.admin.ConfigCommand"
    CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    DUMP_LOG = "kafka.tools.DumpLogSegments"
    FEATURES = "org.apache.kafka.tools.FeatureCommand"
    LEADER_ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
    LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
    PRODUCER_PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
    REASSIGN_PARTITIONS = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    TOPICS = "org.apache.kafka.tools.TopicCommand"
    TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
    VERIFIABLE_PRODUCER = "org.apache.kafka.tools.VerifiableProducer"


#: Tools whose bootstrap servers are not named by --bootstrap-server.
_PRODUCERS = {Tool.PRODUCER_PERFORMANCE}
#: By tool, the option that names a file of client settings; the others call it --command-config.
_CONFIG_OPTION: Mapping[Tool, str] = {
    Tool.CONSOLE_CONSUMER: "--consumer.config",
    Tool.LEADER_ELECTION: "--admin.config",
    Tool.PRODUCER_PERFORMANCE: "--producer.config",
    Tool.VERIFIABLE_PRODUCER: "--producer.config",
}
_OFFLINE = {Tool.DUMP_LOG}


@dataclass
class KafkaTools:
    """The tools for one cluster. ``directory``: for files; ``client``: settings of their clients (security)."""

    bootstrap: str
    directory: Path
    client: Mapping[str, str] = field(default_factory=dict)
    jvm_options: Sequence[str] = ()

    def command(self, tool: Tool, *arguments: str) -> list[str]:
        """The command line, with bootstrap servers and client settings. Raises EnvironmentFault."""
        self.directory.mkdir(parents=True, exist_ok=True)
        log4j = self.directory / "log4j-tools.properties"
        log4j.write_text(_LOG4J)
        java = [find_java(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *self.jvm_options,
                f"-Dlog4j.configuration=file:{log4j}", "-cp", KAFKA.class_path(NEWEST), tool.value]  # fmt: skip
        return [*java, *([] if tool in _OFFLINE else self._connection(tool)), *arguments]

    def run(
        self, tool: Tool, *arguments: str, timeout_s: float = TIMEOUT_S
    ) -> subprocess.CompletedProcess[str]:
        """Run a tool to its end; its exit code and output are the caller's to judge.

        Raises subprocess.TimeoutExpired after killing it, and EnvironmentFault.
        """
        return subprocess.run(
            self.command(tool, *arguments),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    def _connection(self, tool: Tool) -> list[str]:
        if tool in _PRODUCERS:
            found = ["--producer-props", f"bootstrap.servers={self.bootstrap}"]
        else:
            found = ["--bootstrap-server", self.bootstrap]
        if self.client:
            path = self.directory / "client.properties"
            path.write_text("".join(f"{name}={value}\n" for name, value in self.client.items()))
            found += [_CONFIG_OPTION.get(tool, "--command-config"), str(path)]
        return found
