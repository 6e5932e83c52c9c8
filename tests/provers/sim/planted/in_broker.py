"""Faults of the broker (`broker_stub`)."""

from __future__ import annotations

from tests.provers.sim.planted.fault import Fault

KIND = "broker"
STUB = "broker_stub/"

FAULTS = (
    Fault(
        "registration-not-renewed",
        KIND,
        STUB + "zookeeper/registration.py",
        "a broker whose session has expired does not register again",
        "        if state == KazooState.LOST:\n",
        "        if False:\n",
    ),
    Fault(
        "divergence-not-looked-for",
        KIND,
        STUB + "replication/partition.py",
        "a leader does not tell a follower where their logs part",
        "        if epoch < last_fetched_epoch or end_offset < fetch_offset:",
        "        if False:",
    ),
    Fault(
        "truncation-to-high-watermark",
        KIND,
        STUB + "replication/partition.py",
        "who becomes a follower cuts its log at its high watermark, whatever the leader has",
        "if self.log.latest_epoch is None and self.log.log_end_offset > self.high_watermark:",
        "if self.log.log_end_offset > self.high_watermark:",
    ),
    Fault(
        "high-watermark-ahead",
        KIND,
        STUB + "replication/partition.py",
        "the high watermark goes on without the followers",
        "                broker_id in members\n                or",
        "                False\n                and",
    ),
    Fault(
        "acknowledged-early",
        KIND,
        STUB + "replication/manager.py",
        "a write is acknowledged to all before the ISR has it",
        "        elif partition.high_watermark >= next_offset:",
        "        else:",
    ),
    Fault(
        "acknowledged-on-resignation",
        KIND,
        STUB + "replication/manager.py",
        "who waits for a write hears that all is well when the leader steps down",
        """\
            partition.forget_uncertain()
        self._wake_all(partition.key, codes.NOT_LEADER_OR_FOLLOWER)""",
        """\
            partition.forget_uncertain()
        self._wake_all(partition.key, codes.NONE)""",
    ),
    Fault(
        "shrink-only-in-memory",
        KIND,
        STUB + "replication/manager.py",
        "a leader leaves lagging followers out of its ISR and tells nobody",
        """\
                    self._proposer.submit(proposal)
                # A follower""",
        """\
                    partition.isr, partition.proposed_isr = proposal.isr, None
                # A follower""",
    ),
    Fault(
        "read-beyond-high-watermark",
        KIND,
        STUB + "replication/service.py",
        "consumers are given records that are not committed",
        "        end = log.log_end_offset if fetch.follower is not None else partition.high_watermark",
        "        end = log.log_end_offset",
    ),
    Fault(
        "isr-written-unversioned",
        KIND,
        STUB + "zookeeper/isr_writers.py",
        "a leader writes its ISR over whatever is stored by now",
        "        new_version = await self._store.set_state(topic, partition, data, version)\n        if",
        "        new_version = await self._store.set_state(topic, partition, data, -1)\n        if",
    ),
    Fault(
        "coordinator-not-unloaded",
        KIND,
        STUB + "group/migration.py",
        "groups stay in the memory of a broker that does not lead their partition any more",
        "        groups = self.owned.pop(partition, None)",
        "        groups = None",
    ),
    Fault(
        "offsets-acknowledged-early",
        KIND,
        STUB + "offsets_topic.py",
        "committed offsets are acknowledged before they are replicated",
        "        return await self._manager.committed(found, appended.next_offset, self._timeout_s)",
        "        return codes.NONE",
    ),
    Fault(
        "served-before-registration",
        KIND,
        STUB + "rpc/server.py",
        "brokers obey before they are registered",
        "            await self._registered.wait()\n",
        "",
    ),
)
