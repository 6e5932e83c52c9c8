"""ZooKeeper is restored from a backup, a server's snapshot or an export without ephemeral znodes: all is as it was some
seconds ago (ADR 23)."""

from __future__ import annotations

from random import Random

from controller.runtime.election.takeover import CLAIM_AGAIN_MAX_S
from tests.provers.sim.checks.settling import unsettled
from tests.provers.sim.cluster import LOOK_S, SimulatedCluster
from tests.provers.sim.episodes.calm import Calm
from tests.provers.sim.plans.plan import VICTIM
from tests.provers.sim.zookeeper.messages import Set

#: No episode has such a number.
_FIRST = 2000
#: How long after ZooKeeper serves again somebody leads and all who live are registered, in session timeouts: to find
#: that the session is refused, to wait for brokers, to resign for an epoch that they know.
_BACK = 4
#: And what connections and elections take, virtual seconds.
_BACK_S = 6.0
EPOCH = "/controller_epoch"
#: Clients try a connection at least once a second: sessions of so long are given up in about their time.
_LONG_S = 2.0


async def restore(cluster: SimulatedCluster) -> None:
    """As often as the plan says. Raises Violated."""
    rng = Random(f"{cluster.plan.seed}:backups:course")
    for number in range(cluster.plan.options.backups):
        asker = Calm(cluster, _FIRST + number, Random(rng.randrange(2**31)))
        task = cluster.loop.spawn(cluster.oddities.operator.process, _restored(asker))
        while not task.done():
            await cluster.pass_s(LOOK_S)
        task.result()
        await cluster.wait_until_settled(lambda: unsettled(cluster))


async def _restored(asker: Calm) -> None:
    cluster, rng, zk = asker.cluster, asker.rng, asker.cluster.zk
    await asker.made(asker.name("-deleted-since"), rng.sample(asker.ids, 2))
    cluster.trace_line("--- backup")
    chance = Random(f"{cluster.plan.seed}:backups:snapshot:{asker.serial}")
    snapshot, goes_on = chance.random() < 0.5, chance.random() < 0.5
    backup, known = zk.ensemble.backup(sessions=snapshot), _assigned(cluster)
    if not (snapshot and goes_on):
        await _another_zookeeper_leads(asker)
    for _ in range(rng.randint(1, 3)):
        await _change(asker)
    if _assigned(cluster) != known:
        # Replicas of what has moved since, or is new, are nobody's.
        return
    by_the_book = rng.random() < 0.3
    if by_the_book:
        for controller in cluster.controllers.values():
            controller.terminate()
        await asker.pass_s(1.0)
    cluster.trace_line("--- ZooKeeper is restored")
    epoch = cluster.ledger.controller_epoch
    for server in range(len(zk.ensemble.servers)):
        zk.stop_server(server)
    # What was answered before that has arrived.
    await asker.pass_s(rng.choice((0.1, 0.5, 2 * asker.session_s)))
    # They find out later that their sessions are refused, and register before the wait for that is over.
    late = rng.sample(asker.ids, rng.randint(0, len(asker.ids))) if asker.session_s >= _LONG_S else []
    for id_ in late:
        zk.block(f"broker-{id_}", range(len(zk.ensemble.servers)))
    cluster.restore_zookeeper(backup)
    await asker.pass_s(0.4 * asker.session_s)
    for id_ in late:
        zk.unblock(f"broker-{id_}")
    await asker.until(
        "sessions of the backup have ended, or go on",
        _BACK * asker.session_s + _BACK_S,
        lambda: all(
            zk.ensemble.is_connected(id_) for id_ in backup.sessions.keys() & zk.ensemble.sessions.keys()
        ),
    )
    await _back(asker, by_the_book=by_the_book, epoch=epoch)


async def _another_zookeeper_leads(asker: Calm) -> None:
    """Of several: the next epoch of zxids is lower than what clients have seen, though it is above the backup's."""
    zk = asker.cluster.zk
    if len(zk.ensemble.servers) > 1 and (leader := zk.ensemble.leader) is not None:
        zk.stop_server(leader)
        await asker.pass_s(0.2)
        zk.start_server(leader)


async def _back(asker: Calm, *, by_the_book: bool, epoch: int) -> None:
    cluster = asker.cluster
    living = {str(id_) for id_, broker in cluster.brokers.items() if broker.alive}
    limit_s = _BACK * asker.session_s + _BACK_S
    await asker.until(
        "brokers are registered", limit_s, lambda: living <= set(cluster.nodes_below("/brokers/ids"))
    )
    if by_the_book:
        if cluster.ledger.controller_epoch != epoch:
            cluster.ask_zookeeper(Set(EPOCH, b"%d" % epoch, -1))
        for controller in cluster.controllers.values():
            if not controller.alive:
                controller.start()
    if cluster.plan.options.takeover:
        # Who has just claimed /controller from a broker of Kafka's does so again later.
        limit_s += CLAIM_AGAIN_MAX_S
    await asker.until("a controller leads", limit_s, lambda: _leads(cluster))
    if asker.rng.random() < 0.5:
        for id_ in asker.ids:
            asker.start(id_)
    await asker.pass_s(asker.rng.choice((0.0, 1.0, 10.0)))


def _leads(cluster: SimulatedCluster) -> bool:
    return any(c.alive and c.daemon is not None and c.daemon.active for c in cluster.controllers.values())


def _assigned(cluster: SimulatedCluster) -> dict[str, object]:
    """Topics with their ids and replicas, but for those that nobody judges."""
    return {
        name: (topic.id, topic.partitions)
        for name, topic in sorted(cluster.ledger.topics.items())
        if not name.startswith(VICTIM)
    }


async def _change(asker: Calm) -> None:
    """Something that ZooKeeper will have forgotten."""
    cluster, rng = asker.cluster, asker.rng
    id_ = rng.choice(asker.ids)
    what = rng.choice(("away", "away", "bounced", "held back", "deposed", "topics", "preferred"))
    cluster.trace_line(f"--- since the backup: {what}, {id_}")
    if what == "away":
        cluster.brokers[id_].kill()
        await asker.pass_s(asker.session_s + 1.0)
        if rng.random() < 0.7:
            asker.start(id_)
    elif what == "bounced":
        cluster.brokers[id_].kill()
        asker.start(id_)
    elif what == "held back":
        with asker.held_back(id_):
            await asker.pass_s(3.5)
    elif what == "deposed":
        for _ in range(rng.choice((1, 2, 3))):
            cluster.faults.depose()
            await asker.pass_s(1.0)
    elif what == "topics":
        await asker.delete(asker.name("-deleted-since"))
        await asker.made(asker.name(f"-created-{rng.randrange(1000)}"), rng.sample(asker.ids, 2))
    else:
        cluster.operator.begin("elect_many", (True,))
    await asker.pass_s(rng.choice((0.5, 2.0)))
