"""Random ZooKeeper requests: few paths, so that they meet; paths and versions that are refused among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from hypothesis import strategies as st

from tests.provers.sim.zookeeper.contract.pair import BASE
from tests.provers.sim.zookeeper.messages import (
    Check,
    Children,
    Create,
    Delete,
    Exists,
    Get,
    GetPerms,
    Multi,
    MultiRead,
    Operation,
    Perms,
    Ping,
    Set,
    SetPerms,
    SetWatches,
    Sync,
)

#: A setWatches but for the zxid.
Rearm: TypeAlias = Callable[[int], SetWatches]

_PLAIN = [f"{BASE}/{name}" for name in ("a", "b", "a/a", "a/b", "b/a", "a/a/a")]
_ODD = [
    "x",
    "x/y",
    f"{BASE}/",
    f"{BASE}/a/",
    f"{BASE}//a",
    f"{BASE}/a//b",
    f"{BASE}/.",
    f"{BASE}/a/../b",
    f"{BASE}/...",
    f"{BASE}/a\0",
    f"{BASE}/a\x01",
    f"{BASE}/\x7f",
    f"{BASE}/\ue000",
    f"{BASE}/\uffff",
    f"{BASE}/é\U0001f600",
    "/nowhere/at/all",
]
_SERVERS_OWN = ["/zookeeper", "/zookeeper/config", "/zookeeper/quota"]


@st.composite
def _mostly_plain(draw: st.DrawFn, odd: tuple[str, ...]) -> str:
    """Twelve times out of thirteen a path that can exist."""
    return draw(st.sampled_from(odd if draw(st.integers(0, 12)) == 7 else _PLAIN))


#: For reads: also what the comparisons after this one need as it is.
paths = _mostly_plain((*_ODD, "", BASE, "/", *_SERVERS_OWN))
set_paths = _mostly_plain((*_ODD, BASE))
create_paths = _mostly_plain(tuple(_ODD))
delete_paths = _mostly_plain((*_ODD, "/", "", *_SERVERS_OWN))
versions = st.sampled_from([-1, -1, -1, 0, 0, 1, 2, 3, -2])
data = st.sampled_from([b"", None, b"x", b"longer"])
flags = st.booleans()
#: Mostly everything is allowed.
perms = st.sampled_from(
    [Perms.ALL] * 12
    + [
        None,
        0,
        Perms.READ,
        Perms.ALL & ~Perms.READ,
        Perms.ALL & ~Perms.CREATE,
        Perms.ALL & ~Perms.DELETE,
        Perms.ADMIN,
    ]
)
new_perms = st.sampled_from(
    [
        Perms.ALL,
        Perms.ALL,
        None,
        Perms.ALL & ~Perms.READ,
        Perms.ALL & ~Perms.WRITE,
        Perms.ALL & ~Perms.ADMIN,
        Perms.READ,
    ]
)

creates = st.builds(
    Create,
    create_paths,
    data,
    ephemeral=flags,
    sequential=st.sampled_from([False, False, False, True]),
    perms=perms,
    with_stat=flags,
)
deletes = st.builds(Delete, delete_paths, versions)
sets = st.builds(Set, set_paths, data, versions)
in_multis = st.one_of(creates, deletes, sets, st.builds(Check, set_paths, versions))
multis = st.builds(Multi, st.lists(in_multis, max_size=5).map(tuple))
reads = st.one_of(
    st.builds(Get, paths, flags),
    st.builds(Exists, paths, flags),
    st.builds(Children, paths, flags, flags),
)
in_multi_reads = st.one_of(st.builds(Get, paths, flags), st.builds(Children, paths, flags))
multi_reads = st.builds(MultiRead, st.lists(in_multi_reads, max_size=5).map(tuple))

_plain_paths = st.sampled_from(_PLAIN)
#: Reads that leave a watch.
watching = st.one_of(
    st.builds(Get, _plain_paths, st.just(True)),
    st.builds(Exists, _plain_paths, st.just(True)),
    st.builds(Children, _plain_paths, st.just(True)),
)
#: Writes that mostly land.
_made = st.builds(Create, _plain_paths, data, ephemeral=flags, sequential=flags)
_unmade = st.builds(Delete, _plain_paths)
_written = st.builds(Set, _plain_paths, data)
changing = st.one_of(_made, _made, _unmade, _written)


def operations() -> st.SearchStrategy[Operation]:
    return st.one_of(
        creates,
        changing,
        changing,
        deletes,
        sets,
        multis,
        reads,
        reads,
        watching,
        multi_reads,
        st.builds(SetPerms, create_paths, new_perms, versions),
        st.builds(GetPerms, paths),
        st.builds(Sync, paths),
        st.builds(Ping),
    )


def likely_multis() -> st.SearchStrategy[Operation]:
    """Several changes of the same few nodes, of which the later ones see the earlier ones."""
    likely = st.one_of(_made, _made, _unmade, _written, st.builds(Check, _plain_paths, versions))
    return st.builds(Multi, st.lists(likely, min_size=1, max_size=6).map(tuple))


def set_watches() -> st.SearchStrategy[Rearm]:
    some = st.lists(paths, max_size=3).map(tuple)

    def rearm(by_data: tuple[str, ...], by_existence: tuple[str, ...], by_children: tuple[str, ...]) -> Rearm:
        return lambda zxid: SetWatches(zxid, by_data, by_existence, by_children)

    return st.builds(rearm, some, some, some)
