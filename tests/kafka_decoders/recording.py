"""What Kafka answered once: recorded.jsonl, so that a comparison needs no Java."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.kafka_decoders.cases import Case
from tests.kafka_decoders.deviations import deviation
from tests.kafka_decoders.ours import compared

RECORDED = Path(__file__).with_name("recorded.jsonl")
#: Inputs that are longer are tried, but not recorded.
_BYTES_MAX = 4000


class Answered(NamedTuple):
    znode: str
    data: bytes
    kafka: Mapping[str, Any]


def read() -> Iterator[Answered]:
    """Each byte of the data is a character of the same number."""
    for line in RECORDED.read_text(encoding="ascii").splitlines():
        row = json.loads(line)
        yield Answered(row["znode"], row["data"].encode("latin-1"), row["kafka"])


def _kind(case: Case, kafka: Mapping[str, Any]) -> tuple[object, ...]:
    """Cases of the same kind say the same: one is recorded."""
    verdict = kafka.get("refused", "").partition(":")[0] or next(iter(kafka))
    named = {deviation(found) for found in compared(case.znode, case.data, kafka) if not found.equal}
    # Where both refuse, one of each odd thing will do for all places; where deviations differ, one in all.
    how = "" if named else case.how if "value" in kafka else case.how.rpartition(" ")[2]
    # Numbers are where accepting differs most: large and negative ones are kept besides.
    value = json.dumps(kafka.get("value"))
    return case.znode, how, verdict, frozenset(named), "-" in value, "214748364" in value


def write(answered: Iterable[tuple[Case, Mapping[str, Any]]]) -> int:
    """Records the interesting ones. Returns how many there are."""
    kept: dict[tuple[object, ...], str] = {}
    for case, kafka in answered:
        if len(case.data) <= _BYTES_MAX and (kind := _kind(case, kafka)) not in kept:
            kept[kind] = json.dumps(
                {"znode": case.znode, "data": case.data.decode("latin-1"), "kafka": kafka}
            )
    RECORDED.write_text("".join(f"{line}\n" for line in kept.values()), encoding="ascii")
    return len(kept)
