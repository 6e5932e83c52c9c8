"""What clients and followers ask brokers for and cannot get."""

from __future__ import annotations

from typing import Any

from proto.gen import broker_data_pb2 as wire
from proto.gen import common_pb2 as codes
from tests.provers.sim.checks.memory import leader_epoch_at
from tests.provers.sim.odd.asking import INVALID, Asker, Codes, OverError
from tests.provers.sim.odd.calls import sent

#: A broker may not lead the partition any more, or not hold it; or know less than ZooKeeper by now.
_ELSEWHERE: Codes = (
    codes.NOT_LEADER_OR_FOLLOWER,
    codes.UNKNOWN_TOPIC_OR_PARTITION,
    codes.KAFKA_STORAGE_ERROR,
    codes.FENCED_LEADER_EPOCH,
    codes.UNKNOWN_LEADER_EPOCH,
)
_UNKNOWN: Codes = (codes.UNKNOWN_TOPIC_OR_PARTITION,)
_EARLIEST, _LATEST = -2, -1
_FAR = 1_000_000


async def refused_reads_and_writes(asker: Asker) -> None:
    """Of a partition that is led, to its leader."""
    led = [(key, state) for key, state in sorted(asker.cluster.ledger.states.items()) if state.leader > 0]
    if not led:
        return
    (topic, number), state = asker.rng.choice(led)
    broker = asker.cluster.brokers.get(state.leader)
    if broker is None:
        return
    # It may not have been told of the newest yet, and then it is right to serve the one before.
    epoch, address = leader_epoch_at(broker, (topic, number), state.leader_epoch), broker.address
    item: dict[str, Any] = {"topic": topic, "partition": number}
    unknown: dict[str, Any] = {"topic": asker.refused(), "partition": 0}

    def fetch(**fields: Any) -> wire.FetchRequest:
        return wire.FetchRequest(partitions=[wire.FetchPartition(**item | fields)], max_bytes=1000)

    def listed(**fields: Any) -> wire.ListOffsetsRequest:
        return wire.ListOffsetsRequest(partitions=[wire.ListOffsetsPartition(**item | fields)])

    def produce(acks: int, place: dict[str, Any], records: bytes = b"") -> wire.ProduceRequest:
        return wire.ProduceRequest(acks=acks, partitions=[wire.ProducePartition(**place, records=records)])

    fenced, too_new = (codes.FENCED_LEADER_EPOCH,), (codes.UNKNOWN_LEADER_EPOCH,)
    corrupt = (codes.CORRUPT_MESSAGE, codes.INVALID_RECORD, codes.INVALID_REQUEST)
    for method, request, allowed in (
        ("Produce", produce(7, item, b"no batch"), (codes.INVALID_REQUIRED_ACKS,)),
        ("Produce", produce(1, item, b"no batch"), corrupt),
        ("Produce", produce(-1, unknown, b"no batch"), _UNKNOWN),
        ("Fetch", fetch(partition_max_bytes=-1), INVALID),
        ("Fetch", fetch(**unknown), _UNKNOWN),
        ("Fetch", fetch(fetch_offset=_FAR, partition_max_bytes=10), (codes.OFFSET_OUT_OF_RANGE,)),
        ("Fetch", fetch(current_leader_epoch=epoch - 1), fenced),
        ("Fetch", fetch(current_leader_epoch=epoch + _FAR), too_new),
        ("ListOffsets", listed(timestamp=-7), INVALID),
        ("ListOffsets", listed(timestamp=_LATEST, current_leader_epoch=epoch + _FAR), too_new),
    ):
        await _ask(asker, address, method, request, (*allowed, *_ELSEWHERE))
    await _ask(asker, address, "Produce", produce(0, unknown, b"no batch"), None)
    whole = await _ask(asker, address, "Fetch", wire.FetchRequest(max_wait_ms=-1), None)
    if whole is not None and whole.error_code not in INVALID:
        asker.cluster.violated(f"a fetch that waits for less than no time got {whole}")
    await _offsets(asker, address, listed)
    await _names(asker, address)


async def _offsets(asker: Asker, address: str, listed: Any) -> None:
    """The first offset, the last, and those of times before and after all records."""
    first, last, old, new = [
        await _ask(asker, address, "ListOffsets", listed(timestamp=timestamp), None)
        for timestamp in (_EARLIEST, _LATEST, 0, 2**50)
    ]
    if first is None or last is None or new is None or old is None:
        return
    begin, end, after = (answer.partitions[0] for answer in (first, last, new))
    if not begin.error_code and not end.error_code and begin.offset > end.offset:
        asker.cluster.violated(f"a partition begins at {begin} and ends at {end}")
    if not after.error_code and after.offset != -1:
        asker.cluster.violated(f"there is a record of the year 37,000: {after}")


async def _names(asker: Asker, address: str) -> None:
    """Each topic once, and why it is not there."""
    unknown, wrong = asker.refused(), "refused!"
    answer = await _ask(
        asker, address, "Metadata", wire.MetadataRequest(topics=[unknown, wrong, unknown]), None
    )
    found = [(t.topic, t.error_code) for t in answer.topics] if answer is not None else []
    expected = [
        (unknown, codes.UNKNOWN_TOPIC_OR_PARTITION),
        (wrong, codes.INVALID_TOPIC_EXCEPTION),
    ]
    if answer is not None and found != expected:
        asker.cluster.violated(f"the metadata of topics that are not there: {answer}")


async def _ask(asker: Asker, address: str, method: str, request: Any, allowed: Codes | None) -> Any:
    """The answer, its parts judged unless ``allowed`` is None. Raises OverError."""
    if asker.cluster.over:
        raise OverError
    asker.operator.asked += 1
    answer = await sent(address, method, request)
    for part in answer.partitions if answer is not None and allowed is not None else ():
        if part.error_code not in (allowed or ()):
            asker.cluster.violated(f"{method} got {part}, not one of {allowed}: {request}")
    return answer
