"""Values of requests: where they are written, and what of them may be read in a log."""

from __future__ import annotations

import pytest

from controller.core.requests.configs import ConfigChange, ConfigResource, ConfigScope
from controller.core.requests.scram_credentials import ScramCredential
from controller.core.requests.topics import NewTopic

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("resource", "entity"),
    [
        (ConfigResource(ConfigScope.TOPIC, "t"), "topics/t"),
        (ConfigResource(ConfigScope.BROKER, "0"), "brokers/0"),
        (ConfigResource(ConfigScope.BROKER), "brokers/<default>"),
        (ConfigResource(ConfigScope.CONTROLLER), "controllers/<default>"),
    ],
)
def test_the_default_of_all_has_a_name_of_its_own(resource: ConfigResource, entity: str) -> None:
    assert resource.entity == entity


@pytest.mark.parametrize(
    "value",
    [
        ConfigChange("ssl.keystore.password", SECRET),
        NewTopic("t", configs={"ssl.keystore.password": SECRET}),
        ScramCredential(4096, SECRET),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_secret_is_in_no_text(value: object) -> None:
    assert SECRET not in repr(value)
    assert SECRET not in f"{[value]}"


def test_what_is_no_secret_is() -> None:
    assert "86400000" in repr(ConfigChange("retention.ms", "86400000"))
    assert "compact" in repr(NewTopic("t", configs={"cleanup.policy": "compact"}))
    assert "4096" in repr(ScramCredential(4096, SECRET))
