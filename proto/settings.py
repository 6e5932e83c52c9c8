"""Settings of controller and broker: a flag overrides the environment, which overrides the file, which overrides the
default. Each value is checked and has a source (docs/adr/0009).

A settings class is a frozen dataclass. A field is a setting if its type is ``Annotated`` with a ``Meta`` that has a
``description``. The field's default is the setting's; a setting without default is required. ``title`` describes the
allowed values if the type does not; ``extra["parse"]`` converts a text to the value, and raises ValueError.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

#: Defaults that mean: required, none, or derived from other settings.
_NO_DEFAULTS = (MISSING, None, (), "", Path())
FILE_BYTES_MAX = 1_048_576
#: Environment variables that begin with this after the prefix belong to tests.
_TEST_VARIABLES = "TEST_"


def integer(lowest: int, highest: int, description: str) -> Meta:
    return Meta(ge=lowest, le=highest, description=description)


def text(pattern: str, allowed: str) -> Meta:
    """A text that ``pattern`` matches as a whole."""
    return Meta(pattern=rf"\A(?:{pattern})\Z", title=allowed)


def parsed(parse: Callable[[str], Any], allowed: str, description: str) -> Meta:
    """A text that ``parse`` converts; it raises ValueError for a text that is not ``allowed``."""
    return Meta(title=allowed, description=description, extra={"parse": parse})


class Setting(NamedTuple):
    """One setting. ``type``: without None and ``Meta``; ``default``: of that type, or MISSING if required."""

    name: str
    env: str
    type: Any
    meta: tuple[Meta, ...]
    default: Any

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def required(self) -> bool:
        return self.default is MISSING

    @property
    def shown_default(self) -> str:
        """The default as text; empty if there is none or it is derived from another setting."""
        return "" if self.default in _NO_DEFAULTS else shown(self.default)

    @property
    def help(self) -> str:
        """The help text: description, default, and environment variable."""
        default = f" [default: {self.shown_default}]" if self.shown_default else ""
        required = " [required]" if self.required else ""
        return f"{self._of_meta('description')}{default}{required} [env: {self.env}]"

    @property
    def allowed(self) -> str:
        if title := self._of_meta("title"):
            return str(title)
        if self.type is int:
            return f"a whole number from {self._of_meta('ge')} to {self._of_meta('le')}"
        if get_origin(self.type) is Literal:
            return f"one of {', '.join(get_args(self.type))}"
        return {bool: "true or false", Path: "a path"}[self.type]

    def convert(self, raw: object) -> Any:
        """Convert a text, or a value of the file. Raises ValueError, msgspec.ValidationError."""
        value = raw.strip() if isinstance(raw, str) else raw
        if isinstance(value, str):
            # What is no UTF-8 could not be shown. Raises UnicodeEncodeError, a ValueError.
            value.encode()
        if parse := (self._of_meta("extra") or {}).get("parse"):
            return parse(msgspec.convert(value, str))
        if self.type is Path:
            return Path(msgspec.convert(value, Annotated[str, Meta(pattern=r"\A[^\0]+\Z")]))
        if self.type is int and isinstance(value, str):
            # msgspec would accept 1e3 and 1.0 too. The limit on digits keeps int() from raising its own error.
            value = int(value) if re.fullmatch(r"[+-]?[0-9]{1,20}", value) else value
        elif self.type is bool and isinstance(value, str):
            value = {"true": True, "false": False}.get(value.lower(), value)
        elif get_origin(self.type) is Literal and isinstance(value, str):
            value = next((word for word in get_args(self.type) if word.lower() == value.lower()), value)
        return msgspec.convert(value, Annotated[(self.type, *self.meta)])

    def _of_meta(self, attribute: str) -> Any:
        return next((v for meta in self.meta if (v := getattr(meta, attribute)) is not None), None)


@dataclass(frozen=True)
class Schema:
    """The settings of one daemon. ``error``: makes the exception, from key, value, allowed values and source."""

    settings_class: type
    env_prefix: str
    error: Callable[[str, object, str, str], Exception]

    @cached_property
    def settings(self) -> tuple[Setting, ...]:
        hints = get_type_hints(self.settings_class, include_extras=True)
        return tuple(
            Setting(row.name, self.env_prefix + row.name.upper(), _plain(kind), meta, row.default)
            for row in fields(self.settings_class)
            for kind, *meta_ in [get_args(hints[row.name]) or (None,)]
            for meta in [tuple(m for m in meta_ if isinstance(m, Meta))]
            if any(m.description for m in meta)
        )

    def load(
        self, flags: Mapping[str, object | None], environ: Mapping[str, str], file: Path | None = None
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Values and sources by name. ``flags``: values of the command line, None if not given.

        Raises ``error`` for the first setting that is missing or invalid, and for an unknown key of the file.
        """
        in_file = {} if file is None else self._read(file)
        values, sources = {}, {}
        for setting in self.settings:
            name = setting.name
            if flags.get(name) is not None:
                raw, source = flags[name], "flag"
            elif setting.env in environ:
                raw, source = environ[setting.env], f"environment {setting.env}"
            elif name in in_file:
                raw, source = in_file[name], f"file {file}"
            elif setting.required:
                raise self.error(name, None, f"given, by {setting.flag} or {setting.env}", "")
            else:
                values[name], sources[name] = setting.default, "default"
                continue
            try:
                values[name], sources[name] = setting.convert(raw), source
            except (ValueError, msgspec.ValidationError):
                raise self.error(name, raw, setting.allowed, source) from None
        return values, sources

    def unknown_variables(self, environ: Mapping[str, str]) -> list[str]:
        """Variables with the prefix that are not settings: usually misspelt names."""
        known = {setting.env for setting in self.settings}
        return sorted(
            name
            for name in environ
            if name.startswith(self.env_prefix)
            and not name.startswith(self.env_prefix + _TEST_VARIABLES)
            and name not in known
        )

    def _read(self, file: Path) -> dict[str, Any]:
        try:
            with file.open("rb") as stream:
                content = stream.read(FILE_BYTES_MAX + 1)
            if len(content) > FILE_BYTES_MAX:
                raise self.error("config", str(file), f"a TOML file of at most {FILE_BYTES_MAX} bytes", "")
            found = tomllib.loads(content.decode())
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise self.error("config", str(file), f"valid TOML ({error})", "") from None
        except (OSError, UnicodeDecodeError) as error:
            raise self.error("config", str(file), f"a readable TOML file ({error})", "") from None
        known = {setting.name for setting in self.settings}
        for key in found.keys() - known:
            near = get_close_matches(key, known)
            perhaps = f", perhaps {' or '.join(near)}" if near else ""
            raise self.error(key, found[key], f"a setting, as check-config prints them{perhaps}", str(file))
        return found


def shown(value: object) -> str:
    """A value as users write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _plain(kind: Any) -> Any:
    """``kind`` without None."""
    return next(k for k in get_args(kind) if k is not NoneType) if isinstance(kind, UnionType) else kind
