"""Settings: flag over environment over default; a bad one names key, value and what is allowed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from broker_stub import settings
from broker_stub.cli import main
from broker_stub.control.replicas import Replica, Role, Step
from broker_stub.errors import SettingError
from broker_stub.group.settings import GroupSettings
from broker_stub.storage import DataDir
from broker_stub.zookeeper.registration import Identity
from proto.incarnations import Incarnation

GIVEN = {"broker_id": "1", "zookeeper": "zk:2181", "listen": "127.0.0.1:0", "data_dir": "/d"}


#: As Kafka 3.9's documentation lists them, by its names with underscores.
KAFKAS_DEFAULTS: dict[str, object] = {
    "log_segment_bytes": 1_073_741_824,
    "log_flush_interval_messages": 9_223_372_036_854_775_807,
    "log_flush_interval_ms": None,
    "message_max_bytes": 1_048_588,
    "min_insync_replicas": 1,
    "replica_lag_time_max_ms": 30_000,
    "replica_high_watermark_checkpoint_interval_ms": 5_000,
    "replica_fetch_wait_max_ms": 500,
    "replica_fetch_min_bytes": 1,
    "replica_fetch_max_bytes": 1_048_576,
    "replica_fetch_response_max_bytes": 10_485_760,
    "replica_fetch_backoff_ms": 1_000,
    "controlled_shutdown_enable": True,
    "controlled_shutdown_max_retries": 3,
    "controlled_shutdown_retry_backoff_ms": 5_000,
    "offsets_topic_num_partitions": 50,
    "offsets_topic_replication_factor": 3,
    "offsets_commit_timeout_ms": 5_000,
    "offset_metadata_max_bytes": 4_096,
    "group_min_session_timeout_ms": 6_000,
    "group_max_session_timeout_ms": 1_800_000,
    "group_initial_rebalance_delay_ms": 3_000,
    "inter_broker_protocol_version": "3.9",
    "ssl_principal_mapping_rules": "DEFAULT",
}
#: Of docs/security.md: what nobody sets is closed.
OWN_DEFAULTS: dict[str, object] = {
    "ssl_client_auth": "required",
    "http_ssl": True,
    "http_ssl_client_auth": "",
    "super_users": "",
    "allow_everyone": False,
    "insecure_listen": "refused",
    "zookeeper_ssl_client_enable": False,
    "zookeeper_set_acl": False,
    "zookeeper_sasl_mechanism": "DIGEST-MD5",
}


@pytest.mark.parametrize(("name", "default"), [*KAFKAS_DEFAULTS.items(), *OWN_DEFAULTS.items()])
def test_defaults_are_kafkas_and_documented(name: str, default: object) -> None:
    found = getattr(settings.load(GIVEN, {}), name)
    assert (found, type(found)) == (default, type(default))


def test_defaults_of_the_process() -> None:
    loaded = settings.load(GIVEN, {})
    assert loaded.session_timeout_ms == 18000
    assert loaded.connection_timeout_ms == 30000
    assert loaded.state_log_dir == Path("/d/state-log")
    assert loaded.rack is None
    assert loaded.advertised_host == "127.0.0.1"
    assert (loaded.log_format, loaded.log_level) == ("json", "info")


INT, LONG = 2_147_483_647, 9_223_372_036_854_775_807
#: Lowest and highest value: Kafka's types (a short, an int, a long) and lower bounds. What is sent in one message is at
#: most 60 MiB, and a batch has a header of 43 bytes.
BOUNDS: dict[str, tuple[int, int]] = {
    "broker_id": (-1, INT),
    "session_timeout_ms": (100, 3_600_000),
    "connection_timeout_ms": (1, 3_600_000),
    "log_segment_bytes": (43, INT),
    "log_flush_interval_messages": (1, LONG),
    "log_flush_interval_ms": (0, LONG),
    "message_max_bytes": (43, 62_914_560),
    "min_insync_replicas": (1, INT),
    "replica_lag_time_max_ms": (1, INT),
    "replica_high_watermark_checkpoint_interval_ms": (1, INT),
    "replica_fetch_wait_max_ms": (0, INT),
    "replica_fetch_min_bytes": (0, INT),
    "replica_fetch_max_bytes": (0, 62_914_560),
    "replica_fetch_response_max_bytes": (0, 62_914_560),
    "replica_fetch_backoff_ms": (0, INT),
    "controlled_shutdown_max_retries": (1, INT),
    "controlled_shutdown_retry_backoff_ms": (0, INT),
    "offsets_topic_num_partitions": (1, INT),
    "offsets_topic_replication_factor": (1, 32_767),
    "offsets_commit_timeout_ms": (1, INT),
    "offset_metadata_max_bytes": (0, INT),
    "group_min_session_timeout_ms": (1, INT),
    "group_max_session_timeout_ms": (1, INT),
    "group_initial_rebalance_delay_ms": (0, INT),
}


def test_bounds_are_kafkas() -> None:
    """Those of each by itself: of two that must fit each other, see below."""
    numeric = {
        one.name: one for one in settings.SETTINGS if one.name in BOUNDS or one.shown_default.isdigit()
    }
    assert set(numeric) == set(BOUNDS)
    for name, (lowest, highest) in BOUNDS.items():
        assert [numeric[name].convert(str(edge)) for edge in (lowest, highest)] == [lowest, highest]
        for beyond in (lowest - 1, highest + 1):
            with pytest.raises(ValueError, match="Expected `int`"):
                numeric[name].convert(str(beyond))


def test_every_setting_reaches_the_field_of_its_name() -> None:
    for setting in settings.SETTINGS:
        if not setting.shown_default.isdigit():
            continue
        default = int(setting.shown_default)
        larger = default + 1 if default < 2**63 - 1 else 7
        loaded = settings.load(GIVEN, {setting.env: str(larger)})
        assert getattr(loaded, setting.name) == larger
        assert getattr(settings.load(GIVEN, {}), setting.name) == default


def test_every_default_that_is_shown_may_be_given() -> None:
    for setting in settings.SETTINGS:
        if setting.shown_default:
            assert setting.convert(setting.shown_default) == setting.default


def test_a_group_by_itself_has_the_defaults() -> None:
    loaded = settings.load(GIVEN, {})
    for group in (settings.LogSettings, settings.ReplicationSettings, GroupSettings):
        for name, value in vars(group()).items():
            assert getattr(loaded, name) == value


@pytest.mark.parametrize(
    ("release", "new"), [("0.10", False), ("2.0", False), ("2.6", False), ("2.7", True), ("3.9", True)]
)
def test_the_release_says_what_brokers_can(release: str, new: bool) -> None:
    loaded = settings.load({**GIVEN, "inter_broker_protocol_version": release}, {})
    assert loaded.alter_partition_supported is new
    assert loaded.truncation_on_fetch is new


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("log_level", level) for level in ("debug", "info", "warning", "error")),
        *(("log_format", kind) for kind in ("json", "console")),
    ],
)
def test_each_word_may_be_given(key: str, value: str) -> None:
    assert getattr(settings.load({**GIVEN, key: value}, {}), key) == value


@pytest.mark.parametrize(("text", "value"), [("false", False), ("FALSE", False), ("True", True)])
def test_truth_as_kafka_writes_it(text: str, value: bool) -> None:
    assert (
        settings.load({**GIVEN, "controlled_shutdown_enable": text}, {}).controlled_shutdown_enable is value
    )


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("replica_fetch_wait_max_ms", "30001", "at most replica_lag_time_max_ms (30000)"),
        ("group_min_session_timeout_ms", "1800001", "at most group_max_session_timeout_ms (1800000)"),
    ],
)
def test_two_that_must_fit_each_other(key: str, value: str, allowed: str) -> None:
    with pytest.raises(SettingError, match=f"^{key} = {value}") as caught:
        settings.load(GIVEN, {"BROKER_STUB_" + key.upper(): value})
    assert caught.value.allowed == allowed


def test_a_flag_goes_over_the_environment() -> None:
    environ = {
        "BROKER_STUB_BROKER_ID": "7",
        "BROKER_STUB_SESSION_TIMEOUT_MS": "2000",
        "BROKER_STUB_RACK": "r1",
    }
    loaded = settings.load(GIVEN, environ)
    assert (loaded.broker_id, loaded.session_timeout_ms, loaded.rack) == (1, 2000, "r1")


@pytest.mark.parametrize("listen", ["0.0.0.0:9092", "[::]:9092"])
def test_a_wildcard_is_not_what_is_registered(listen: str) -> None:
    assert settings.load({**GIVEN, "listen": listen}, {}).advertised_host not in ("0.0.0.0", "::")
    assert settings.load({**GIVEN, "listen": listen, "advertised_host": "b1"}, {}).advertised_host == "b1"


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("broker_id", "-2", "a whole number from -1 to 2147483647"),
        ("broker_id", "one", "a whole number from -1 to 2147483647"),
        ("broker_id", "٣", "a whole number from -1 to 2147483647"),
        ("broker_id", str(2**31), "a whole number from -1 to 2147483647"),
        ("zookeeper", "", "HOST:PORT"),
        ("zookeeper", "zk", "HOST:PORT"),
        ("zookeeper", "zk:0", "HOST:PORT"),
        ("zookeeper", "zk:2181,", "HOST:PORT"),
        ("zookeeper", "zk..local:2181", "HOST:PORT"),
        ("zookeeper", "zk:2181/", "HOST:PORT"),
        ("zookeeper", "zk:2181/a//b", "HOST:PORT"),
        ("zookeeper", "zk:2181/a/../b", "HOST:PORT"),
        ("broker_id", "٣", "number"),
        ("listen", "localhost", "HOST:PORT"),
        ("listen", ":9092", "HOST:PORT"),
        ("listen", "h:65536", "HOST:PORT"),
        ("listen", "::1:9092", "HOST:PORT"),
        ("data_dir", "", "a path"),
        ("data_dir", "\udcff", "a path"),
        ("rack", "", "printable"),
        ("rack", "a\nb", "printable"),
        ("advertised_host", "a b", "a host name"),
        ("advertised_host", "x" * 64, "a host name"),
        ("advertised_host", "10.0.0.1:9092", "a host name or address without a port"),
        ("advertised_host", "[::1]", "a host name or address without a port"),
        ("state_log_dir", "/d/logs-1", "nor the folder of a partition"),
        ("session_timeout_ms", "99", "a whole number from 100"),
        ("session_timeout_ms", "1.5", "a whole number from 100"),
        ("connection_timeout_ms", "0", "a whole number from 1"),
        *[
            ("supported_features", bad, "NAME=MIN-MAX[,...]")
            for bad in (
                "f",
                "f=1",
                "f=1-",
                "f=2-1",
                "f=0-0",
                "f=1-32768",
                "=1-2",
                "f=1-2,",
                "f=1-2,f=1-3",
                "f=-1-2",
            )
        ],
        ("log_format", "xml", "one of json, console"),
        ("inter_broker_protocol_version", "2.9", "one of 0.10, 0.11, 1.0"),
        ("inter_broker_protocol_version", "4.0", "2.8, 3.0"),
        ("inter_broker_protocol_version", "3", "3.9"),
        ("controlled_shutdown_enable", "yes", "true or false"),
        ("log_segment_bytes", "42", "a whole number from 43"),
        ("log_flush_interval_messages", "0", "a whole number from 1"),
        ("log_flush_interval_ms", "-1", "a whole number from 0"),
        ("log_flush_interval_ms", "9" * 5000, "a whole number from 0"),
        ("message_max_bytes", str(2**26), "a whole number from 43"),
        ("min_insync_replicas", "0", "a whole number from 1"),
        ("offsets_topic_replication_factor", "32768", "a whole number from 1 to 32767"),
        ("log_level", "loud", "one of debug"),
    ],
)
def test_a_bad_value_is_named(key: str, value: str, allowed: str) -> None:
    with pytest.raises(SettingError) as caught:
        settings.load({**GIVEN, key: value}, {})
    assert caught.value.key == key
    assert caught.value.allowed.find(allowed) >= 0
    # Of a value of any length only the beginning is repeated.
    assert str(caught.value).startswith(f"{key} = {value!r}"[:200])
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("key", sorted(GIVEN))
def test_a_missing_one_says_how_to_give_it(key: str) -> None:
    given = {name: value for name, value in GIVEN.items() if name != key}
    with pytest.raises(
        SettingError, match=f"given, by --{key.replace('_', '-')} or BROKER_STUB_{key.upper()}"
    ):
        settings.load(given, {})


@pytest.mark.parametrize(
    ("dirs", "log", "wrong"),
    [
        ("/a,/b", "/c", ""),
        ("/a,/a/b", "/c", "data_dirs"),
        ("/a/b,/a", "/c", "data_dirs"),
        ("/a,/a", "/c", "data_dirs"),
        ("/a,/b", "/a/t-0", "state_log_dir"),
        ("/a,/b", "/b/t-0", "state_log_dir"),
        ("/a,/b", "/b", "state_log_dir"),
        ("/a,/b", "/b/state-log", ""),
    ],
)
def test_directories_do_not_hold_each_other(dirs: str, log: str, wrong: str) -> None:
    given = {**{k: v for k, v in GIVEN.items() if k != "data_dir"}, "data_dirs": dirs, "state_log_dir": log}
    if not wrong:
        assert settings.load(given, {}).data_dir == Path("/a")
        return
    with pytest.raises(SettingError, match=f"^{wrong} = "):
        settings.load(given, {})


def test_the_list_of_directories_goes_before_the_single_one() -> None:
    loaded = settings.load({**GIVEN, "data_dirs": "/a,/b"}, {})
    assert (loaded.data_dir, loaded.data_dirs) == (Path("/a"), (Path("/a"), Path("/b")))


def test_features_are_given_as_ranges_of_versions() -> None:
    assert settings.load(GIVEN, {}).supported_features == ()
    loaded = settings.load(GIVEN, {"BROKER_STUB_SUPPORTED_FEATURES": "g=0-32767,f=1-3"})
    assert loaded.supported_features == (("f", 1, 3), ("g", 0, 32767))


def test_misspelt_variables_are_found() -> None:
    environ = {"BROKER_STUB_RAK": "r", "BROKER_STUB_RACK": "r", "OTHER": "x"}
    assert settings.unknown_variables(environ) == ["BROKER_STUB_RAK"]


def test_the_command_exits_2_and_names_the_variable() -> None:
    flags = [text for name, value in GIVEN.items() for text in ("--" + name.replace("_", "-"), value)]
    result = CliRunner().invoke(main, ["run", *flags], env={"BROKER_STUB_SESSION_TIMEOUT_MS": "soon"})
    assert result.exit_code == 2
    assert (
        "session_timeout_ms = 'soon' (from environment BROKER_STUB_SESSION_TIMEOUT_MS): must be a whole number"
        in result.output
    )


def test_help_names_every_setting() -> None:
    output = CliRunner().invoke(main, ["run", "--help"], terminal_width=300).output
    for setting in settings.SETTINGS:
        assert setting.flag in output
        assert setting.env in output


ME = Incarnation("me")


def test_registration_is_version_5_byte_for_byte() -> None:
    data = ("A" * 22,), 7, "B" * 22
    assert Identity(1, "h", 9092, "r1", ME, (), *data).encode(1700000000000, 4000) == (
        b'{"version":5,"host":"h","port":9092,"endpoints":["GRPC://h:9092"],'
        b'"listener_security_protocol_map":{"GRPC":"PLAINTEXT"},"rack":"r1","jmx_port":-1,'
        b'"timestamp":"1700000000000","features":{},"incarnation":"me",'
        b'"directories":["AAAAAAAAAAAAAAAAAAAAAA"],"previous_broker_epoch":7,"session_timeout_ms":4000,'
        b'"cluster_id":"BBBBBBBBBBBBBBBBBBBBBB"}'
    )
    assert b"rack" not in Identity(1, "h", 9092, None, ME).encode(0, 4000)
    supporting = Identity(1, "h", 9092, None, ME, (("f", 1, 3), ("g", 0, 1))).encode(0, 4000)
    assert (
        b'"features":{"f":{"min_version":1,"max_version":3},"g":{"min_version":0,"max_version":1}},'
        in supporting
    )
    for host in ("::1", "fd00:1:2:3:4:5:6:7"):
        assert f'"GRPC://[{host}]:9092"'.encode() in Identity(1, host, 9092, None, ME).encode(0, 4000)


def test_inspect_reads_the_disk_without_a_broker(tmp_path: Path) -> None:
    data = DataDir(tmp_path, 3)
    replica = Replica("orders", 4, "x" * 22, Role.LEADER, 3, 9, 2, 1, (3, 1), (3, 1, 2))
    data.apply([Step(replica.key, None, replica, True, True)])
    (tmp_path / "junk").touch()
    command = ["inspect", "--data-dir", str(tmp_path)]
    found = json.loads(CliRunner().invoke(main, [*command, "-o", "json"]).stdout)
    data.close()
    assert found["broker_id"] == 3
    assert found["partitions"][0]["role"] == "leader"
    assert found["partitions"][0]["under_replicated"] is True
    assert found["problems"][0]["path"] == str(tmp_path / "junk")
    table = CliRunner().invoke(main, command)
    assert table.exit_code == 0
    assert "orders" in table.stdout


def test_inspect_of_something_else(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["inspect", "--data-dir", str(tmp_path)])
    assert result.exit_code == 1
    assert "not a broker's data directory" in result.output
