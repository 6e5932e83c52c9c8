"""Our decoders against what Kafka 3.9.1 made of the same bytes (recorded; live: ``make kafka-decoders``)."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from tests.kafka_decoders import recording
from tests.kafka_decoders.cases import SEEDS
from tests.kafka_decoders.deviations import ACCEPTED, DIFFERENT, REFUSED, Compared, deviation
from tests.kafka_decoders.ours import DECODERS, compared


@cache
def _compared() -> list[Compared]:
    return [found for row in recording.read() for found in compared(*row)]


@pytest.mark.parametrize(
    ("who", "znode"), [(who, znode) for who, decoders in DECODERS.items() for znode in decoders]
)
def test_what_kafka_accepts_is_accepted_with_the_same_value(who: str, znode: str) -> None:
    found = [item for item in _compared() if (item.who, item.znode) == (who, znode)]
    unexplained = [item for item in found if not item.equal and deviation(item) is None]
    assert not unexplained, "\n".join(f"{i.data!r}: Kafka {i.kafka}, we {i.ours}" for i in unexplained[:10])
    same = Counter("value" in item.kafka for item in found if item.equal)
    assert min(same[True], same[False]) >= 5


def test_each_deviation_is_met() -> None:
    met = set()
    for item in _compared():
        if not item.equal:
            table = REFUSED if item.refused else ACCEPTED if item.accepted else DIFFERENT
            met.add((id(table), deviation(item), item.znode))
    for table in (REFUSED, ACCEPTED, DIFFERENT):
        for entry in table:
            znodes = entry.znodes.split() if entry.znodes != "*" else ["config"]
            for znode in znodes:
                assert (id(table), entry.name, znode) in met, f"{entry.name} is never met at {znode}"


def test_every_kind_is_recorded() -> None:
    kinds = Counter(row.znode for row in recording.read())
    assert set(kinds) == set(SEEDS)
    assert kinds.total() >= 500
