"""Reading as a member of a group: partitions come and go with rebalances, what was printed is committed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from broker_stub.client.consumer import Consumer
from broker_stub.client.errors import GaveUpError, MemberError
from broker_stub.client.group import GroupMember, Membership
from controller.cli.common.output import note
from proto.gen import common_pb2 as codes

JOIN_TIMEOUT_S = 60.0


class Reading(Protocol):
    """Prints until a limit is reached; how many records. ``after`` is awaited after each look for some."""

    async def __call__(self, consumer: Consumer, *, after: Callable[[], Awaitable[None]]) -> int: ...


class _Member:
    """Keeps a consumer's partitions those of the membership. ``start``: where to begin without a committed offset."""

    def __init__(self, addresses: list[str], topic: str, group: str, start: int) -> None:
        self._start = start
        self._topic = topic
        self.consumer = Consumer(addresses, reset="earliest")
        self.member = GroupMember(
            addresses, group, [topic], client_id="pctl", on_assigned=self._assigned, on_lost=self._lost
        )
        self._committed: dict[tuple[str, int], int] = {}

    async def _assigned(self, membership: Membership) -> None:
        committed = await self.member.committed(membership.partitions)
        await self.consumer.assign({key: committed.get(key, self._start) for key in membership.partitions})
        self._committed = committed
        numbers = ", ".join(str(number) for _, number in membership.partitions) or "none"
        note(f"pctl: generation {membership.generation}: partitions of {self._topic}: {numbers}")

    async def _lost(self, _: Membership) -> None:
        await self.consumer.assign({})

    async def commit(self) -> None:
        """What was read and is not committed yet. A generation that is over commits nothing: others read on.

        Raises what ended the membership.
        """
        if self.member.failure is not None:
            raise self.member.failure
        now = {key: self.consumer.position(key) for key in self.consumer.assignment()}
        changed = {key: offset for key, offset in now.items() if self._committed.get(key) != offset}
        if not changed:
            return
        try:
            await self.member.commit(changed)
        except MemberError:
            return
        except GaveUpError as error:
            note(f"pctl: not committed: {error}")
            return
        self._committed.update(changed)


async def read_as_member(addresses: list[str], topic: str, group: str, start: int, read: Reading) -> int:
    """Join, read, commit, leave; how many records were read. Raises ClientError."""
    own = _Member(addresses, topic, group, start)
    try:
        async with own.member:
            await own.member.joined(JOIN_TIMEOUT_S)
            return await read(own.consumer, after=own.commit)
    except TimeoutError:
        asked = f"membership in group {group!r}"
        raise GaveUpError(codes.REQUEST_TIMED_OUT, asked, f"not joined within {JOIN_TIMEOUT_S:g} s") from None
    finally:
        await own.consumer.close()
