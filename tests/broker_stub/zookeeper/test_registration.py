"""What a broker makes of what it finds at its own path; test_process.py registers on a real server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import NodeExistsError, RuntimeInconsistency

from broker_stub.zookeeper.registration import Identity, Registrar, Timeouts
from proto.incarnations import new_incarnation

SESSION, OTHER = 77, 78


class Result:
    def __init__(self, value: Any) -> None:
        self.value = value

    def get(self, timeout: float) -> Any:
        assert timeout > 0
        return self.value


class Client:
    """Of a server where our path is there already, of this owner."""

    client_id, negotiated_ms = (SESSION, b""), 4000

    def __init__(self, owner: int, data: bytes) -> None:
        self.stat = SimpleNamespace(ephemeralOwner=owner, czxid=9, version=1)
        self.data = data

    def transaction(self) -> Any:
        refused = [NodeExistsError(), RuntimeInconsistency()]
        return SimpleNamespace(
            create=lambda *_, **__: None,
            set_data=lambda *_: None,
            commit_async=lambda: Result(refused),
        )

    def get_async(self, _path: str) -> Result:
        return Result((self.data, self.stat))

    def exists_async(self, _path: str, _watch: Any) -> Result:
        return Result(self.stat)


@pytest.fixture
def registrar() -> Registrar:
    identity = Identity(1, "h", 9092, None, new_incarnation())
    return Registrar(identity, "h:1", Timeouts(4000, 4000), lambda _epoch: None, lambda _error: None)


def test_a_registration_whose_answer_was_lost_is_its_own(registrar: Registrar) -> None:
    own = registrar._identity.encode(0, 4000)
    assert registrar._try_register(Client(SESSION, own), SESSION) == (9, "")
    strangers = Identity(1, "elsewhere", 9092, None, new_incarnation()).encode(0, 4000)
    assert registrar._try_register(Client(OTHER, strangers), SESSION) == (None, "'elsewhere'")


def test_a_registration_of_another_epoch_is_not_the_one_that_was_made(registrar: Registrar) -> None:
    """Somebody removed it, and somebody registered: maybe we ourselves, with an answer that was lost."""
    client = Client(SESSION, b"")
    assert registrar._is_registered(client, 9)
    assert not registrar._is_registered(client, 8)
