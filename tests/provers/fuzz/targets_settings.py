"""Settings of controller and broker from flags, environment and files; values of configurations; files of moves.

A setting is taken, and the same when it is given as it is shown; or ConfigError (SettingError, PlanError) says in one
printable line which one, its value and what is allowed.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from random import Random
from unittest import mock

from broker_stub import settings as broker_settings
from broker_stub.errors import SettingError
from controller.cli.common import reassignment_files
from controller.cli.common.reassignment_files import PlanError
from controller.core.config_keys import BROKER_KEYS, TOPIC_KEYS
from controller.errors import ConfigError
from controller.runtime import config
from tests.provers.fuzz.harness import Outcome, Target, UnclearError, require_clear, require_line
from tests.provers.fuzz.mutation import (
    NUMBERS,
    chooser,
    choosing,
    chosen,
    mutate_bytes,
    mutate_json,
    words_mutator,
)
from tests.provers.fuzz.targets_log import scratch
from tests.support.runtime.random_messages import NASTY

_VALUES = (
    *map(str, NUMBERS), *NASTY, "true", "false", "TRUE", "h:1", "[::1]:0", "a:1,b:2/c", "/tmp/x", "info", "json", "1.5",
    "3.9", "f=1-3", "f=1-3,g=0-1", "r1", "\udcff", " 7 ", "+7", "0x10", "1e3", "1_000", "٣",
)  # fmt: skip


def _pairs(body: bytes) -> dict[str, str]:
    """KEY=VALUE, divided by NULs, as an environment is."""
    words = (os.fsdecode(word) for word in body.split(b"\0"))
    return {name: value for name, _, value in (word.partition("=") for word in words) if name}


# --- controller ------------------------------------------------------------------------------------------------

_NAMES = tuple(setting.name for setting in config.SETTINGS)
_ENVIRONMENT = tuple(f"{config.ENV_PREFIX}{name.upper()}" for name in _NAMES)
_TOML = b"""controller_id = 3
zookeeper = "h:1,h:2/chroot"
grpc_listen = "127.0.0.1:0"
unclean_leader_election_enable = true
state_log_dir = "x"
leader_imbalance_per_broker_percentage = 10
"""


def _require_config(load: Callable[[], config.Settings]) -> Outcome:
    try:
        found = load()
    except ConfigError as error:
        require_clear(str(error))
        if not error.key or not error.allowed:
            raise UnclearError(f"key {error.key!r}, allowed {error.allowed!r}: {error}") from error
        return Outcome.REFUSED
    shown = {name: value for name, value, _ in config.describe(found)}
    assert all(isinstance(value, str) for value in shown.values())
    assert config.load(shown, None, {}) == found
    return Outcome.VALID


def _check_file(body: bytes) -> Outcome:
    path = scratch() / "controller.toml"
    path.write_bytes(body)
    return _require_config(lambda: config.load({}, path, {}))


def _check_environment(body: bytes) -> Outcome:
    return _require_config(lambda: config.load({}, None, _pairs(body)))


def _check_flags(body: bytes) -> Outcome:
    flags = {name: value for name, value in _pairs(body).items() if name in _NAMES}
    return _require_config(lambda: config.load(flags, None, {}))


# --- broker ----------------------------------------------------------------------------------------------------

_BROKER_NAMES = tuple(setting.name for setting in broker_settings.SETTINGS)
_BROKER_ENVIRONMENT = tuple(setting.env for setting in broker_settings.SETTINGS)
_BROKER_FLAGS = b"broker_id=1\0zookeeper=h:1\0listen=h:9092\0data_dir=/d"


def _check_broker(flags: dict[str, str], environment: dict[str, str]) -> Outcome:
    try:
        # No name is looked up.
        with mock.patch.object(socket, "getfqdn", return_value="here"):
            found = broker_settings.load(flags, environment)
    except SettingError as error:
        require_clear(str(error))
        if error.key not in _BROKER_NAMES or not error.allowed:
            raise UnclearError(f"key {error.key!r}, allowed {error.allowed!r}: {error}") from error
        return Outcome.REFUSED
    assert 0 <= found.listen[1] <= 65535
    assert found.data_dir.is_absolute()
    return Outcome.VALID


def _check_broker_flags(body: bytes) -> Outcome:
    return _check_broker({n: v for n, v in _pairs(body).items() if n in _BROKER_NAMES}, {})


def _check_broker_environment(body: bytes) -> Outcome:
    environment = _pairs(body)
    assert all(
        name.startswith(broker_settings.ENV_PREFIX) for name in broker_settings.unknown_variables(environment)
    )
    return _check_broker({}, environment)


# --- values of configurations ----------------------------------------------------------------------------------

_CHECKS = [*TOPIC_KEYS.values(), *BROKER_KEYS.values()]


def _check_value(body: bytes) -> Outcome:
    index, text = chosen(body, len(_CHECKS))
    problem = _CHECKS[index](text.decode(errors="replace"))
    if problem is None:
        return Outcome.VALID
    require_clear(problem)
    return Outcome.REFUSED


# --- files of moves ---------------------------------------------------------------------------------------------

_MOVES = json.dumps(
    {
        "version": 1,
        "partitions": [
            {"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "any"]},
            {"topic": "t", "partition": 1, "replicas": [2]},
        ],
    }
).encode()


def _check_moves(body: bytes) -> Outcome:
    path = scratch() / "moves.json"
    path.write_bytes(body)
    try:
        reassignment_files.read_plan(path)
        reassignment_files.read_names(path)
    except PlanError as error:
        require_line(str(error), str(path))
        return Outcome.REFUSED
    return Outcome.VALID


def _mutate_toml(data: bytes, rng: Random) -> bytes:
    lines = data.split(b"\n")
    if rng.randrange(3) == 0:
        return mutate_bytes(data, rng)
    value = rng.choice(_VALUES).encode(errors="replace")
    quoted = b'"' + value.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'
    lines.insert(
        rng.randrange(len(lines)), rng.choice(_NAMES).encode() + b" = " + rng.choice((value, quoted))
    )
    return b"\n".join(lines)


def _mutate_pairs(names: tuple[str, ...]) -> Callable[[bytes, Random], bytes]:
    words = words_mutator([f"{name}=" for name in names])

    def mutate(data: bytes, rng: Random) -> bytes:
        if rng.randrange(3) == 0:
            return words(data, rng)
        pair = f"{rng.choice(names)}={rng.choice(_VALUES)}".replace("\0", "")
        return data + b"\0" + os.fsencode(pair)

    return mutate


_KINDS: tuple[tuple[Callable[[bytes], Outcome], Callable[[bytes, Random], bytes], tuple[bytes, ...]], ...] = (
    (_check_file, _mutate_toml, (_TOML, b"")),
    (_check_environment, _mutate_pairs(_ENVIRONMENT), (b"PARTITION_CONTROLLER_CONTROLLER_ID=7", b"HOME=/")),
    (_check_flags, _mutate_pairs(_NAMES), (b"controller_id=7\0zookeeper=h:1",)),
    (_check_broker_flags, _mutate_pairs(_BROKER_NAMES), (_BROKER_FLAGS,)),
    (
        _check_broker_environment,
        _mutate_pairs(_BROKER_ENVIRONMENT),
        (
            b"BROKER_STUB_BROKER_ID=1\0BROKER_STUB_ZOOKEEPER=h:1\0BROKER_STUB_LISTEN=h:1\0BROKER_STUB_DATA_DIR=d",
        ),
    ),
    (
        _check_value,
        mutate_bytes,
        (b"\0delete", *(bytes([n]) + v for n in range(len(_CHECKS)) for v in (b"1", b"true"))),
    ),
    (_check_moves, mutate_json, (_MOVES,)),
)


def _check(data: bytes) -> Outcome:
    index, body = chosen(data, len(_KINDS))
    return _KINDS[index][0](body)


def _seeds() -> list[bytes]:
    return [choosing(index, seed) for index, (_, _, seeds) in enumerate(_KINDS) for seed in seeds]


TARGETS = (
    Target(
        "settings",
        _check,
        _seeds(),
        chooser([kind[1] for kind in _KINDS]),
        weight=12,
    ),
)
