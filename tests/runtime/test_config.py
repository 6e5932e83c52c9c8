"""Settings: flag over environment over file over default, and every bad value named with what is allowed."""

from __future__ import annotations

import socket
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.context import CoreSettings
from controller.errors import ConfigError
from controller.runtime import config, process
from controller.runtime.config import Settings, describe, load
from controller.runtime.term import core_settings
from proto.addresses import join_address


def environment(**settings: str) -> dict[str, str]:
    return {f"PARTITION_CONTROLLER_{name.upper()}": value for name, value in settings.items()}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "controller.toml"


def test_defaults_are_kafkas_and_say_so() -> None:
    settings = load({}, None, {})
    assert settings == Settings(state_log_dir=Path("state-log"))
    assert settings.session_timeout_ms == 18_000
    assert settings.request_timeout_ms == 30_000
    assert settings.unclean_leader_election_enable is False
    assert settings.delete_topic_enable is True
    assert {source for _, _, source in describe(settings)} == {"default"}


def test_flag_over_environment_over_file_over_default(file: Path) -> None:
    file.write_text("controller_id = 1\nsession_timeout_ms = 1001\nrequest_timeout_ms = 101\n")
    settings = load(
        {"controller_id": "3", "session_timeout_ms": None},
        file,
        environment(controller_id="2", session_timeout_ms="1002"),
    )
    assert (settings.controller_id, settings.session_timeout_ms, settings.request_timeout_ms) == (
        3,
        1002,
        101,
    )
    assert settings.connection_timeout_ms == 18_000
    sources = {name: source for name, _, source in describe(settings)}
    assert sources["controller_id"] == "flag"
    assert sources["session_timeout_ms"] == "environment PARTITION_CONTROLLER_SESSION_TIMEOUT_MS"
    assert sources["request_timeout_ms"] == f"file {file}"
    assert sources["connection_timeout_ms"] == "default"


def test_a_value_that_is_overridden_is_not_looked_at(file: Path) -> None:
    file.write_text('controller_id = "junk"\n')
    assert load({"controller_id": 4}, file, {}).controller_id == 4


def test_decisions_are_given_every_setting_that_they_depend_on() -> None:
    defaults = core_settings(load({}, None, {}))
    for field in fields(CoreSettings):
        default = getattr(defaults, field.name)
        other = not default if isinstance(default, bool) else default + 1
        # Derived from another setting.
        takeover = {"kafka_takeover": "fallback", "controller_id": 1001}
        asked = takeover if field.name == "leads_kafka" else {field.name: other}
        given = core_settings(load(asked, None, {}))
        assert given == replace(defaults, **{field.name: other})


@pytest.mark.parametrize("mode", ["fallback", "exclusive"])
def test_a_controller_that_claims_has_no_id_of_a_broker(mode: str) -> None:
    for id_ in ({}, {"controller_id": 1000}):
        with pytest.raises(ConfigError) as caught:
            load({"kafka_takeover": mode, **id_}, None, {})
        assert (caught.value.key, f"above 1000 with kafka_takeover = {mode}" in str(caught.value)) == (
            "controller_id",
            True,
        )
    with pytest.raises(ConfigError, match=r"from default"):
        load({"kafka_takeover": mode}, None, {})
    with pytest.raises(ConfigError, match=r"from flag"):
        load({"kafka_takeover": mode, "controller_id": 7}, None, {})
    assert load({"kafka_takeover": mode, "controller_id": 1001}, None, {}).controller_id == 1001
    assert load({"controller_id": 1}, None, {}).controller_id == 1


def test_describe_lists_every_setting_once() -> None:
    assert [name for name, _, _ in describe(Settings())] == [setting.name for setting in config.SETTINGS]
    assert {n: v for n, v, _ in describe(Settings())}["delete_topic_enable"] == "true"


BAD: list[tuple[str, list[Any], str]] = [
    (
        "controller_id",
        ["", "x", "-1", "2147483648", "1.0", 1.5, True, "1e3", [1], "99999999999999", "٣"],
        "0 to 2147483647",
    ),
    (
        "zookeeper",
        [
            "",
            ":2181",
            "h:",
            "h:x",
            "h:1,",
            "h:1/a b",
            "h:1//",
            "http://h:1",
            "h:70000",
            ["h:1"],
            "h:0",
            "h:1/a/../b",
            "h:1/..",
            "a..b:1",
            f"{'x' * 64}:1",
        ],
        "HOST",
    ),
    (
        "grpc_listen",
        ["", "9190", ":9190", "h:", "h:70000", "h:-1", "h 1:1", "::1:1", "a..b:1", 9190, True],
        "HOST:PORT",
    ),
    ("http_listen", ["h", "h:65536", "[::1]"], "HOST:PORT"),
    (
        "advertised_host",
        ["h:1", "10.0.0.1:9190", "h/1", "a b", "http://h", ".h", "a..b", "\udcff"],
        "host name",
    ),
    ("state_log_dir", ["", " ", "a\0b", "\udcff", True, 7, ["x"]], "path"),
    ("session_timeout_ms", ["999", "600001", "18s", "18_000", 18000.0], "1000 to 600000"),
    ("connection_timeout_ms", ["99", "600001", ""], "100 to 600000"),
    ("warm_standby", ["maybe", "2"], "true or false"),
    ("audit_interval_seconds", ["0", "3601", "x"], "1 to 3600"),
    ("broker_flapping_hold_seconds", ["-1", "3601", "x"], "0 to 3600"),
    ("request_timeout_ms", ["99", "600001", "null"], "100 to 600000"),
    ("message_bytes_max", ["9999", "60000001", "1MiB"], "10000 to 60000000"),
    ("unclean_leader_election_enable", ["", "yes", "1", 1, 0, "t"], "true or false"),
    ("delete_topic_enable", ["no", "0", "enabled", []], "true or false"),
    ("reassignment_concurrent_moves_max", ["-1", "x", "1000000001"], "0 to 1000000000"),
    ("reassignment_concurrent_moves_per_broker_max", ["-1", "none", ""], "0 to 1000000000"),
    ("auto_leader_rebalance_enable", ["", "yes", "on", 1], "true or false"),
    ("leader_imbalance_check_interval_seconds", ["0", "-1", "5m"], "1 to 10000000"),
    ("leader_imbalance_per_broker_percentage", ["-1", "101", "10%"], "0 to 100"),
    ("leader_rebalance_leaders_per_second", ["-1", "x"], "0 to 10000000"),
    ("maintenance_offline_brokers_percentage", ["-1", "101", "half"], "0 to 100"),
    ("maintenance_offline_brokers_min", ["0", "-1", "x"], "1 to 1000000"),
    ("maintenance_healthy_seconds", ["-1", "30s"], "0 to 1000000"),
    ("state_log_rotate_bytes", ["4095", "-1", "x"], "4096 to 1099511627776"),
    ("state_log_rotate_seconds", ["0", "10000001"], "1 to 10000000"),
    ("state_log_files_kept", ["0", "-1"], "1 to 1000000"),
    ("history_records_max", ["999", "1000001", "-1"], "1000 to 1000000"),
    (
        "otlp_endpoint",
        ["127.0.0.1:4317", "grpc://h:1", "http://h", "http://h:1/v1", 4317],
        "http://HOST:PORT",
    ),
    ("log_level", ["", "verbose", 10], "debug, info, warning, error"),
    ("log_format", ["", "text", "JSON5"], "json, console"),
    ("num_partitions", ["0", "-1", "1000001", "x"], "1 to 1000000"),
    ("default_replication_factor", ["0", "-1", "32768", "x"], "1 to 32767"),
    ("delegation_token_expiry_check_interval_ms", ["999", "-1", "1h"], "1000 to 2147483647"),
    ("grpc_connections_max", [3, "3", "many"], "4 to 1000000"),
    ("http_connections_max", [3, "3", "many"], "4 to 100000"),
    ("kafka_takeover", ["", "on", "true", 1], "off, fallback, exclusive"),
    ("kafka_listen", ["", "x", ":9192", "h:65536", 5, "a://h:1", "A://h:1,h:2", "A://h:1,"], "HOST:PORT"),
    ("kafka_advertised_host", ["h:1", "a b", 7], "host name or address"),
    ("kafka_inter_broker_listener_name", ["internal", "A B", "A:", 7], "upper case"),
    ("kafka_control_plane_listener_name", ["control", "A://", 7], "upper case"),
    ("ssl_certificate", ["", "a\0b", 5], "a path"),
    ("ssl_key", ["", "a\0b", 5], "a path"),
    ("ssl_ca", ["", "a\0b", 5], "a path"),
    ("ssl_client_auth", ["", "yes", "requested", True], "required, none"),
    ("http_ssl_client_auth", ["yes", True], "required, requested, none"),
    ("http_ssl", ["yes", "1", 1], "true or false"),
    ("ssl_principal_mapping_rules", [5, True], "Kafka's rules"),
    ("bearer_tokens_file", ["", 5], "a path"),
    ("authorizer_file", ["", 5], "a path"),
    ("super_users", [5, True], "principals separated by semicolons"),
    ("allow_everyone", ["", "yes", 1], "true or false"),
    ("insecure_listen", ["", "yes", True, "I accept"], "refused, accepted"),
    ("kafka_ssl_certificate", ["", "a\0b", 5], "a path"),
    ("kafka_ssl_key", ["", "a\0b", 5], "a path"),
    ("kafka_ssl_ca", ["", "a\0b", 5], "a path"),
    ("kafka_ssl_client_auth", ["yes", True], "required, requested, none"),
    ("kafka_ssl_principal_mapping_rules", [5, True], "Kafka's rules"),
    ("kafka_sasl_mechanism", ["", "GSSAPI", "SCRAM"], "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
    (
        "kafka_sasl_enabled_mechanisms",
        ["GSSAPI", "PLAIN,", "PLAIN, SCRAM-SHA-256", "plain", 5],
        "separated by commas",
    ),
    ("kafka_sasl_username", ["a\nb", "a\0", 5], "a name in one line"),
    ("kafka_sasl_password_file", ["", 5], "a path"),
    ("kafka_sasl_users_file", ["", 5], "a path"),
    ("kafka_authorizer", ["", "acls", True], "none, acl"),
    ("kafka_super_users", [5, True], "principals separated by semicolons"),
    ("kafka_allow_everyone_if_no_acl_found", ["", "yes", 1], "true or false"),
    ("zookeeper_sasl_username", ["a\nb", 5], "a name in one line"),
    ("zookeeper_sasl_password_file", ["", 5], "a path"),
    ("zookeeper_sasl_mechanism", ["", "PLAIN", 5], "DIGEST-MD5, GSSAPI"),
    ("zookeeper_digest_username", ["a\nb", "a:b", 5], "a name in one line, without colon"),
    ("zookeeper_digest_password_file", ["", 5], "a path"),
    ("zookeeper_ssl_client_enable", ["", "yes", 1], "true or false"),
    ("zookeeper_ssl_certificate", ["", 5], "a path"),
    ("zookeeper_ssl_key", ["", 5], "a path"),
    ("zookeeper_ssl_ca", ["", 5], "a path"),
    ("zookeeper_set_acl", ["", "yes", 1], "true or false"),
    ("kafka_security_protocol", ["", "TLS", "PLAIN"], "PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
]
EACH = [(key, value, allowed) for key, values, allowed in BAD for value in values]


def test_the_table_knows_every_setting() -> None:
    assert {key for key, _, _ in BAD} == {setting.name for setting in config.SETTINGS}


@pytest.mark.parametrize(("key", "value", "allowed"), EACH, ids=[f"{k}={v!r}" for k, v, _ in EACH])
def test_bad_value_names_key_value_allowed_and_source(key: str, value: Any, allowed: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load({key: value}, None, {})
    error = raised.value
    assert (error.key, error.value, error.source) == (key, value, "flag")
    assert allowed in error.allowed
    assert str(error).startswith(f"{key} = {value!r} (from flag): must be ")


def test_the_source_of_a_bad_value_is_told(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"from environment PARTITION_CONTROLLER_CONTROLLER_ID"):
        load({}, None, environment(controller_id="x"))
    file.write_text("controller_id = -4\n")
    with pytest.raises(ConfigError, match=rf"controller_id = -4 \(from file {file}\)"):
        load({}, file, {})


#: Kafka's words where Kafka has the setting; those of docs/kafka.md, security.md and operations.md.
WORDS: dict[str, tuple[str, ...]] = {
    "kafka_security_protocol": ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "kafka_sasl_mechanism": ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
    "kafka_sasl_enabled_mechanisms": ("", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512,PLAIN,SCRAM-SHA-256"),
    "kafka_ssl_client_auth": ("", "required", "requested", "none"),
    "kafka_authorizer": ("none", "acl"),
    "kafka_listen": ("h:0", "EXTERNAL_1.a-b://h:1".upper(), "A://h:1,B://[::1]:65535"),
    "kafka_inter_broker_listener_name": ("", "INTERNAL_1.A-B"),
    "kafka_control_plane_listener_name": ("", "CONTROL_1.A-B"),
    "advertised_host": ("", "Host-1.example_a", "::1", "::", "fE80::1", "2001:db8::192.0.2.1", "10.0.0.1"),
    "ssl_client_auth": ("required", "none"),
    "http_ssl_client_auth": ("", "required", "requested", "none"),
    "insecure_listen": ("refused", "accepted"),
    "zookeeper_sasl_mechanism": ("DIGEST-MD5", "GSSAPI"),
    "log_level": ("debug", "info", "warning", "error"),
    "log_format": ("json", "console"),
    "otlp_endpoint": ("", "http://h:4317", "https://[::1]:4317"),
}


@pytest.mark.parametrize("mode", ["off", "fallback", "exclusive"])
def test_only_kafka_takeover_claims(mode: str) -> None:
    settings = load({"kafka_takeover": mode, "controller_id": 1001}, None, {})
    assert (settings.kafka_takeover, settings.leads_kafka) == (mode, mode != "off")


@pytest.mark.parametrize(
    ("key", "value", "effective"),
    [
        ("controller_id", " 7 ", 7),
        ("delete_topic_enable", "False", False),
        ("kafka_security_protocol", "sasl_ssl", "SASL_SSL"),
        ("kafka_authorizer", "ACL", "acl"),
        ("controller_id", 0, 0),
        ("zookeeper", "a:1,b:2,[::1]:3/kafka/prod", "a:1,b:2,[::1]:3/kafka/prod"),
        ("zookeeper", "zk", "zk"),
        ("zookeeper", "h:1/", "h:1"),
        ("grpc_listen", "[::1]:0", "[::1]:0"),
        ("delete_topic_enable", "FALSE", False),
        ("log_level", "Debug", "debug"),
        ("state_log_dir", "/a/b c", Path("/a/b c")),
        *((key, word, word) for key, words in WORDS.items() for word in words),
    ],
)
def test_good_values(key: str, value: Any, effective: Any) -> None:
    assert getattr(load({key: value}, None, {}), key) == effective


def test_unknown_keys_and_variables_are_errors(file: Path) -> None:
    file.write_text("contoller_id = 1\n")
    with pytest.raises(ConfigError, match=r"contoller_id = 1 .*must be a setting, .*, perhaps controller_id"):
        load({}, file, {})
    with pytest.raises(ConfigError, match=r"PARTITION_CONTROLLER_CONTOLLER_ID = '1' \(from environment\)"):
        load({}, None, {"PARTITION_CONTROLLER_CONTOLLER_ID": "1"})
    load({}, None, {"PARTITION_CONTROLLER_TEST_ZOOKEEPER": "h:1", "PATH": "/", "OTHER": "x"})


@pytest.mark.parametrize(
    "content",
    [
        b"controller_id = ",
        b"controller_id: 1",
        b"[section\n",
        b"a = 1\na = 2\n",
        b"\xff\xfe",
        b"controller_id = 1\x00",
        b"[controller]\ncontroller_id = 1\n",
        b"controller_id = " + b"[" * 5000,
    ],
)
def test_broken_files_name_the_file(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=str(file)):
        load({}, file, {})


def test_a_file_that_cannot_be_read_names_itself(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.toml", tmp_path):
        with pytest.raises(ConfigError, match=f"config = '{path}'.*readable TOML file"):
            load({}, path, {})


def test_an_endless_file_is_not_read_to_its_end() -> None:
    with pytest.raises(ConfigError, match=r"config = '/dev/zero'.*a TOML file of at most 1048576 bytes"):
        load({}, Path("/dev/zero"), {})


def test_the_two_addresses_must_differ() -> None:
    with pytest.raises(ConfigError, match=r"http_listen = 'h:1'.*another address"):
        load({"grpc_listen": "h:1", "http_listen": "h:1"}, None, {})
    load({"grpc_listen": "h:0", "http_listen": "h:0"}, None, {})


values = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=30)
    | st.lists(st.integers(), max_size=3)
)


@given(st.dictionaries(st.sampled_from([setting.name for setting in config.SETTINGS]), values, max_size=4))
def test_anything_is_a_setting_or_a_config_error(flags: dict[str, Any]) -> None:
    try:
        settings = load(flags, None, {})
    except ConfigError as error:
        notified = error
        assert f"{notified.key} = {notified.value!r}" in str(notified)
    else:
        assert isinstance(settings.state_log_dir, Path)
        assert 0 <= settings.controller_id < 2**31


@given(host=st.sampled_from(["h", "127.0.0.1", "::1", "fe80::1"]), port=st.integers(0, 65535))
def test_addresses_are_joined_and_split_again(host: str, port: int) -> None:
    joined = join_address(host, port)
    assert config.split_address(joined) == (host, port)
    assert load({"http_listen": joined}, None, {}).http_listen == joined


def test_an_ipv6_host_is_bracketed() -> None:
    assert join_address("::1", 9) == "[::1]:9"
    assert join_address("b1", 9) == "b1:9"


def test_addresses_by_listener() -> None:
    assert config.kafka_addresses(Settings(kafka_listen="[::1]:92")) == {"": ("::1", 92)}
    named = Settings(kafka_listen="INTERNAL://h:1,EXTERNAL://[::]:2,INTERNAL://h:3")
    assert config.kafka_addresses(named) == {"INTERNAL": ("h", 1), "EXTERNAL": ("::", 2)}


# --- while the process runs ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("listening", "given", "advertised"),
    [("10.0.0.1", "", "10.0.0.1"), ("0.0.0.0", "", "me"), ("::", "", "me"), ("0.0.0.0", "c1", "c1")],
)
def test_nobody_is_told_of_all_addresses(
    monkeypatch: pytest.MonkeyPatch, listening: str, given: str, advertised: str
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "me")
    assert process._advertised(Settings(advertised_host=given), listening) == advertised
