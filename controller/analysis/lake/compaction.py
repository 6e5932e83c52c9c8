"""Few large files instead of many small ones: a commit of a minute's lines makes a small file for each kind."""

from __future__ import annotations

from collections import defaultdict

from controller.analysis.lake.condensed import condensed_files, merge_condensed, replaced
from controller.analysis.lake.delta_log import Action, Snapshot, remove_action
from controller.analysis.lake.loading import Lake

#: Files of a partition (a day's records of one kind) that are put together, and the size above which one is left alone.
FILES_MAX = 8
SMALL_BYTES = 64 << 20


def scattered(snapshot: Snapshot) -> list[Action]:
    """The small files, as added, of the partitions that have FILES_MAX of them."""
    small: dict[tuple[str | None, ...], list[Action]] = defaultdict(list)
    for added in snapshot.files.values():
        if added["size"] < SMALL_BYTES:
            small[tuple(added["partitionValues"].values())].append(added)
    return [added for files in small.values() if len(files) >= FILES_MAX for added in files]


def compact(lake: Lake, snapshot: Snapshot) -> Snapshot:
    """Put small files together, in one commit. The old ones stay for a day, for those that read them."""
    actions: list[Action] = []
    if files := scattered(snapshot):
        rows = lake.rows(added["path"] for added in files)
        actions += lake.write(rows, new_data=False) + [remove_action(added) for added in files]
    small = [name for name, size in condensed_files(snapshot).items() if size < SMALL_BYTES]
    if len(small) >= FILES_MAX:
        actions += lake.write_condensed(merge_condensed(lake.condensed(small)))
        actions += [replaced(lake.storage, name) for name in small]
    return lake.log.commit(snapshot, actions, "OPTIMIZE") if actions else snapshot
