"""What the asker of a report tells, because no log has it. Imports no Spark."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from controller.analysis.errors import ReportError
from proto.texts import in_words

#: Bytes of a list of brokers at most: more than a hundred thousand brokers need.
_LIST_MAX = 64 << 20


@dataclass(frozen=True)
class Asked:
    """``slo``: percent of the time that a partition should have a leader; None: not judged.
    ``racks``: of brokers, by their ids; empty: not known. Raises ReportError if ``slo`` is out of range."""

    slo: float | None = None
    racks: Mapping[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.slo is not None and not (math.isfinite(self.slo) and 0 < self.slo <= 100):
            raise ReportError(f"SLO of {self.slo:g} percent: must be above 0 and at most 100")


NOTHING_TOLD = Asked()


def read_racks(path: Path) -> dict[int, str]:
    """Racks by broker id, from the output of ``pctl brokers -o json``; brokers without a rack are left out.

    Raises ReportError that names the file and what is wrong.
    """
    try:
        # A device or a pipe has no size to ask for.
        with path.open("rb") as source:
            data = source.read(_LIST_MAX + 1)
        if len(data) > _LIST_MAX:
            raise ReportError(f"{path}: {_LIST_MAX >> 20} MB at most")
        rows = json.loads(data)
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{path}: not JSON: {in_words(error)}") from None
    if not isinstance(rows, list):
        raise ReportError(f"{path}: must be a list, as pctl brokers -o json prints it")
    racks = {}
    for number, row in enumerate(rows):
        broker = row.get("broker") if isinstance(row, dict) else None
        if type(broker) is not int:
            raise ReportError(f"{path}: item {number}: broker: must be a number")
        rack = row.get("rack")
        if rack is not None and not isinstance(rack, str):
            raise ReportError(f"{path}: item {number}: rack: must be a text")
        if rack:
            racks[broker] = rack
    return racks
