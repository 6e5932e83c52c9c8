"""Settings of who may do what: what starts, and what must be said in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proto.security.access import Access, AuthorizerSettings, Listener, Openness, access_of
from proto.security.authorization import AllowAll
from proto.security.files import FileSettingError
from proto.security.rules import RuleAuthorizer

LOCAL = Listener("grpc_listen", "127.0.0.1", encrypted=False)
PLAIN = Listener("grpc_listen", "0.0.0.0", encrypted=False)
TLS = Listener("grpc_listen", "10.0.0.1", encrypted=True)


def made(*listeners: Listener, **values: Any) -> Access:
    return access_of(AuthorizerSettings(**values), listeners)


def test_on_this_machine_nothing_need_be_set() -> None:
    assert made(LOCAL).openness is Openness.BY_DEFAULT
    assert made(LOCAL, allow_everyone=True).openness is Openness.BY_SETTING
    assert made(LOCAL, super_users="User:a").openness is Openness.GUARDED


def test_who_may_what_is_told_in_documented_words() -> None:
    """``access`` in /state (docs/security.md), which scripts read."""
    assert [openness.value for openness in Openness] == ["guarded", "allow_everyone", "default"]


@pytest.mark.parametrize(
    ("listener", "values", "says"),
    [
        (
            PLAIN,
            {},
            "without TLS .* and an authorizer .* set allow_everyone = true and insecure_listen = accepted",
        ),
        (PLAIN, {"allow_everyone": True}, "set insecure_listen = accepted"),
        (PLAIN, {"insecure_listen": "accepted"}, "set allow_everyone = true"),
        (PLAIN, {"super_users": "User:a"}, "without TLS [^)]*\\); .*set insecure_listen = accepted"),
        (TLS, {}, "without an authorizer .*set allow_everyone = true and insecure_listen = accepted"),
        (TLS, {"allow_everyone": True}, "set insecure_listen = accepted"),
    ],
)
def test_beyond_this_machine_what_is_missing_takes_words(
    listener: Listener, values: dict[str, Any], says: str
) -> None:
    with pytest.raises(FileSettingError, match=says) as refused:
        made(LOCAL, listener, **values)
    assert (refused.value.key, refused.value.value) == (listener.setting, listener.host)


@pytest.mark.parametrize(
    ("listener", "values"),
    [
        (TLS, {"super_users": "User:a"}),
        (PLAIN, {"super_users": "User:a", "insecure_listen": "accepted"}),
        (TLS, {"allow_everyone": True, "insecure_listen": "accepted"}),
        (PLAIN, {"allow_everyone": True, "insecure_listen": "accepted"}),
    ],
)
def test_beyond_this_machine_with_all_or_with_words(listener: Listener, values: dict[str, Any]) -> None:
    made(listener, **values)


def test_a_listener_with_an_authorizer_of_its_own_still_needs_tls() -> None:
    made(TLS._replace(guarded=True))
    with pytest.raises(FileSettingError, match="without TLS"):
        made(PLAIN._replace(guarded=True))


def test_an_authorizer_of_other_settings_counts_if_these_name_none(tmp_path: Path) -> None:
    other = AllowAll()
    assert access_of(AuthorizerSettings(), [TLS], other)[::2] == (other, Openness.GUARDED)
    found = access_of(AuthorizerSettings(super_users="User:a"), [TLS], other)
    assert isinstance(found.authorizer, RuleAuthorizer)
    with pytest.raises(FileSettingError, match="insecure_listen"):
        access_of(AuthorizerSettings(allow_everyone=True), [TLS], other)


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"allow_everyone": True, "super_users": "User:a"}, "allow_everyone"),
        ({"allow_everyone": True, "authorizer_file": Path("x")}, "allow_everyone"),
        ({"super_users": "alice"}, "super_users"),
        ({"super_users": ":alice"}, "super_users"),
        ({"super_users": "User:bob;user:alice"}, "super_users"),
        ({"super_users": "User:a;User:"}, "super_users"),
        ({"ssl_principal_mapping_rules": "RULE:"}, "ssl_principal_mapping_rules"),
        ({"authorizer_file": Path("absent")}, "authorizer_file"),
        ({"bearer_tokens_file": Path("absent")}, "bearer_tokens_file"),
    ],
)
def test_what_is_wrong_is_named(values: dict[str, Any], key: str) -> None:
    with pytest.raises(FileSettingError) as refused:
        made(LOCAL, **values)
    assert refused.value.key == key
