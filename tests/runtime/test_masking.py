"""Sensitive values of configurations and settings: in no output, log or dump."""

from __future__ import annotations

import pytest

from broker_stub.errors import SettingError
from controller.core.config_keys import BROKER_KEYS, HIDDEN, TOPIC_KEYS, is_sensitive, shown_value
from controller.core.effects import StoredNode
from controller.core.requests.configs import (
    AlterConfigs,
    ConfigAlteration,
    ConfigChange,
    ConfigResource,
    ConfigScope,
)
from controller.core.requests.topics import CreateTopics, NewTopic
from controller.errors import ConfigError
from controller.runtime import config
from controller.runtime.zookeeper.node_text import node_text

SENSITIVE = (
    "ssl.keystore.password", "ssl.key.password", "listener.name.internal.ssl.truststore.password",
    "sasl.jaas.config", "listener.name.x.scram-sha-512.sasl.jaas.config", "password.encoder.secret",
    "ssl.keystore.key", "listener.name.x.ssl.keystore.key", "ssl.keystore.certificate.chain",
    "ssl.truststore.certificates", "delegation.token.master.key", "my.Secret", "aws.credentials", "api_token",
)  # fmt: skip


@pytest.mark.parametrize("key", SENSITIVE)
def test_what_is_sensitive(key: str) -> None:
    assert is_sensitive(key)
    assert shown_value(key, "hunter2") == HIDDEN


@pytest.mark.parametrize("key", [*TOPIC_KEYS, *BROKER_KEYS, "ssl.keystore.location", "ssl.key"])
def test_what_is_not(key: str) -> None:
    assert shown_value(key, "1") == "1"


def test_requests_do_not_tell_in_logs_and_crash_files() -> None:
    change = ConfigChange("ssl.key.password", "hunter2")
    altering = AlterConfigs([ConfigAlteration(ConfigResource(ConfigScope.BROKER, "1"), [change])])
    creating = CreateTopics([NewTopic("t", configs={"my.secret": "hunter2", "retention.ms": "77"})])
    for request in (altering, creating):
        text = str(request) + repr(request)
        assert HIDDEN in text
        assert "hunter2" not in text
    assert "'77'" in repr(creating)
    assert "None" in repr(ConfigChange("ssl.key.password", None))


def test_dry_runs_do_not_tell() -> None:
    text = node_text(
        "/config/brokers/1", StoredNode({"ssl.key.password": "hunter2", "num.io.threads": "3"}, 0)
    )
    assert text is not None
    assert HIDDEN in text
    assert "hunter2" not in text
    assert '"3"' in text


@pytest.mark.parametrize(
    "variable", ["PARTITION_CONTROLLER_KAFKA_SASL_PASSWORD", "PARTITION_CONTROLLER_TOKEN"]
)
def test_a_misspelt_setting_does_not_tell_its_value(variable: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config.load({}, environ={variable: "hunter2"})
    assert "hunter2" not in str(refused.value)
    assert HIDDEN in str(refused.value)
    assert "hunter2" not in str(SettingError("sasl_password", "hunter2", "x"))


def test_files_of_secrets_are_named() -> None:
    for error in (ConfigError, SettingError):
        assert "/run/x" in str(error("bearer_tokens_file", "/run/x", "a file"))
