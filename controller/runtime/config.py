"""The controller's settings; Kafka's keep Kafka's names with underscores (reference, section 15.1)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from controller.errors import ConfigError
from controller.runtime.addresses import CONNECT_ALLOWED, HOST, HOST_NAME, PORT, connect_string
from proto.security.access import AuthorizerSettings
from proto.security.files import FileSettingError
from proto.security.settings import TlsSettings
from proto.settings import Schema, integer, parsed, shown, text
from proto.zookeeper_access import ZooKeeperSettings

ENV_PREFIX = "PARTITION_CONTROLLER_"

#: Kafka's default of ``reserved.broker.max.id``: the highest id that a broker is given by its configuration.
RESERVED_BROKER_MAX_ID = 1000

HostPort = Annotated[str, text(f"{HOST}:{PORT}", "HOST:PORT with a port from 0 (any free one) to 65535")]
_NAMED = rf"[A-Z0-9._-]+://{HOST}:{PORT}"
KafkaAddresses = Annotated[
    str,
    text(
        rf"{HOST}:{PORT}|{_NAMED}(?:,{_NAMED})*",
        "HOST:PORT, or LISTENER://HOST:PORT[,LISTENER://HOST:PORT...] with listener names in upper case,"
        " with ports from 0 (any free one) to 65535",
    ),
]
HostName = Annotated[
    str,
    text(
        f"|{HOST_NAME}|[0-9a-fA-F]*:[0-9a-fA-F:.]*:[0-9a-fA-F.]*",
        "a host name or address without a port, or nothing",
    ),
]
UserName = Annotated[
    str, text(r"[^\0\r\n]{0,1000}", "a name in one line of at most 1000 characters, or nothing")
]
_MECHANISM = "(?:PLAIN|SCRAM-SHA-256|SCRAM-SHA-512)"
Mechanisms = Annotated[
    str,
    text(
        f"|{_MECHANISM}(?:,{_MECHANISM})*",
        "some of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, separated by commas, or nothing",
    ),
]
ListenerName = Annotated[str, text("[A-Z0-9._-]*", "a listener's name in upper case, or nothing")]


class Takeover(Enum):
    """The setting ``kafka_takeover``. FALLBACK: brokers elect a controller when all of ours are gone; EXCLUSIVE: they
    never do."""

    OFF = "off"
    FALLBACK = "fallback"
    EXCLUSIVE = "exclusive"


@dataclass(frozen=True)
class Settings(TlsSettings, AuthorizerSettings, ZooKeeperSettings):
    """The effective settings of one controller. ``sources`` maps each setting to where its value came from."""

    # fmt: off
    controller_id: Annotated[int, integer(0, 2**31 - 1, "this controller's id; above 1000 with kafka_takeover")] = 1
    zookeeper: Annotated[str, parsed(connect_string, CONNECT_ALLOWED,
        "ZooKeeper servers and chroot")] = "127.0.0.1:2181"
    grpc_listen: Annotated[HostPort, Meta(description="address of the gRPC services")] = "127.0.0.1:9190"
    advertised_host: Annotated[HostName,
        Meta(description="host under which others reach this controller, if not the one it listens on")] = ""
    http_listen: Annotated[HostPort,
        Meta(description="address of /live, /ready, /leader, /metrics, /state")] = "127.0.0.1:9191"
    grpc_connections_max: Annotated[int, integer(4, 1_000_000, "open connections to grpc_listen; further ones are"
        " refused. At most a quarter of the descriptors that the process may open")] = 5000
    http_connections_max: Annotated[int, integer(4, 100_000, "open connections to http_listen; for one more the one"
        " that is idle for longest is closed. At most a quarter of the descriptors")] = 200
    kafka_listen: Annotated[KafkaAddresses,
        Meta(description="address where Kafka brokers and clients ask this controller; if clients use other listeners"
        " than brokers do: one for each, as LISTENER://HOST:PORT,LISTENER://HOST:PORT")] = "127.0.0.1:9192"
    kafka_advertised_host: Annotated[HostName,
        Meta(description="host under which Kafka brokers and clients reach this controller, if not"
        " advertised_host")] = ""
    kafka_inter_broker_listener_name: Annotated[ListenerName,
        Meta(description="the brokers' inter.broker.listener.name; empty: the first listener whose protocol is"
        " kafka_security_protocol")] = ""
    kafka_control_plane_listener_name: Annotated[ListenerName,
        Meta(description="the brokers' control.plane.listener.name; empty: they have none")] = ""
    kafka_security_protocol: Annotated[Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"],
        Meta(description="the brokers' security.inter.broker.protocol, to them and from them")] = "PLAINTEXT"
    kafka_ssl_certificate: Annotated[Path, Meta(description="PEM file: this controller's certificate and its chain, for"
        " both directions")] = Path()
    kafka_ssl_key: Annotated[Path, Meta(description="PEM file: its key, without password; if not in the same"
        " file")] = Path()
    kafka_ssl_ca: Annotated[Path, Meta(description="PEM file: authorities of the brokers' and clients'"
        " certificates; if not the system's")] = Path()
    kafka_ssl_client_auth: Annotated[Literal["", "required", "requested", "none"],
        Meta(title="one of required, requested, none, or nothing", description="whether who asks must have a"
        " certificate (ssl.client.auth); empty: required with SSL, none with SASL_SSL")] = ""
    kafka_ssl_principal_mapping_rules: Annotated[str, Meta(title="Kafka's rules", description="how a certificate's"
        " subject becomes a principal's name (ssl.principal.mapping.rules)")] = "DEFAULT"
    kafka_sasl_mechanism: Annotated[Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"],
        Meta(description="the brokers' sasl.mechanism.inter.broker.protocol, to them and from them")
        ] = "SCRAM-SHA-512"
    kafka_sasl_enabled_mechanisms: Annotated[Mechanisms,
        Meta(description="by which others may log in here beside kafka_sasl_mechanism, separated by commas"
        " (sasl.enabled.mechanisms); empty: by no other")] = ""
    kafka_sasl_username: Annotated[UserName, Meta(description="as whom this controller logs in to brokers")] = ""
    kafka_sasl_password_file: Annotated[Path, Meta(description="file whose first line is the password for it")] = Path()
    kafka_sasl_users_file: Annotated[Path, Meta(description="TOML file of those who may log in here by PLAIN,"
        " where it is offered")] = Path()
    kafka_authorizer: Annotated[Literal["none", "acl"],
        Meta(description="acl: who asks is authorised by Kafka's ACLs in ZooKeeper, as by AclAuthorizer")] = "none"
    kafka_super_users: Annotated[str, Meta(title="principals separated by semicolons",
        description="principals that may do everything (super.users)")] = ""
    kafka_allow_everyone_if_no_acl_found: Annotated[bool, Meta(description="allow what no ACL is about"
        " (allow.everyone.if.no.acl.found)")] = False
    delegation_token_expiry_check_interval_ms: Annotated[int, integer(1000, 2**31 - 1,
        "time between two searches for expired delegation tokens of Kafka brokers")] = 3_600_000
    state_log_dir: Annotated[Path, Meta(description="where the state-change log is written")] = Path("state-log")
    session_timeout_ms: Annotated[int, integer(1000, 600_000,
        "ZooKeeper session timeout (zookeeper.session.timeout.ms)")] = 18_000
    connection_timeout_ms: Annotated[int, integer(100, 600_000, "how long one attempt to connect may take")] = 18_000
    request_timeout_ms: Annotated[int, integer(100, 600_000,
        "how long a broker may take to answer (controller.socket.timeout.ms)")] = 30_000
    warm_standby: Annotated[bool,
        Meta(description="as a standby, follow partition states in memory, for a faster failover")] = True
    audit_interval_seconds: Annotated[int, integer(1, 3600,
        "time for one comparison of all brokers, and of up to 2000 state znodes per second, with memory")] = 30
    message_bytes_max: Annotated[int, integer(10_000, 60_000_000,
        "control requests are split to stay below this, bytes")] = 1_048_576
    unclean_leader_election_enable: Annotated[bool,
        Meta(description="let out-of-sync replicas lead when no other replica can; loses records")] = False
    delete_topic_enable: Annotated[bool, Meta(description="carry out topic deletions")] = True
    num_partitions: Annotated[int, integer(1, 10**6,
        "partitions of a new topic whose creator leaves the number open")] = 1
    default_replication_factor: Annotated[int, integer(1, 32767,
        "replicas of a new topic's partitions whose creator leaves the number open")] = 1
    reassignment_concurrent_moves_max: Annotated[int, integer(0, 10**9,
        "partitions that may be copying to new replicas at once; 0: any number")] = 0
    reassignment_concurrent_moves_per_broker_max: Annotated[int, integer(0, 10**9,
        "the same limit for each broker that takes part; 0: any number")] = 0
    auto_leader_rebalance_enable: Annotated[bool,
        Meta(description="return leadership to preferred replicas (auto.leader.rebalance.enable)")] = True
    leader_imbalance_check_interval_seconds: Annotated[int, integer(1, 10**7,
        "time between two checks of the balance of leaders")] = 300
    leader_imbalance_per_broker_percentage: Annotated[int, integer(0, 100,
        "share of a broker's preferred leaderships it may lack before they are returned")] = 10
    leader_rebalance_leaders_per_second: Annotated[int, integer(0, 10**7,
        "leaderships returned in a second while rebalancing; 0: all at once")] = 2000
    broker_flapping_hold_seconds: Annotated[int, integer(0, 3600,
        "time for which the second loss of a broker in a row keeps leaderships from returning to it; 0: not at all"
        )] = 300
    maintenance_offline_brokers_percentage: Annotated[int, integer(0, 100,
        "share of known brokers offline at which the controller enters maintenance; 0: never")] = 50
    maintenance_offline_brokers_min: Annotated[int, integer(1, 10**6,
        "least number of offline brokers at which the controller enters maintenance")] = 3
    maintenance_healthy_seconds: Annotated[int, integer(0, 10**6,
        "seconds with less than half as many brokers offline before the controller leaves maintenance")] = 30
    kafka_takeover: Annotated[Literal["off", "fallback", "exclusive"],
        Meta(description="claim /controller of a cluster of Kafka brokers; exclusive: brokers cannot take it back")
        ] = "off"
    state_log_rotate_bytes: Annotated[int, integer(4096, 2**40, "rotate the log at this size")] = 64 * 2**20
    state_log_rotate_seconds: Annotated[int, integer(1, 10**7, "rotate the log at this age")] = 3600
    state_log_files_kept: Annotated[int, integer(1, 10**6, "rotated logs that are kept")] = 100
    history_records_max: Annotated[int, integer(1000, 1_000_000,
        "newest records kept in memory for pctl history and watch")] = 100_000
    otlp_endpoint: Annotated[str, text(rf"|https?://{HOST}:{PORT}",
        "http://HOST:PORT or https://HOST:PORT, or nothing"),
        Meta(description="OpenTelemetry collector (OTLP by gRPC) that is told of events; nothing: none is")] = ""
    log_level: Annotated[Literal["debug", "info", "warning", "error"],
        Meta(description="least level that is logged")] = "info"
    log_format: Annotated[Literal["json", "console"], Meta(description="JSON lines or text for people")] = "json"
    # fmt: on
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def leads_kafka(self) -> bool:
        return Takeover(self.kafka_takeover) is not Takeover.OFF


_SCHEMA = Schema(Settings, ENV_PREFIX, ConfigError)
SETTINGS = _SCHEMA.settings


def split_address(address: str) -> tuple[str, int]:
    """Host (without brackets) and port of ``HOST:PORT``."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def kafka_addresses(settings: Settings) -> dict[str, tuple[str, int]]:
    """Host and port of ``kafka_listen`` by listener name; one without a name has an empty one. The first address of a
    name counts."""
    found: dict[str, tuple[str, int]] = {}
    for each in settings.kafka_listen.split(","):
        name, _, address = each.rpartition("://")
        found.setdefault(name, split_address(address))
    return found


def load(
    flags: Mapping[str, object | None],
    config_file: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Settings:
    """Effective settings. ``flags`` holds the command line's values; None: the flag was not given.

    Raises ConfigError naming the key, its value, its source and what is allowed. Unknown keys in the file and
    unknown ``PARTITION_CONTROLLER_`` variables are errors too, because otherwise a typo would have no effect.
    """
    for variable in _SCHEMA.unknown_variables(environ):
        raise ConfigError(variable, environ[variable], "a known setting", "environment")
    values, sources = _SCHEMA.load(flags, environ, config_file)
    settings = Settings(**values, sources=sources)
    if settings.grpc_listen == settings.http_listen and not settings.grpc_listen.endswith(":0"):
        raise ConfigError("http_listen", settings.http_listen, "another address than grpc_listen")
    if settings.leads_kafka and settings.controller_id <= RESERVED_BROKER_MAX_ID:
        allowed = (
            f"above {RESERVED_BROKER_MAX_ID} with kafka_takeover = {settings.kafka_takeover}:"
            " lower ids are Kafka brokers'"
        )
        raise ConfigError(
            "controller_id", settings.controller_id, allowed, sources.get("controller_id", "default")
        )
    return settings


@contextmanager
def config_errors(sources: Mapping[str, str]) -> Iterator[None]:
    """What is wrong with a file that a setting names, as a ConfigError."""
    try:
        yield
    except FileSettingError as error:
        raise ConfigError(error.key, error.value, error.allowed, sources.get(error.key, "")) from None


def describe(settings: Settings) -> list[tuple[str, str, str]]:
    """(name, value, source) of every setting, as ``check-config`` prints it."""
    return [
        (row.name, shown(getattr(settings, row.name)), settings.sources.get(row.name, "default"))
        for row in SETTINGS
    ]
