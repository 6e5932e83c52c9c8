"""Faults of decisions (`controller.core`)."""

from __future__ import annotations

from tests.provers.sim.planted.fault import Fault

KIND = "core"
CORE = "controller/core/"

FAULTS = (
    Fault(
        "isr-not-checked",
        KIND,
        CORE + "partitions/leader_election.py",
        "a leader is elected whether or not it is in the ISR, and counts as a member then",
        """\
    if not way.unclean and broker_id not in ballot.current.isr:
        return Rule.IN_SYNC
    return None
""",
        """\
    if way.elected is _online_isr:
        isr = tuple(dict.fromkeys([*ballot.current.isr, broker_id]))
        ballot.current = msgspec.structs.replace(ballot.current, isr=isr)
    elif not way.unclean and broker_id not in ballot.current.isr:
        return Rule.IN_SYNC
    return None
""",
    ),
    Fault(
        "leader-epoch-not-raised",
        KIND,
        CORE + "model.py",
        "an election leaves the leader epoch as it was",
        "leader, self.leader_epoch + 1, isr, self.partition_epoch + 1",
        "leader, self.leader_epoch, isr, self.partition_epoch + 1",
    ),
    Fault(
        "preferred-leader-not-in-sync",
        KIND,
        CORE + "partitions/leader_election.py",
        "the preferred replica is elected although it is not in sync",
        """\
    if not way.unclean and broker_id not in ballot.current.isr:
        return Rule.IN_SYNC
    return None
""",
        """\
    if way.candidates is _preferred:
        isr = tuple(dict.fromkeys([*ballot.current.isr, broker_id]))
        ballot.current = msgspec.structs.replace(ballot.current, isr=isr)
    elif not way.unclean and broker_id not in ballot.current.isr:
        return Rule.IN_SYNC
    return None
""",
    ),
    Fault(
        "preferred-leader-dead",
        KIND,
        CORE + "partitions/leader_election.py",
        "the preferred replica is elected although its broker is not there",
        """\
    if broker_id not in ballot.online:
        return Rule.ONLINE
    if not way.unclean""",
        """\
    if broker_id not in ballot.online and way.candidates is not _preferred:
        return Rule.ONLINE
    if not way.unclean""",
    ),
    Fault(
        "unclean-without-permission",
        KIND,
        CORE + "partitions/partition_state_machine.py",
        "a leader that is out of sync is elected although the configuration forbids it",
        """return context.unclean_default if value is None else given == "true\"""",
        "return True",
    ),
    Fault(
        "bounce-missed",
        KIND,
        CORE + "brokers/changes.py",
        "a broker that left and came back between two looks counts as never gone",
        "if id_ in cluster.brokers and b.epoch > cluster.brokers[id_].epoch",
        "if id_ in cluster.brokers and b.epoch < cluster.brokers[id_].epoch",
    ),
    Fault(
        "push-before-commit",
        KIND,
        CORE + "partitions/partition_state_machine.py",
        "brokers are told of a leader before ZooKeeper has it",
        """\
        new = current.successor(elected.leader, elected.isr, self.epoch, elected.recovery)
""",
        """\
        new = current.successor(elected.leader, elected.isr, self.epoch, elected.recovery)
        partition.leadership = new
        self.context.push_leadership(elected.recipients, partition)
""",
    ),
    Fault(
        "stale-cache-after-conflict",
        KIND,
        CORE + "commits.py",
        "who is overtaken in a write decides again from what it knew before",
        """\
    context.solved_state(partition)
    partition.leadership = found
    # Whatever""",
        """\
    context.solved_state(partition)
    # Whatever""",
    ),
    Fault(
        "one-replica-not-told",
        KIND,
        CORE + "partitions/partition_state_machine.py",
        "after an election the last replica gets no LeaderAndIsr",
        "            context.push_leadership(change.recipients, partition)",
        "            context.push_leadership(change.recipients[:-1], partition)",
    ),
    Fault(
        "leader-not-told-of-shrink",
        KIND,
        CORE + "partitions/replica_state_machine.py",
        "a leader is not told that the controller has taken a dead replica out of its ISR",
        "            context.push_leadership(change.recipients, change.partition)\n",
        "",
    ),
    Fault(
        "metadata-not-told-of-isr",
        KIND,
        CORE + "isr/alter_partition.py",
        "brokers get no UpdateMetadata after a leader has changed its ISR",
        """\
        waiting = yield from _round(context, waiting)
    context.push_metadata(named)
""",
        """\
        waiting = yield from _round(context, waiting)
""",
    ),
    Fault(
        "isr-notification-ignored",
        KIND,
        CORE + "isr/isr_notifications.py",
        "what leaders have written by themselves is not read",
        'changed = yield from refresh(context, list(named), "isr_change_notification")',
        'changed = yield from refresh(context, [], "isr_change_notification")',
    ),
    Fault(
        "move-finished-early",
        KIND,
        CORE + "reassignment/phases.py",
        "a move is finished before its new replicas are in sync",
        "    return known is not None and bool(plan.target) and set(plan.target) <= set(known.isr)",
        "    return known is not None and bool(set(plan.target) & set(known.isr))",
        (
            (
                "        if partition not in failed and known and not set(partition.replicas) <= set(known.isr):",
                "        if False and known:",
            ),
        ),
    ),
    Fault(
        "legacy-znode-kept",
        KIND,
        CORE + "reassignment/phases.py",
        "/admin/reassign_partitions stays when the moves that it asks for are done",
        "    yield from remove_listed(context, {(p.topic.name, p.number): p.replicas for p in done})\n",
        "",
    ),
    Fault(
        "deletions-not-resumed",
        KIND,
        CORE + "failover.py",
        "a new controller does not go on with the deletions that it finds",
        "    yield from deletion.resume(context)\n",
        "",
    ),
    Fault(
        "deletion-not-announced",
        KIND,
        CORE + "topics/deletion.py",
        "brokers are not told to forget a topic that is being deleted",
        "    context.push_metadata(partitions)\n    reachable",
        "    reachable",
    ),
    Fault(
        "new-broker-without-metadata",
        KIND,
        CORE + "brokers/changes.py",
        "a broker that comes is not told of the partitions",
        "    context.push_snapshot(brokers.keys(), led)\n",
        "",
    ),
    Fault(
        "topics-not-looked-at-after-reconnect",
        KIND,
        CORE + "handlers.py",
        "after a reconnect the watch on topics stays lost, and with it what came meanwhile",
        """\
    yield from topics_changed(context)
    if context.cluster.topics:""",
        "    if context.cluster.topics:",
    ),
    Fault(
        "leaders-kept-at-shutdown",
        KIND,
        CORE + "brokers/controlled_shutdown.py",
        "a broker that asks to leave is let go while it leads",
        "    yield from partition_state_machine.to_online(context, led, leader_election.CONTROLLED_SHUTDOWN)\n",
        "",
        (
            (
                "    remaining = [(p.topic.name, p.number) for p in _scope(context, broker_id)"
                " if _leads(broker_id, p)]",
                "    remaining: list[tuple[str, int]] = []",
            ),
        ),
    ),
)
