"""Where the credentials of callers come from: SCRAM's from ZooKeeper, as the brokers have them; PLAIN's from a file.

The file (setting ``kafka_sasl_users_file``) is TOML and holds no passwords but what SCRAM-SHA-512 stores of them, in
Kafka's own form::

    [users]
    alice = "salt=...,stored_key=...,server_key=...,iterations=..."

``python -m controller.runtime.kafka.security.users`` makes the value from a password on its standard input.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import msgspec
import structlog

from controller.core import znode_paths
from controller.runtime.kafka.security.scram import (
    ScramCredential,
    ScramMechanism,
    format_credential,
    make_credential,
    parse_credential,
)
from proto.security.files import FileSettingError, FromFiles, read_file
from proto.texts import in_words

log = structlog.get_logger(__name__)

#: Hashes that a guess costs who has stolen a file of ours.
FILE_ITERATIONS = 50_000
PLAIN_MECHANISM = ScramMechanism.SHA_512
#: A longer name is nobody's.
NAME_CHARS_MAX = 1000

#: Data of a znode, None if it does not exist.
ReadNode = Callable[[str], Awaitable[bytes | None]]
#: The stored credential of a user, None if there is none.
FindCredential = Callable[[ScramMechanism, str], Awaitable[ScramCredential | None]]


class _User(msgspec.Struct):
    config: dict[str, str] = {}


def user_path(name: str) -> str:
    """The znode of a user's settings."""
    return znode_paths.config_path(znode_paths.user_entity(name))


def users_in_zookeeper(read: ReadNode) -> FindCredential:
    """SCRAM credentials in ``/config/users``, read at each authentication, so that a change counts at once."""

    async def find(mechanism: ScramMechanism, name: str) -> ScramCredential | None:
        if len(name) > NAME_CHARS_MAX or name in (".", ".."):  # which no path may end with
            return None
        path = user_path(name)
        data = await read(path)
        if not data:
            return None
        try:
            text = msgspec.json.decode(data, type=_User).config.get(mechanism.value)
            return None if text is None else parse_credential(mechanism, text)
        except (
            ValueError,
            RecursionError,
        ) as error:  # of which msgspec's is one; neither repeats a credential
            log.error("user_not_readable", path=path, mechanism=mechanism.value, why=in_words(error))
            return None

    return find


def users_in_file(path: Path) -> FromFiles[Mapping[str, ScramCredential]]:
    """Credentials by name, of the file described above. Raises FileSettingError."""
    return FromFiles([path], lambda: _read_users(path))


def _read_users(path: Path) -> Mapping[str, ScramCredential]:
    def wrong(allowed: str) -> FileSettingError:
        return FileSettingError("kafka_sasl_users_file", str(path), allowed)

    content = read_file("kafka_sasl_users_file", path, "a TOML file", secret=True)
    try:
        found = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError):
        raise wrong("a TOML file in UTF-8") from None
    users = found.pop("users", None)
    if found or not isinstance(users, dict) or not users:
        raise wrong("a TOML file with one table, users, that is not empty")
    credentials = {}
    for name, text in users.items():
        try:
            if not isinstance(text, str):
                raise ValueError("must be a text")
            credentials[name] = parse_credential(PLAIN_MECHANISM, text)
        except ValueError as error:
            raise wrong(f"a TOML file of credentials; users.{name[:100]!r} {error}") from None
    return credentials


def main() -> None:
    password = sys.stdin.readline().rstrip("\n")
    if not re.fullmatch(r"[^\0]+", password):
        raise SystemExit("the password must be on standard input, in one line")
    sys.stdout.write(format_credential(make_credential(PLAIN_MECHANISM, password, FILE_ITERATIONS)) + "\n")


if __name__ == "__main__":
    main()
