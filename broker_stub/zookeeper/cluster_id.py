"""Which cluster ZooKeeper holds, and whether the broker's data belongs to it: ``/cluster/id`` against ``cluster.id`` in
meta.properties, as Kafka's brokers compare them (reference, section 1.1)."""

from __future__ import annotations

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError

from broker_stub.errors import RegistrationFault
from broker_stub.zookeeper import codecs

_SHOWN_MAX = 80


def read_cluster_id(client: KazooClient, chroot: str, known: str, timeout_s: float) -> str:
    """The id of the cluster under ``chroot``; empty: it has none yet. ``client`` may be in the chroot, and nothing is
    written. ``known``: the cluster of the broker's data; empty: it was in none.

    Raises RegistrationFault when the data belongs to another cluster, or a cluster is expected and none is there;
    MalformedZnode; KazooException.
    """
    root = "" if client.chroot else chroot
    found = _get(client, f"{root}{codecs.CLUSTER_ID}", timeout_s)
    if not known or found == known:
        return found
    where = f"{chroot or '/'} of ZooKeeper"
    if not found:
        if client.exists_async(f"{root}{codecs.TOPICS}").get(timeout=timeout_s) is not None:
            return ""
        raise _not_its_cluster(known, f"{where} holds no cluster")
    raise _not_its_cluster(known, f"{where} holds cluster {found[:_SHOWN_MAX]}")


def make_cluster_id(client: KazooClient, cluster_id: str, timeout_s: float) -> str:
    """The id that is there now: this one, or what another has written meanwhile. ``client`` is in the chroot.

    Raises MalformedZnode, KazooException.
    """
    data = codecs.encode_cluster_id(cluster_id)
    try:
        client.create_async(codecs.CLUSTER_ID, data, makepath=True).get(timeout=timeout_s)
    except NodeExistsError:
        return _get(client, codecs.CLUSTER_ID, timeout_s)
    return cluster_id


def _get(client: KazooClient, path: str, timeout_s: float) -> str:
    try:
        data, _ = client.get_async(path).get(timeout=timeout_s)
    except NoNodeError:
        return ""
    return codecs.decode_cluster_id(data)


def _not_its_cluster(known: str, found: str) -> RegistrationFault:
    return RegistrationFault(
        f"the data of this broker belongs to cluster {known[:_SHOWN_MAX]} (cluster.id in meta.properties), but"
        f" {found}: zookeeper must name the servers and the chroot of its cluster. If ZooKeeper lost that cluster, or"
        " the data is to join another, remove the line cluster.id from the meta.properties of each data directory"
    )
