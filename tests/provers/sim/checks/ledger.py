"""What ZooKeeper was told and brokers were sent in one run, held against the invariants of section 16.

Read here with nothing of the controller's: a codec of ours that is wrong cannot hide itself. Every transaction is
looked at when it is agreed on, every control request when it arrives.
"""

from __future__ import annotations

import json
import re
import zlib
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Any

from proto.gen import broker_control_pb2 as wire
from tests.provers.sim.checks.forgotten import Forgotten, Verdict
from tests.provers.sim.checks.stored import Partition, State, Topic, state_of, topic_of
from tests.provers.sim.zookeeper.tree import (
    Change,
    DataSet,
    Node,
    NodeCreated,
    NodeDeleted,
    Transaction,
    VersionChecked,
)

_TOPIC = re.compile(r"/brokers/topics/([^/]+)\Z")
STATE_PATH = re.compile(r"/brokers/topics/([^/]+)/partitions/(\d+)/state\Z")
_ISR_NOTIFICATION = re.compile(r"/isr_change_notification/isr_change_\d+\Z")
_DELETION = re.compile(r"/admin/delete_topics/([^/]+)\Z")
_BROKER = re.compile(r"/brokers/ids/(\d+)\Z")
#: What a controller writes without being elected, or in order to be.
_ELECTION = re.compile(r"/controller(_epoch|s(/.*)?)?\Z")
#: How the names of controllers and of their copies begin.
_CONTROLLERS = ("controller-", "namesake-")
_REQUESTS: dict[str, Any] = {
    "LeaderAndIsr": wire.LeaderAndIsrRequest,
    "UpdateMetadata": wire.UpdateMetadataRequest,
    "StopReplica": wire.StopReplicaRequest,
}
_DELETING = -2


def _short(directory: str) -> int:
    """What a state has of a directory's id."""
    return int.from_bytes(urlsafe_b64decode(f"{directory}==")[:4])


def _together(directories: Iterable[int]) -> int:
    """What a state has of a replica of which only the broker's directories are known."""
    return zlib.crc32(b"".join(d.to_bytes(4) for d in sorted(directories)))


#: What an operator's hand writes that does not decode.
SCRIBBLE = b"{"
#: What one writes who watches that nobody writes over it: no other hand touches it.
NONSENSE = b'{"version":'


class Ledger:
    """``report`` takes each violation, in words; ``writer`` says whose request makes the present transaction.

    ``excuse(topic, topic id, partition)`` hears of partitions that may have lost acknowledged records.
    """

    def __init__(
        self,
        report: Callable[[str], None],
        writer: Callable[[], str],
        excuse: Callable[[str, str, int], None],
    ) -> None:
        self._report, self._writer, self._excuse_partition = report, writer, excuse
        self.topics: dict[str, Topic] = {}
        self.states: dict[Partition, State] = {}
        #: The present one, and the highest ever.
        self.controller_epoch = self._epoch_max = 0
        #: Controllers by the epoch they were elected in.
        self.elected: dict[int, str] = {}
        #: Whether ZooKeeper has this session; and who holds ``/controller``: the writer, and the session it names.
        self.is_live: Callable[[int], bool] = lambda _: False
        self.holder: tuple[str, int] = ("", 0)
        #: Registrations of candidates: path to the session that owns it.
        self._candidates: dict[str, int] = {}
        #: What controllers own: path to writer and session.
        self._owned: dict[str, tuple[str, int]] = {}
        #: Partitions whose state does not decode; and those that a hand has put back, and nobody has written since.
        self.scribbled: set[Partition] = set()
        self.put_back: set[Partition] = set()
        #: Partitions whose states somebody wrote as they were: their leaders have older versions.
        self.touched: set[Partition] = set()
        #: All that was written as a partition's state, in order.
        self.written: dict[Partition, list[bytes]] = {}
        #: The state that somebody is just putting back, and whether a controller lives that knows the present one; of
        #: those that were put back, what is stored: what was before is still the truth, as long as one lives.
        self.restoring: tuple[Partition, bool] | None = None
        self._restored: dict[Partition, State] = {}
        #: Partitions whose older state was believed, as nobody knew better: leader epochs may have two leaders.
        self.believed: set[Partition] = set()
        #: The same of a topic's id: whether a controller lives that knows it; and of topics, while others are stored.
        self.misnaming: bool | None = None
        self.misnamed: dict[str, bool] = {}
        #: Topics whose znode does not decode, or did not.
        self.illegible: set[str] = set()
        #: Whether automatic work was ever suspended.
        self.was_suspended = False
        #: Partitions for which an operator is about to permit an unclean election, as nothing else helps.
        self.given_up: set[Partition] = set()
        #: In-sync members that lost data since they got in sync, or before, by a registration that outlived it.
        self._lossy: dict[Partition, set[int]] = {}
        #: Brokers that lost data since they registered, and of what: their former process can still get in sync.
        self._emptied: dict[int, set[Partition]] = {}
        #: The directories in each broker's registration, now and ever; and who lost data since it registered.
        self._directories: dict[int, frozenset[int]] = {}
        #: How many each broker has, whether or not they work.
        self.disks = 1
        self._ever_registered: dict[int, set[int]] = {}
        self._lost: set[int] = set()
        #: Versions of the states that each notification of changed ISRs is about; and by controller and its epoch those
        #: of which it has deleted the notification.
        self._notified: dict[str, dict[Partition, int]] = {}
        self._heard: dict[tuple[str, int], dict[Partition, int]] = {}
        #: Topics that are to be deleted: what is added to them meanwhile may be taken back.
        self._to_be_deleted: set[str] = set()
        #: Topics whose znodes somebody's hand removed: a write to the former one may land on the next.
        self._removed_by_hand: set[str] = set()
        self.transactions = 0
        #: Whether anybody may have permitted a leader that is not in sync.
        self.unclean_possible = True
        #: By controller and broker: the UpdateMetadata that have arrived, in order; and by broker the partitions of
        #: which an older one has come last, a copy of it.
        self._told: dict[tuple[str, str], list[bytes]] = {}
        self.told_older: dict[str, set[Partition]] = {}
        self._ever: dict[Partition, set[tuple[int, int, int, tuple[int, ...]]]] = {}
        self._leaders: dict[tuple[str | None, str, int, int], int] = {}
        self.forgotten = Forgotten()

    # ZooKeeper

    def agreed(self, transaction: Transaction) -> None:
        self.transactions += 1
        changes = transaction.changes
        if not changes:
            return
        writer = self._writer()
        for change in changes:
            if isinstance(change, NodeCreated | DataSet):
                self._written(change, writer)
            elif isinstance(change, NodeDeleted):
                self._deleted(change.path, writer)
        # What one transaction changes is true together.
        for change in changes:
            if isinstance(change, NodeCreated | DataSet) and (match := STATE_PATH.match(change.path)):
                self._check_isr((match[1], int(match[2])))
        if writer.startswith(_CONTROLLERS):
            self._check_fence(changes, writer)
        self._check_owners(changes, writer)
        self._check_claim(changes, writer)

    def _check_owners(self, changes: tuple[Change, ...], writer: str) -> None:
        """No controller deletes what a living process of its id, not a former self, is registered by or leads by."""
        for change in changes:
            if isinstance(change, NodeCreated) and _ELECTION.match(change.path) and change.owner:
                # A claim may be over what another holds: `_check_claim`.
                if b'"session"' not in (change.data or b""):
                    self._owned[change.path] = writer, change.owner
            elif isinstance(change, NodeDeleted) and change.path in self._owned:
                owner, session_id = self._owned.pop(change.path)
                if writer.startswith(_CONTROLLERS) and owner != writer and self.is_live(session_id):
                    self._report(f"{writer} deleted {change.path} of {owner}, which is alive")

    def _check_claim(self, changes: tuple[Change, ...], writer: str) -> None:
        """A claim is never over another controller of ours that is alive and registered."""
        over = any(isinstance(change, NodeDeleted) and change.path == "/controller" for change in changes)
        for change in changes:
            if isinstance(change, NodeDeleted):
                self._candidates.pop(change.path, None)
            elif isinstance(change, NodeCreated) and change.path.startswith("/controllers/ids/"):
                self._candidates[change.path] = change.owner
            elif isinstance(change, NodeCreated) and change.path == "/controller":
                held_by, session_id = self.holder
                alive = self.is_live(session_id) and session_id in self._candidates.values()
                if over and held_by != writer and alive:
                    self._report(f"{writer} claimed /controller over {held_by}, which is alive")
                self.holder = (writer, int(json.loads(change.data or b"{}").get("session", "0"), 16))

    def _written(self, change: NodeCreated | DataSet, writer: str) -> None:
        path, data = change.path, change.data or b""
        if match := STATE_PATH.match(path):
            version = change.version if isinstance(change, DataSet) else 0
            self._state_written((match[1], int(match[2])), data, version, writer)
        elif (match := _TOPIC.match(path)) and data:
            if data != SCRIBBLE:
                self._topic_written(match[1], data)
            else:
                self.illegible.add(match[1])
        elif match := _DELETION.match(path):
            self._to_be_deleted.add(match[1])
        elif path == "/controllers/maintenance" and writer.startswith(_CONTROLLERS):
            self.was_suspended |= any(json.loads(data).get(kind) for kind in ("paused", "entered", "freeze"))
        elif _ISR_NOTIFICATION.match(path):
            self._isr_notified(path, data)
        elif (match := _BROKER.match(path)) and writer == f"broker-{match[1]}":
            self._emptied.pop(int(match[1]), None)
            if data:
                self._registered(int(match[1]), data)
        elif path == "/controller_epoch" and isinstance(change, DataSet):
            self._epoch_written(int(data), writer)

    def _registered(self, broker_id: int, data: bytes) -> None:
        """Who names another directory than before has lost something."""
        directories = frozenset(map(_short, json.loads(data)["directories"]))
        ever = self._ever_registered.setdefault(broker_id, set())
        # One that fails may be missing now, and be back later.
        new = directories - ever
        if new and len(ever) >= self.disks and broker_id not in self._lost:
            self._report(f"broker-{broker_id} has lost nothing, and registered with another directory")
        ever |= directories
        self._directories[broker_id] = directories
        if len(directories) == self.disks:
            self._lost.discard(broker_id)

    def went_back(self, nodes: Mapping[str, Node]) -> None:
        """ZooKeeper was restored from a backup, and has these. What was ever durable, brokers may know."""
        topics, states = self.topics, self.states
        self.topics, self.states, self.written = {}, {}, {}
        of_states = (self._restored, self.misnamed, self.scribbled, self.put_back, self.illegible)
        of_others = (self._notified, self._heard, self._owned, self._candidates, self._to_be_deleted)
        for known in (*of_states, *of_others):
            known.clear()
        self.holder = "", 0
        self.controller_epoch = int(nodes["/controller_epoch"].data or b"0")
        for path, node in sorted(nodes.items()):
            if (match := _TOPIC.match(path)) and node.data:
                self.topics[match[1]] = topic_of(node.data)
            elif (match := STATE_PATH.match(path)) and node.data:
                key = match[1], int(match[2])
                self.states[key], self.written[key] = state_of(node.data, node.version), [node.data]
        for key in {known[1:3] for known in self._leaders}:
            self._forget(key, self.states[key].leader_epoch if key in self.states else -1)
        for key, state in self.states.items():
            name, number = key
            before, now = topics.get(name), self.topics[name]
            stayed = before is not None and before.partitions.get(number) == now.partitions.get(number)
            goes_on = key in states and before is not None and before.id == now.id and stayed
            if not self.forgotten.went_back(key, state, now.partitions[number] if goes_on else None):
                self.excuse(key)
            self._check_lossy(key)

    def _decided(self, name: str, partition: Partition, state: State, writer: str) -> None:
        present = self.forgotten.told(partition)
        verdict = self.forgotten.decided(partition, state, writer, believed=partition in self.believed)
        if verdict is Verdict.RIGHT:
            return
        self.excuse(partition)
        if verdict is Verdict.UNKNOWABLE:
            self.believed.add(partition)
        elif not self.unclean_possible:
            self._report(f"{name}: {state}, and brokers were told {present}, which ZooKeeper has forgotten")

    def not_taken_over(self) -> list[str]:
        """What brokers were told and ZooKeeper has forgotten, in words."""
        return [
            f"{name}-{number}: ZooKeeper has forgotten {present}, and has {self.states[name, number]}"
            for (name, number), present in self.forgotten.not_taken_over()
        ]

    def _forget(self, partition: Partition, leader_epoch: int) -> None:
        """Who led under later ones, if ZooKeeper has none of them any more."""
        for known in [k for k in self._leaders if k[1:3] == partition and k[3] > leader_epoch]:
            self.forgotten.leaders.setdefault(partition, set()).add(self._leaders.pop(known))

    def _epoch_written(self, epoch: int, writer: str) -> None:
        # One that was forgotten is written again once a broker names it.
        forgotten = self.controller_epoch < epoch <= self._epoch_max
        self._epoch_max = max(self._epoch_max, epoch)
        if epoch != self.controller_epoch + 1 and not forgotten:
            self._report(f"controller epoch went from {self.controller_epoch} to {epoch}")
        self.controller_epoch = epoch
        self.elected[epoch] = writer
        # Who knew better leads no more.
        for partition, state in self._restored.items():
            self._believe(partition, state)
        self._restored.clear()
        self.misnamed = dict.fromkeys(self.misnamed, False)

    def _topic_named(self, name: str, known: str, topic: Topic) -> None:
        """Brokers know the topic by the id it had; the next controller cannot know that."""
        if topic.id == known:
            self.misnamed.pop(name, None)
            return
        if self.misnaming is not None:
            self.misnamed[name] = self.misnaming
        elif self.misnamed.get(name, True) and self._writer().startswith(_CONTROLLERS):
            self._report(f"{self._writer()} wrote {name} with id {topic.id}: brokers know it by {known}")
        topic.id = known

    def _topic_written(self, name: str, data: bytes) -> None:
        topic = topic_of(data)
        partitions = topic.partitions
        before = self.topics.get(name)
        if before is not None and before.id is not None:
            self._topic_named(name, before.id, topic)
        if before is not None:
            changed = {n: ids for n, ids in before.partitions.items() if partitions.get(n) != ids}
            topic.former = before.former | changed
            unjudged = self._to_be_deleted | self._removed_by_hand
            if not before.partitions.keys() <= partitions.keys() and name not in unjudged:
                self._report(f"{name} lost partitions {before.partitions.keys() - partitions.keys()}")
        self.topics[name] = topic

    def _state_written(self, partition: Partition, data: bytes, version: int, writer: str) -> None:
        if writer == "operator" and data == SCRIBBLE:
            # What was before is still the truth.
            self.states[partition] = self.states[partition]._replace(version=version)
            self.scribbled.add(partition)
            return
        (self.put_back.add if partition in self.scribbled else self.put_back.discard)(partition)
        self.scribbled.discard(partition)
        state = state_of(data, version)
        before = self.states.get(partition)
        self.written.setdefault(partition, []).append(data)
        self._ever.setdefault(partition, set()).add(state.pushed)
        put_back = self.restoring is not None and self.restoring[0] == partition
        if before and (put_back or (partition in self._restored and not writer.startswith(_CONTROLLERS))):
            self._state_restored(partition, before, state)
            return
        self._restored.pop(partition, None)
        self.states[partition] = state
        self.forgotten.stored(partition, before, state)
        name = f"{partition[0]}-{partition[1]}"
        if not state.isr:
            self._report(f"{name}: the ISR is empty: {state}")
        if state.leader >= 0 and state.leader not in state.isr:
            self._report(f"{name}: the leader is not in the ISR: {state}")
        if before is not None and version > 0:
            self._check_change(name, partition, before, state, writer)
        self._decided(name, partition, state, writer)
        topic = self.topics.get(partition[0])
        key = (topic.id if topic else None, *partition, state.leader_epoch)
        if self._leaders.setdefault(key, state.leader) != state.leader:
            self._report(f"{name}: leader epoch {state.leader_epoch} has two leaders: {before}, then {state}")
        self._check_controller_epoch(name, before, state, writer)

    def _state_restored(self, partition: Partition, before: State, state: State) -> None:
        """Somebody has put back what was there before, or writes over it. Who knows the present leader epoch writes
        over an older one; one under the same leader epoch cannot be told from what a leader writes itself."""
        known = self.restoring[1] if self.restoring is not None else True
        if known and state.leader_epoch < before.leader_epoch:
            self.states[partition] = before._replace(version=state.version)
            self._restored[partition] = state
        else:
            self._restored.pop(partition, None)
            self._believe(partition, state)

    def _believe(self, partition: Partition, state: State) -> None:
        """What is stored is all that there is, whatever was acknowledged since it was the truth."""
        before, self.states[partition] = self.states[partition], state
        if (state.leader, state.leader_epoch) != before[:2] or not set(state.isr) <= set(before.isr):
            self.excuse(partition)
        self._forget(partition, state.leader_epoch)
        self.put_back.add(partition)
        if state.leader_epoch < before.leader_epoch:
            self.believed.add(partition)
        self._check_lossy(partition)

    def _check_change(
        self, name: str, partition: Partition, before: State, state: State, writer: str
    ) -> None:
        if state.leader_epoch < before.leader_epoch:
            self._report(f"{name}: the leader epoch went back: {before}, then {state}")
        if writer.startswith("broker-") and (state.leader, state.leader_epoch) != before[:2]:
            self._report(f"{name}: {writer} wrote another leader: {before}, then {state}")
        unclean = state.recovering and state.leader >= 0 and state.leader_epoch > before.leader_epoch
        if unclean or (state.leader >= 0 and state.leader not in before.isr):
            told = state.leader in self.forgotten.leaders.get(partition, ())
            if not self.unclean_possible and partition not in self.given_up and not told:
                self._report(
                    f"{name}: a leader that is not in sync, and nobody permitted it: {before}, then {state}"
                )
            self.excuse(partition)
            self._lossy.pop(partition, None)
        self._check_lossy(partition)

    def _check_lossy(self, partition: Partition) -> None:
        """Which members have lost data since they got in sync."""
        lossy, isr = self._lossy.setdefault(partition, set()), set(self.states[partition].isr)
        lossy &= isr
        lossy |= {id_ for id_ in isr if partition in self._emptied.get(id_, ())}

    def lost(self) -> list[Partition]:
        """Partitions without a leader of whose ISR every member has lost data, or got in sync, to the controller's
        knowledge, with a directory that is gone since: only an operator can help."""
        return [
            partition
            for partition, state in sorted(self.states.items())
            if state.leader < 0
            and set(state.isr) <= self._lossy.get(partition, set()) | self._elsewhere(state)
        ]

    def _elsewhere(self, state: State) -> set[int]:
        """Members that are registered with another directory than they got in sync with."""
        return {b for b, d in state.directories if b in self._directories and not self.keeps(b, d)}

    def keeps(self, broker_id: int, directory: int) -> bool:
        """Whether it is registered with the directory, or with all that it stands for."""
        registered = self._directories.get(broker_id, frozenset())
        return directory in registered or directory == _together(registered)

    def excuse(self, partition: Partition) -> None:
        """It may have lost records that were acknowledged."""
        topic = self.topics.get(partition[0])
        self._excuse_partition(partition[0], (topic.id if topic else None) or "", partition[1])

    def data_lost(self, broker_id: int, partitions: Iterable[Partition] | None = None) -> None:
        """A fault took some of what this broker had written, of these partitions or of all."""
        self._lost.add(broker_id)
        self._emptied.setdefault(broker_id, set()).update(self.states if partitions is None else partitions)
        for partition in self.states:
            self._check_lossy(partition)

    def _check_controller_epoch(self, name: str, before: State | None, state: State, writer: str) -> None:
        """A controller writes its own epoch; a broker the last one it heard of, also one that an operator's hand has
        written."""
        broker, epoch = writer.startswith("broker-"), state.controller_epoch
        if writer == "operator" or (broker and before is not None and before.controller_epoch == epoch):
            return
        if epoch > self.controller_epoch or (epoch < self.controller_epoch and not broker):
            self._report(f"{name}: {writer} wrote {state} in controller epoch {self.controller_epoch}")

    def _check_isr(self, partition: Partition) -> None:
        topic, state = self.topics.get(partition[0]), self.states.get(partition)
        if topic is None or state is None:
            return
        assigned = set(topic.partitions.get(partition[1], ()))
        explained = set(topic.former.get(partition[1], ())) if topic.former else set()
        # Removed by hand, and there again with other partitions or replicas: what was created meanwhile is nobody's.
        replaced = partition[0] in self._removed_by_hand
        if not set(state.isr) <= assigned | explained and not replaced:
            self._report(f"{partition}: ISR {state.isr} is not within the replicas {sorted(assigned)}")

    def _isr_notified(self, path: str, data: bytes) -> None:
        try:
            named = [(entry["topic"], entry["partition"]) for entry in json.loads(data)["partitions"]]
        except (ValueError, KeyError, TypeError):
            # By an operator's hand.
            named = []
        self._notified[path] = {key: self.states[key].version for key in named if key in self.states}

    def found_late(self, controller: str, found: Mapping[str, Any]) -> None:
        """What the audit finds that a leader wrote, the controller has not been told of."""
        heard = self._heard.get((controller, found["controller_epoch"]), {})
        if found["partition_epoch"] <= heard.get((found["topic"], found["partition"]), -1):
            self._report(f"{controller} deleted the notification of what it did not read: {dict(found)}")

    def _deleted(self, path: str, writer: str) -> None:
        if (of := self._notified.pop(path, None)) is not None:
            heard = self._heard.setdefault((writer, self.controller_epoch), {})
            heard |= {key: max(version, heard.get(key, -1)) for key, version in of.items()}
        elif match := STATE_PATH.match(path):
            if writer == "operator":
                # A failover cannot tell a state that was lost from one that never was, and begins anew.
                for known in [key for key in self._leaders if key[1:3] == (match[1], int(match[2]))]:
                    del self._leaders[known]
            for versions in (*self._notified.values(), *self._heard.values()):
                versions.pop((match[1], int(match[2])), None)
            self.states.pop((match[1], int(match[2])), None)
            self.written.pop((match[1], int(match[2])), None)
            self._restored.pop((match[1], int(match[2])), None)
            self.forgotten.deleted((match[1], int(match[2])))
            self._lossy.pop((match[1], int(match[2])), None)
            for emptied in self._emptied.values():
                emptied.discard((match[1], int(match[2])))
        elif match := _DELETION.match(path):
            self._to_be_deleted.discard(match[1])
        elif match := _TOPIC.match(path):
            self.topics.pop(match[1], None)
            self.misnamed.pop(match[1], None)
            if writer == "operator":
                self._removed_by_hand.add(match[1])
            # Of two topics of one name without an id, the second one's leader epochs begin anew.
            for known in [key for key in self._leaders if key[:2] == (None, match[1])]:
                del self._leaders[known]

    def _check_fence(self, changes: tuple[Change, ...], writer: str) -> None:
        if any(
            isinstance(change, VersionChecked) and change.path == "/controller_epoch" for change in changes
        ):
            # Who gives up its own /controller decides nothing.
            resigns = all(_ELECTION.match(getattr(change, "path", "")) for change in changes)
            if writer != (leading := self.elected.get(self.controller_epoch)) and not resigns:
                self._report(f"{writer} wrote as controller in epoch {self.controller_epoch} of {leading}")
            return
        for change in changes:
            path = getattr(change, "path", "")
            parents = isinstance(change, NodeCreated) and not change.data and not change.owner
            if path and not _ELECTION.match(path) and not parents:
                self._report(f"{writer} changed {path} without checking its controller epoch")

    # brokers

    def control_request(self, caller: str, server: str, method: str, message: bytes) -> None:
        """What arrives at a broker must have been durable before, and be of an elected controller."""
        kind = _REQUESTS.get(method.rpartition("/")[2])
        if kind is None:
            return
        request = kind.FromString(message)
        if self.elected.get(request.controller_epoch) != caller:
            self._report(
                f"{caller} told {server} to be elected in controller epoch {request.controller_epoch}"
            )
        if isinstance(request, wire.StopReplicaRequest):
            return
        if isinstance(request, wire.UpdateMetadataRequest):
            self._metadata_told(
                caller, server, message, {(p.topic, p.partition) for p in request.partition_states}
            )
        for pushed in request.partition_states:
            if pushed.leader == _DELETING:
                continue
            state = (pushed.partition_epoch, pushed.leader, pushed.leader_epoch, tuple(pushed.isr))
            if state not in self._ever.get((pushed.topic, pushed.partition), ()):
                self._report(
                    f"{caller} told {server} by {method.rpartition('/')[2]} what was never durable:"
                    f" {pushed.topic}-{pushed.partition}: {state}"
                )

    def _metadata_told(self, caller: str, server: str, message: bytes, partitions: set[Partition]) -> None:
        """A broker cannot tell a late copy from a newer request of the same event: its metadata goes back in time."""
        told, older = self._told.setdefault((caller, server), []), self.told_older.setdefault(server, set())
        digest = blake2b(message, digest_size=8).digest()
        if digest in told[:-1]:
            older |= partitions
        else:
            older -= partitions
            told.append(digest)
