"""AlterUserScramCredentials: what is written, and what is refused as Kafka refuses it."""

from __future__ import annotations

from typing import Any

import pytest

from controller.core.effects import NotifyConfig, WriteNode
from controller.core.requests.errors import ErrorCode
from controller.core.requests.scram_credentials import AlterScramCredentials, ScramAlteration, ScramCredential
from controller.core.znode_paths import config_path, user_entity
from tests.support.core.harness import MachineHarness
from tests.support.core.world import World

SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"


def to(text: str, iterations: int = 4096) -> ScramCredential:
    return ScramCredential(iterations, text)


def asked(rig: MachineHarness, *alterations: ScramAlteration) -> list[tuple[str, ErrorCode]]:
    (reply,) = rig.ask(AlterScramCredentials(alterations))
    assert reply.error is ErrorCode.NONE
    return [(each.user, each.error) for each in reply.users]


def stored(rig: MachineHarness, user: str) -> Any:
    node = rig.world.nodes.get(config_path(user_entity(user)))
    return None if node is None else node.value


@pytest.fixture
def rig() -> MachineHarness:
    rig = MachineHarness.active(World(1))
    rig.forget()
    return rig


def test_credentials_are_set_beside_what_else_a_user_has(rig: MachineHarness) -> None:
    rig.world.put_node(config_path("users/al%20ice"), {"producer_byte_rate": "7", SHA_256: "old"})
    before = set(rig.world.notifications)
    both = ScramAlteration("al ice", SHA_256, to("a")), ScramAlteration("al ice", SHA_512, to("b", 16_384))
    assert asked(rig, *both) == [("al ice", ErrorCode.NONE)]
    assert stored(rig, "al ice") == {"producer_byte_rate": "7", SHA_256: "a", SHA_512: "b"}
    (path,) = set(rig.world.notifications) - before
    assert rig.world.watched[path] == "users/al%20ice"
    # A deletion and a new credential of another mechanism, in one request.
    change = ScramAlteration("al ice", SHA_256), ScramAlteration("al ice", SHA_512, to("c"))
    assert asked(rig, *change) == [("al ice", ErrorCode.NONE)]
    assert stored(rig, "al ice") == {"producer_byte_rate": "7", SHA_512: "c"}


def test_the_change_and_its_notification_are_one_commit(rig: MachineHarness) -> None:
    asked(rig, ScramAlteration("a", SHA_512, to("x")))
    (commit,) = rig.commits()
    assert [type(write) for write in commit.writes] == [WriteNode, NotifyConfig]


REFUSED = {
    "no name": ([ScramAlteration("", SHA_512, to("x"))], ErrorCode.UNACCEPTABLE_CREDENTIAL),
    "no path": ([ScramAlteration("..", SHA_512, to("x"))], ErrorCode.UNACCEPTABLE_CREDENTIAL),
    "no path either": ([ScramAlteration(".", SHA_512, to("x"))], ErrorCode.UNACCEPTABLE_CREDENTIAL),
    "long name": ([ScramAlteration("a" * 1001, SHA_512, to("x"))], ErrorCode.UNACCEPTABLE_CREDENTIAL),
    "mechanism": ([ScramAlteration("a", None, to("x"))], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    "mechanism to delete": ([ScramAlteration("a", None)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    "few iterations": ([ScramAlteration("a", SHA_512, to("x", 4095))], ErrorCode.UNACCEPTABLE_CREDENTIAL),
    "many iterations": ([ScramAlteration("a", SHA_512, to("x", 16_385))], ErrorCode.UNACCEPTABLE_CREDENTIAL),
    "twice": (
        [ScramAlteration("a", SHA_512, to("x")), ScramAlteration("a", SHA_512)],
        ErrorCode.DUPLICATE_RESOURCE,
    ),
    "nothing to delete": ([ScramAlteration("a", SHA_512)], ErrorCode.RESOURCE_NOT_FOUND),
    "one of two": (
        [ScramAlteration("a", SHA_256, to("x")), ScramAlteration("a", SHA_512)],
        ErrorCode.RESOURCE_NOT_FOUND,
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_user_is_left_alone_and_others_are_not(rig: MachineHarness, case: str) -> None:
    alterations, error = REFUSED[case]
    other = ScramAlteration("b", SHA_512, to("y"))
    assert asked(rig, *alterations, other) == [(alterations[0].user, error), ("b", ErrorCode.NONE)]
    assert stored(rig, alterations[0].user) is None
    assert rig.rejects() == [error.name]
    assert stored(rig, "b") == {SHA_512: "y"}


@pytest.mark.parametrize(("iterations", "why"), [(4095, "Too few"), (16_385, "Too many")])
def test_it_is_said_on_which_side_the_iterations_are(rig: MachineHarness, iterations: int, why: str) -> None:
    (reply,) = rig.ask(AlterScramCredentials([ScramAlteration("a", SHA_512, to("x", iterations))]))
    assert reply.users[0].message == f"{why} iterations"


def test_an_unreadable_user_is_not_overwritten(rig: MachineHarness) -> None:
    path = config_path("users/a")
    rig.world.unreadable[path] = "not JSON"
    assert asked(rig, ScramAlteration("a", SHA_512, to("x"))) == [("a", ErrorCode.UNKNOWN_SERVER_ERROR)]
    assert stored(rig, "a") is None
    assert rig.cluster.problems == {path: "not JSON"}


def test_a_credential_is_never_shown() -> None:
    assert "secret" not in repr(AlterScramCredentials([ScramAlteration("a", SHA_512, to("secret"))]))
