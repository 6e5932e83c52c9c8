"""What tables take of single records, looked for once among all of them; they take the rest from condensed ones."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from controller.analysis.intake.fields import EVENT_KINDS
from controller.analysis.leaderless import edges
from controller.analysis.questions.operations import HELD_UP
from controller.analysis.questions.outages import moved

#: Fewer lines are read again sooner than kept.
_LINES_QUICKLY_READ = 100_000


@dataclass(frozen=True)
class Singles:
    """``events``: records of rare kinds, of which each counts for itself. ``edges``: `leaderless.edges`. ``moved``:
    `outages.moved`."""

    events: DataFrame
    edges: DataFrame
    moved: DataFrame


def singles_of(records: DataFrame, lines: int) -> Singles:
    """The single records, found by Spark wherever the logs are. ``lines``: how many there are."""
    events = events_of(records)
    kept = events if lines < _LINES_QUICKLY_READ else events.persist()
    return Singles(kept, edges(records), moved(records))


def events_of(records: DataFrame) -> DataFrame:
    """The records of rare kinds; of rejections only those that hold a reassignment up."""
    counts = (F.col("kind") != "reject") | (F.col("error") == HELD_UP)
    return records.where(F.col("kind").isin(*EVENT_KINDS) & counts)
