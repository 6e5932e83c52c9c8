"""A group driven by hand: its clock, what its callers were told, what it wanted stored."""

from __future__ import annotations

from typing import Any

from broker_stub.group.members import JoinRequest, JoinResult
from broker_stub.group.messages import GroupValue
from broker_stub.group.state import Effects, Group, GroupState
from proto.gen import common_pb2 as codes

DELAY_MS = 3_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000


class Driver:
    """A group, its clock, and what its callers were told."""

    def __init__(self, delay_ms: int = DELAY_MS) -> None:
        self.group = Group("g", delay_ms)
        self.now_ms = 0
        self.answers: dict[object, Any] = {}
        self.stores: list[GroupValue] = []

    def take(self, effects: Effects) -> None:
        for token, result in effects.replies:
            assert token not in self.answers
            self.answers[token] = result
        if effects.store is not None:
            self.stores.append(effects.store)

    def join(
        self,
        name: str,
        token: object = None,
        new: bool = False,
        protocols: tuple[tuple[str, bytes], ...] = (("range", b"m"),),
        protocol_type: str = "consumer",
        rebalance_ms: int = REBALANCE_MS,
    ) -> JoinResult | None:
        """``new``: the member has no id yet and is to be called ``name``."""
        token = token if token is not None else f"join {name} {self.now_ms} {len(self.answers)}"
        asked = JoinRequest("" if new else name, "client", SESSION_MS, rebalance_ms, protocol_type, protocols)
        self.take(self.group.join(asked, name, token, self.now_ms))
        return self.answers.get(token)

    def sync(self, name: str, token: object, generation: int | None = None, **assignments: bytes) -> Any:
        generation = self.group.generation_id if generation is None else generation
        self.take(self.group.sync(name, generation, assignments, token, self.now_ms))
        return self.answers.get(token)

    def heartbeat(self, name: str, generation: int | None = None) -> codes.ErrorCode:
        generation = self.group.generation_id if generation is None else generation
        error, effects = self.group.heartbeat(name, generation, self.now_ms)
        self.take(effects)
        return error

    def leave(self, name: str) -> codes.ErrorCode:
        error, effects = self.group.leave(name, self.now_ms)
        self.take(effects)
        return error

    def commit(self, name: str, generation: int) -> codes.ErrorCode:
        error, effects = self.group.check_commit(name, generation, self.now_ms)
        self.take(effects)
        return error

    def stored(self, error: codes.ErrorCode = codes.NONE, generation: int | None = None) -> None:
        generation = self.group.generation_id if generation is None else generation
        self.take(self.group.stored(generation, error, self.now_ms))

    def pass_ms(self, ms: int) -> None:
        self.now_ms += ms
        self.take(self.group.expire(self.now_ms))


def in_state(state: GroupState, size: int = 2) -> Driver:
    """Members ``a`` (the leader), ``b``, ...; in the state asked for, of generation 1 where there is one."""
    driver = Driver()
    if state is GroupState.EMPTY:
        return driver
    names = "abcdef"[:size]
    for name in names:
        driver.join(name, new=True)
    driver.pass_ms(DELAY_MS)
    driver.pass_ms(DELAY_MS)
    assert driver.group.state is GroupState.COMPLETING_REBALANCE
    if state is GroupState.STABLE or state is GroupState.PREPARING_REBALANCE:
        for name in names:
            driver.sync(name, f"sync {name}", None, **{each: each.encode() for each in names})
        driver.stored()
    if state is GroupState.PREPARING_REBALANCE:
        driver.join("a", token="a rejoins")
    if state is GroupState.DEAD:
        driver.take(driver.group.unload(codes.NOT_COORDINATOR))
    assert driver.group.state is state
    return driver
