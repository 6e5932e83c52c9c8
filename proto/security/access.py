"""Settings of who may do what, for both daemons, and what they make: an authorizer and the names of callers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import structlog
from msgspec import Meta

from proto.security.authorization import SUPER_USERS_ALLOWED, AllowAll, Authorizer, super_users
from proto.security.callers import Callers, is_loopback
from proto.security.files import FileSettingError
from proto.security.principals import PrincipalRules
from proto.security.rules import RuleAuthorizer, rules_in_file
from proto.security.tokens import tokens_in

log = structlog.get_logger(__name__)

ACCEPTED = "accepted"
#: What operators are told while nothing is set.
EVERYONE_MAY = "everyone on this machine may do everything: set authorizer_file, or allow_everyone = true if that is wanted"  # noqa: E501
_INSECURE_WORDS = "insecure_listen = accepted"
_AUTHORIZER_WORDS = "authorizer_file or super_users"


@dataclass(frozen=True, kw_only=True)
class AuthorizerSettings:
    """Who may do what."""

    # fmt: off
    ssl_principal_mapping_rules: Annotated[str, Meta(title="Kafka's rules", description="how the subject of a client's"
        " certificate becomes a principal's name (ssl.principal.mapping.rules)")] = "DEFAULT"
    bearer_tokens_file: Annotated[Path, Meta(description="file of digests of the tokens by which people without a"
        " certificate may log in")] = Path()
    authorizer_file: Annotated[Path, Meta(description="TOML file of rules: who may do what")] = Path()
    super_users: Annotated[str, Meta(title="principals separated by semicolons",
        description="principals that may do everything (super.users)")] = ""
    allow_everyone: Annotated[bool, Meta(description="everyone who reaches a port may do everything")] = False
    insecure_listen: Annotated[Literal["refused", "accepted"], Meta(description="accepted: listen beyond this machine"
        " even without TLS, or with allow_everyone")] = "refused"
    # fmt: on

    @property
    def has_rules(self) -> bool:
        """Whether an authorizer of rules is set."""
        return self.authorizer_file != Path() or bool(self.super_users.strip())


class Openness(Enum):
    """Why everyone may do everything, or that not everyone may."""

    GUARDED = "guarded"
    #: allow_everyone.
    BY_SETTING = "allow_everyone"
    #: Nothing is set, and only this machine reaches the ports.
    BY_DEFAULT = "default"


class Listener(NamedTuple):
    """An address that a daemon listens on. ``setting`` names it; ``guarded``: it has an authorizer of its own."""

    setting: str
    host: str
    encrypted: bool
    guarded: bool = False


class Access(NamedTuple):
    """Who asks and what they may."""

    authorizer: Authorizer
    callers: Callers
    openness: Openness


def access_of(
    settings: AuthorizerSettings, listeners: Iterable[Listener], other: Authorizer | None = None
) -> Access:
    """What the settings say. ``other``: an authorizer of other settings, for when these name none.

    Beyond this machine it takes TLS and an authorizer, or words for what is missing. Raises FileSettingError, with the
    setting that is wrong.
    """
    if settings.allow_everyone and settings.has_rules:
        raise FileSettingError("allow_everyone", "true", f"false with {_AUTHORIZER_WORDS}")
    guarded = settings.has_rules or (other is not None and not settings.allow_everyone)
    for listener in listeners:
        if not is_loopback(listener.host):
            _require_words(settings, listener, guarded or listener.guarded)
    callers = _callers(settings)
    if settings.has_rules:
        return Access(_rules(settings), callers, Openness.GUARDED)
    if settings.allow_everyone:
        return Access(AllowAll(), callers, Openness.BY_SETTING)
    if other is not None:
        return Access(other, callers, Openness.GUARDED)
    return Access(AllowAll(), callers, Openness.BY_DEFAULT)


def warn_if_open(openness: Openness) -> None:
    """Say in the log of a daemon that starts that everyone may do everything."""
    if openness is Openness.BY_DEFAULT:
        log.warning("unguarded", why=EVERYONE_MAY)


def _require_words(settings: AuthorizerSettings, listener: Listener, guarded: bool) -> None:
    missing = []
    if not listener.encrypted:
        missing.append("TLS (ssl_certificate)")
    if not guarded:
        missing.append(f"an authorizer ({_AUTHORIZER_WORDS})")
    words = [] if guarded or settings.allow_everyone else ["allow_everyone = true"]
    if settings.insecure_listen != ACCEPTED:
        words.append(_INSECURE_WORDS)
    if missing and words:
        raise FileSettingError(
            listener.setting,
            listener.host,
            f"an address of this machine only, such as 127.0.0.1, without {' and '.join(missing)};"
            f" to listen there all the same, set {' and '.join(words)}",
        )


def _callers(settings: AuthorizerSettings) -> Callers:
    try:
        rules = PrincipalRules(settings.ssl_principal_mapping_rules)
    except ValueError as error:
        raise FileSettingError(
            "ssl_principal_mapping_rules", settings.ssl_principal_mapping_rules, str(error)
        ) from None
    path = settings.bearer_tokens_file
    return Callers(rules, None if path == Path() else tokens_in(path))


def _rules(settings: AuthorizerSettings) -> RuleAuthorizer:
    try:
        supers = super_users(settings.super_users)
        # Principals here are all of this type: user:alice would be nobody.
        if not all(user.startswith("User:") for user in supers):
            raise ValueError(SUPER_USERS_ALLOWED)
    except ValueError as error:
        raise FileSettingError("super_users", settings.super_users, str(error)) from None
    path = settings.authorizer_file
    return RuleAuthorizer(None if path == Path() else rules_in_file(path), supers)
