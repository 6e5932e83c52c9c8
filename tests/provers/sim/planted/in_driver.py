"""Faults of carrying decisions out (`controller.runtime`)."""

from __future__ import annotations

from tests.provers.sim.planted.fault import Fault

KIND = "driver"
RUNTIME = "controller/runtime/"

FAULTS = (
    Fault(
        "no-epoch-check",
        KIND,
        RUNTIME + "zookeeper/store.py",
        "writes land whatever the controller epoch is by now",
        "jute.op_check(session.packed_path(znode_paths.CONTROLLER_EPOCH), epoch_version)",
        "jute.op_check(session.packed_path(znode_paths.CONTROLLER_EPOCH), -1)",
    ),
    Fault(
        "unknown-taken-for-written",
        KIND,
        RUNTIME + "zookeeper/store.py",
        "a write whose answer was lost counts as done",
        """\
            self._session.require_lease()
            return Unconfirmed(commit.id, "the connection was lost before the answer")""",
        """\
            return Committed(commit.id)""",
    ),
    Fault(
        "conflict-taken-for-written",
        KIND,
        RUNTIME + "zookeeper/store.py",
        "a write that ZooKeeper refused counts as done",
        """return Unconfirmed(commit.id, f"a write conflicted (ZooKeeper error {error.code})")""",
        "return Committed(commit.id)",
    ),
    Fault(
        "broker-watch-not-rearmed",
        KIND,
        RUNTIME + "zookeeper/store.py",
        "the registrations are read without arming their watch again",
        "ids = await self._children(znode_paths.BROKER_IDS)",
        "ids = await self._session.children(znode_paths.BROKER_IDS)",
    ),
    Fault(
        "deletion-watch-not-rearmed",
        KIND,
        RUNTIME + "zookeeper/store.py",
        "the names of topics and markers of deletion are read without arming their watches again",
        "return await self._children(query.path)",
        "return await self._session.children(query.path)",
    ),
    Fault(
        "standby-does-not-watch",
        KIND,
        RUNTIME + "controller_election.py",
        "who has lost an election does not watch /controller",
        "    stat = await session.exists(znode_paths.CONTROLLER, on_change)\n    if stat is not None:",
        "    stat = await session.exists(znode_paths.CONTROLLER)\n    if stat is not None:",
    ),
    Fault(
        "deposition-not-noticed",
        KIND,
        RUNTIME + "term.py",
        "the active controller does not look whether /controller is still its own",
        "if not await controller_election.still_ours(self.session, self.won, self._controller_changed):",
        "if False:",
    ),
    Fault(
        "reconnect-ignored",
        KIND,
        RUNTIME + "daemon.py",
        "after a reconnect nothing is read again, and no watch armed",
        "                self.term.reconnected()",
        "                pass",
    ),
    Fault(
        "push-not-repeated",
        KIND,
        RUNTIME + "push/sender.py",
        "a push that a broker did not answer is given up",
        "                backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)\n                continue",
        "                return",
    ),
    Fault(
        "memory-kept-over-terms",
        KIND,
        RUNTIME + "daemon.py",
        "what a controller knew in its last term, it takes into the next",
        "        term = self.term = Term(session, won, self.settings, self._journal, self.metrics, self._ready)\n",
        """\
        term = self.term = Term(session, won, self.settings, self._journal, self.metrics, self._ready)
        kept = self.__dict__.get("kept", {})
        vars(term.machine.cluster).update(kept, controller_epoch=won.epoch)
        self.__dict__["kept"] = vars(term.machine.cluster)
""",
    ),
    Fault(
        "lease-not-looked-at",
        KIND,
        RUNTIME + "push/sender.py",
        "pushes go out without a look at the lease",
        "            self._require_lease()\n            sent_at",
        "            sent_at",
    ),
    Fault(
        "lease-too-long",
        KIND,
        RUNTIME + "lease.py",
        "a controller acts for three session timeouts without a word from ZooKeeper",
        "FRACTION = 2 / 3\n",
        "FRACTION = 3\n",
    ),
    Fault(
        "expiry-taken-for-disconnection",
        KIND,
        RUNTIME + "zookeeper/session.py",
        "an expired session counts as one that has lost its connection",
        "            self.over = True\n            change = Connection.EXPIRED\n",
        "            change = Connection.SUSPENDED\n",
    ),
)
