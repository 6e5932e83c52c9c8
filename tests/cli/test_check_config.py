"""``partition-controller check-config`` and the exit codes of bad settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from controller.cli.main import main
from controller.runtime.config import SETTINGS


def check(*arguments: str, environment: dict[str, str] | None = None, verb: str = "check-config") -> Result:
    result = CliRunner(env=environment or {}).invoke(main, [verb, *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def shown(result: Result) -> dict[str, list[str]]:
    return {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines()[1:]}


def test_every_effective_setting_is_shown_with_its_source(tmp_path: Path) -> None:
    file = tmp_path / "controller.toml"
    file.write_text('delete_topic_enable = false\nhttp_listen = "[fe80::1]:80"\n')
    result = check(
        f"--config={file}",
        "--controller-id=4",
        environment={"PARTITION_CONTROLLER_REQUEST_TIMEOUT_MS": "777"},
    )
    # Printed all the same: the address is beyond this machine, and nothing guards it.
    assert result.exit_code == 2
    assert "http_listen = 'fe80::1'" in result.stderr
    assert result.stdout.splitlines()[0].split() == ["setting", "value", "from"]
    settings = shown(result)
    assert list(settings) == [setting.name for setting in SETTINGS]
    assert settings["controller_id"] == ["4", "flag"]
    assert settings["delete_topic_enable"] == ["false", "file", str(file)]
    assert settings["http_listen"] == ["[fe80::1]:80", "file", str(file)]
    assert settings["request_timeout_ms"] == [
        "777",
        "environment",
        "PARTITION_CONTROLLER_REQUEST_TIMEOUT_MS",
    ]
    assert settings["log_level"] == ["info", "default"]


@pytest.mark.parametrize("verb", ["check-config", "run"])
@pytest.mark.parametrize(
    ("flag", "says"),
    [
        (
            "--controller-id=-1",
            "controller_id = '-1' (from flag): must be a whole number from 0 to 2147483647",
        ),
        ("--zookeeper=:1", "zookeeper = ':1' (from flag): must be HOST:PORT"),
        ("--grpc-listen=x", "grpc_listen = 'x' (from flag): must be HOST:PORT"),
        ("--http-listen=127.0.0.1:9190", "http_listen = '127.0.0.1:9190': must be another address"),
        ("--state-log-dir=", "state_log_dir = '' (from flag): must be a path"),
        ("--session-timeout-ms=1s", "session_timeout_ms = '1s' (from flag): must be a whole number"),
        ("--config=/nowhere/x.toml", "config = '/nowhere/x.toml': must be a readable TOML file"),
    ],
)
def test_a_bad_setting_exits_2_naming_it(verb: str, flag: str, says: str) -> None:
    result = check(flag, verb=verb)
    assert result.exit_code == 2
    assert f"partition-controller: {says}" in result.stderr
    assert result.stdout == ""


_LEADS_KAFKA = {
    "KAFKA_TAKEOVER": "fallback",
    "CONTROLLER_ID": "9001",
    "GRPC_LISTEN": "127.0.0.1:0",
    "HTTP_LISTEN": "127.0.0.1:0",
}


@pytest.mark.parametrize("verb", ["check-config", "run"])
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"ZOOKEEPER_SASL_USERNAME": "x"}, "zookeeper_sasl_password_file = ''"),
        ({"ZOOKEEPER_SSL_CA": "/nowhere"}, "zookeeper_ssl_ca = '/nowhere'"),
        ({"SSL_KEY": "/nowhere"}, "ssl_certificate = ''"),
        ({"SSL_CERTIFICATE": "/nowhere", "SSL_CA": "/nowhere"}, "ssl_certificate = '/nowhere'"),
        ({"KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT"}, "kafka_sasl_username = ''"),
        (
            {**_LEADS_KAFKA, "KAFKA_SSL_PRINCIPAL_MAPPING_RULES": "RULE"},
            "kafka_ssl_principal_mapping_rules = ",
        ),
    ],
)
def test_what_a_start_would_refuse_the_check_refuses(
    verb: str, settings: dict[str, str], says: str, tmp_path: Path
) -> None:
    result = check(
        f"--state-log-dir={tmp_path}",
        verb=verb,
        environment={f"PARTITION_CONTROLLER_{name}": value for name, value in settings.items()},
    )
    assert result.exit_code == 2, result.output
    assert f"partition-controller: {says}" in result.stderr


def test_bad_environment_and_file_exit_2(tmp_path: Path) -> None:
    result = check(environment={"PARTITION_CONTROLLER_LOG_LEVEL": "loud"})
    assert (result.exit_code, "from environment PARTITION_CONTROLLER_LOG_LEVEL" in result.stderr) == (2, True)
    result = check(environment={"PARTITION_CONTROLLER_LOG_LEVLE": "info"})
    assert (result.exit_code, "PARTITION_CONTROLLER_LOG_LEVLE" in result.stderr) == (2, True)
    file = tmp_path / "controller.toml"
    file.write_text("controller_id = \n")
    result = check(f"--config={file}")
    assert (result.exit_code, "valid TOML" in result.stderr) == (2, True)


def test_unknown_flags_exit_2_and_help_shows_defaults() -> None:
    assert check("--nonsense=1").exit_code == 2
    helped = check("--help")
    assert helped.exit_code == 0
    assert "[default: 127.0.0.1:9190]" in " ".join(helped.stdout.split())
