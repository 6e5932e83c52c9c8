"""How long ago a broker that is gone gave its last sign: the begin of an outage that its session hid.

ZooKeeper tells of a dead broker when its session has expired, which is at least the session's timeout after its last
heartbeat. What the controller heard of it itself may be newer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from controller.core.model import Broker, Cluster


def silent(gone: Mapping[int, Broker], cluster: Cluster, now_us: int) -> dict[int, int]:
    """Microseconds, by broker; those of which nothing is known are left out."""
    found: dict[int, int] = {}
    for id_, broker in gone.items():
        signs = [cluster.heard_us[id_]] if id_ in cluster.heard_us else []
        if broker.session_timeout_ms:
            signs.append(now_us - broker.session_timeout_ms * 1000)
        if signs:
            found[id_] = max(now_us - max(signs), 0)
    return found


def registered(cluster: Cluster, current: Collection[int], new: Iterable[int], now_us: int) -> None:
    """A new registration is a sign; of brokers that are gone nothing is kept."""
    heard = {id_: heard_us for id_, heard_us in cluster.heard_us.items() if id_ in current}
    # Changed in place: the driver writes to it.
    cluster.heard_us.clear()
    cluster.heard_us.update(heard | dict.fromkeys(new, now_us))
