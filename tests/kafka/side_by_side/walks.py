"""``make kafka-walks``: random operations on two clusters, of which Kafka 3.9.1's own controller leads one and ours the
other. After each, or after several at once, the same must be answered, and the same must stand in ZooKeeper.

The brokers are those of ``tests.kafka.side_by_side.acceptors``: they register, accept every control request and hold
nothing. What a leader would say is said for it.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import msgspec

from controller.core import znode_paths
from controller.embedded_kafka import jars
from controller.errors import EnvironmentFault
from controller.maven import UnreachableFault
from proto.gen.kafka.allocate_producer_ids_request import AllocateProducerIdsRequest
from proto.gen.kafka.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from proto.gen.kafka.alter_partition_request import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from proto.gen.kafka.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from proto.gen.kafka.controlled_shutdown_request import ControlledShutdownRequest
from proto.gen.kafka.create_partitions_request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from proto.gen.kafka.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from proto.gen.kafka.delete_topics_request import DeleteTopicsRequest
from proto.gen.kafka.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from proto.gen.kafka.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from proto.gen.kafka.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from tests.kafka.side_by_side.lanes import BROKERS, Lane, differences, settle, stand_still
from tests.kafka.side_by_side.peers import Kafkas, Ours

#: A step after which the clusters seem to differ is over only after so long.
PATIENT_S = 5.0
#: Of both controllers, in turn by seed.
SETTINGS: Sequence[Mapping[str, int]] = (
    {},
    {},
    {"unclean_leader_election_enable": True},
    {},
    {"delete_topic_enable": False},
)
#: Maintenance begins by itself otherwise, when half of the brokers are gone.
_OF_OURS: Mapping[str, int] = {"maintenance_offline_brokers_percentage": 0}
#: An id that no topic has.
_NO_TOPIC = bytes(15) + b"\7"
_WRONG_CONFIG = (
    ("retention.ms", "x"), ("min.insync.replicas", "0"), ("segment.bytes", None)
)  # fmt: skip
Step = Callable[[Lane], Any]


class Walk:
    """Draws steps. What it knows of the clusters it has from the znodes of the first one."""

    def __init__(self, seed: int, first: Lane) -> None:
        self._random, self._first = random.Random(seed), first
        self._up = set(BROKERS)
        #: Whose disk has failed.
        self._failed: set[int] = set()
        self._made = 0
        self._kinds: Mapping[Callable[[], tuple[str, Step]], int] = {
            self._create: 5,
            self._expand: 2,
            self._expand_by_request: 2,
            self._create_by_request: 4,
            self._delete: 3,
            self._delete_by_request: 2,
            self._drop: 6,
            self._restore: 6,
            self._bounce: 3,
            self._elect_by_znode: 2,
            self._elect: 4,
            self._reassign_by_znode: 4,
            self._reassign: 6,
            self._cancel: 3,
            self._list: 1,
            self._propose: 12,
            self._isr_written: 3,
            self._shut_down: 4,
            self._fail_over: 4,
            self._fail_disk: 3,
            self._configure: 3,
            self._permit_unclean_by_default: 1,
            self._credentials: 1,
            self._producer_ids: 1,
            self._features: 1,
            self._garbage: 3,
        }
        self._without_answer = {
            self._create,
            self._expand,
            self._delete,
            self._drop,
            self._restore,
            self._bounce,
            self._elect_by_znode,
            self._reassign_by_znode,
            self._isr_written,
            self._fail_disk,
            self._configure,
            self._garbage,
        }
        self._losses = {self._drop, self._bounce, self._fail_disk}

    def group(self, most: int) -> Iterator[tuple[str, Step]]:
        """At most so many steps, of which each is to be done before the next one is drawn. Of several none has an
        answer, and only one takes replicas away: ours handles brokers that die at once together (reference, section 14,
        point 4)."""
        kinds = dict(self._kinds)
        if most > 1:
            kinds = {draw: weight for draw, weight in kinds.items() if draw in self._without_answer}
        for _ in range(self._random.randint(1, most)):
            draw = self._create
            if self._made:
                (draw,) = self._random.choices([*kinds], [*kinds.values()])
            if most > 1 and draw in self._losses:
                kinds = {draw: weight for draw, weight in kinds.items() if draw not in self._losses}
            yield draw()

    # what there is

    def _topics(self) -> dict[str, dict[str, Any]]:
        found = {}
        for name in sorted(self._first.zk.get_children(znode_paths.TOPICS)):
            found[name] = json.loads(self._first.zk.get(znode_paths.topic_path(name))[0])
        return found

    def _partitions(self) -> list[tuple[str, int]]:
        return [
            (t, int(n)) for t, told in self._topics().items() for n in sorted(told["partitions"], key=int)
        ]

    def _drawn(self) -> tuple[str, int, list[int]] | None:
        """A partition with its replicas; None: there is none."""
        if not (known := self._partitions()):
            return None
        topic, number = self._random.choice(known)
        return topic, number, self._topics()[topic]["partitions"][str(number)]

    def _some(self) -> list[tuple[str, int]]:
        known = [*self._partitions(), ("nosuch", 0)]
        return self._random.sample(known, self._random.randint(1, min(3, len(known))))

    def _replicas(self, most: int = 3) -> list[int]:
        return self._random.sample(BROKERS, self._random.randint(1, most))

    # what operators do

    def _new(self) -> str:
        """A name that no topic has; at times one that a topic had."""
        taken = {*self._topics(), *self._first.zk.get_children(znode_paths.DELETE_TOPICS)}
        free = [f"t{n}" for n in range(self._made) if f"t{n}" not in taken]
        if free and self._random.random() < 0.3:
            return self._random.choice(free)
        self._made += 1
        return f"t{self._made - 1}"

    def _create(self) -> tuple[str, Step]:
        name = self._new()
        factor = self._random.randint(1, 3)
        partitions = {str(n): self._random.sample(BROKERS, factor) for n in range(self._random.randint(1, 3))}
        told: dict[str, Any] = {"version": self._random.choice([1, 2, 3]), "partitions": partitions}
        if told["version"] >= 2:
            told |= {"adding_replicas": {}, "removing_replicas": {}}
        data = json.dumps(told).encode()
        return f"create {name} {data.decode()}", lambda lane: lane.put(znode_paths.topic_path(name), data)

    def _create_by_request(self) -> tuple[str, Step]:
        """Placed by the request, as placement begins at random; with at most one thing that is wrong, as ours looks at
        them in another order."""
        name, numbers, given = self._new(), self._random.choice([[0], [0, 1], [1, 0]]), (-1, -1)
        config: list[tuple[str, str | None]] = []
        if self._random.random() < 0.3:
            config.append(("cleanup.policy", "compact"))
        factor = self._random.randint(1, 3)
        wrong = self._random.choice(["", "", "", "name", "numbers", "place", "config", "given"])
        if wrong == "name":
            name = self._random.choice([*self._topics(), "", "..", "a b", "n" * 250, "t_0", "t.0"])
        elif wrong == "numbers":
            numbers = self._random.choice([[0, 2], [1], [-1, 0]])
        elif wrong == "config":
            config = [self._random.choice(_WRONG_CONFIG)]
        elif wrong == "given":
            given, numbers = self._random.choice(
                [((1, 1), [0]), ((0, 1), []), ((1, 0), []), ((1, 9), []), ((-2, 1), []), ((2, -2), [])]
            )
        placed = [(number, self._random.sample(BROKERS, factor)) for number in numbers]
        if wrong == "place":
            number, replicas = placed[0]
            # Of a single partition without replicas Kafka's makes a topic that nobody can lead.
            placed[0] = (number, self._wrong(replicas, 9) or replicas[:1] * (0 if len(placed) > 1 else 2))
        topic = CreatableTopic(
            name,
            *given,
            [CreatableReplicaAssignment(*entry) for entry in placed],
            [CreatableTopicConfig(*entry) for entry in config],
        )
        request = CreateTopicsRequest([topic], 3000, self._random.random() < 0.2)
        what = f"{name!r} {given} {placed} {config}{', only tried' * request.validate_only}"
        return f"CreateTopics {what}", lambda lane: lane.ask(request, 4)

    def _wrong(self, replicas: Sequence[int], *strangers: int) -> list[int]:
        return self._random.choice(
            [[], [*replicas, replicas[0]], *([*replicas, stranger] for stranger in strangers)]
        )

    def _expand(self) -> tuple[str, Step]:
        never_led = {topic for topic, _ in self._never_led()}.intersection(self._first.deleted())
        # Of a topic that is to be deleted Kafka's takes out all partitions that nobody has led.
        topics = {name: told for name, told in self._topics().items() if name not in never_led}
        if not topics:
            return self._create()
        name = self._random.choice([*topics])
        added = self._random.sample(BROKERS, len(topics[name]["partitions"]["0"]))

        def step(lane: Lane) -> str:
            path = znode_paths.topic_path(name)
            told = json.loads(lane.zk.get(path)[0])
            told["partitions"][str(len(told["partitions"]))] = added
            return lane.put(path, json.dumps(told).encode())

        return f"write another partition {added} into {name}", step

    def _expand_by_request(self) -> tuple[str, Step]:
        topics = self._topics()
        if not topics:
            return self._create()
        name = self._random.choice([*topics, "nosuch"])
        have = len(topics[name]["partitions"]) if name in topics else 1
        count = have + self._random.randint(-1, 2)
        placed = [
            self._random.sample((*BROKERS, 9), self._random.randint(1, 3))
            for _ in range(max(0, count - have))
        ]
        assignments = [CreatePartitionsAssignment(broker_ids=ids) for ids in placed]
        request = CreatePartitionsRequest(
            [CreatePartitionsTopic(name, count, assignments or None)], 5000, self._random.random() < 0.2
        )
        return f"CreatePartitions {name} to {count}: {placed}", lambda lane: lane.ask(request, 3)

    def _delete(self) -> tuple[str, Step]:
        # One that moves is deleted once it has moved, as Kafka's controller means to: it forgets that at once.
        moving = {topic for topic, _ in self._moving()}
        name = self._random.choice([*(topic for topic in self._topics() if topic not in moving), "nosuch"])
        path = f"{znode_paths.DELETE_TOPICS}/{name}"
        return f"delete {name}", lambda lane: lane.put(path, b"")

    def _delete_by_request(self) -> tuple[str, Step]:
        """Not one that is being deleted: ours answers as if it had not been asked before."""
        left = {topic for topic, _ in self._moving()}
        left.update(self._first.zk.get_children(znode_paths.DELETE_TOPICS))
        known = [*(topic for topic in self._topics() if topic not in left), "nosuch", ""]
        names = self._random.sample(known, self._random.randint(1, min(2, len(known))))
        request = DeleteTopicsRequest(topic_names=names, timeout_ms=3000)
        return f"DeleteTopics {names}", lambda lane: lane.ask(request, 5)

    def _configure(self) -> tuple[str, Step]:
        topics = self._topics()
        if not topics:
            return self._create()
        name = self._random.choice([*topics, "nosuch"])
        # Nothing but booleans: Kafka's elects nobody anywhere while it looks at a topic of such a configuration.
        content = self._random.choice(
            [*({"unclean.leader.election.enable": value} for value in ("true", "true", "false", "false")),
             {"min.insync.replicas": "2"}, {}]
        )  # fmt: skip
        return f"configuration of topic {name}: {content}", self._written_config(f"topics/{name}", content)

    def _permit_unclean_by_default(self) -> tuple[str, Step]:
        content = self._random.choice(
            [{"unclean.leader.election.enable": value} for value in ("true", "false")]
        )
        entity = self._random.choice(["brokers/<default>", "brokers/<default>", "brokers/1"])
        return f"configuration of {entity}: {content}", self._written_config(entity, content)

    def _written_config(self, entity: str, content: Mapping[str, str]) -> Step:
        """As tools write it: the configuration, then that it has changed."""
        data = json.dumps({"version": 1, "config": content}).encode()
        told = json.dumps({"version": 2, "entity_path": entity}).encode()

        def step(lane: Lane) -> None:
            lane.put(f"/config/{entity}", data)
            lane.zk.create("/config/changes/config_change_", told, sequence=True)

        return step

    def _credentials(self) -> tuple[str, Step]:
        name = self._random.choice(["ann", "bob", ""])
        mechanism = self._random.choice([1, 2, 2, 3])
        request = AlterUserScramCredentialsRequest(
            [ScramCredentialDeletion(name, mechanism)] * self._random.choice([0, 1]),
            [
                ScramCredentialUpsertion(
                    name, mechanism, self._random.choice([4096, 8192, 1]), b"salt", b"secret"
                )
            ]
            * self._random.choice([0, 1, 1, 2]),
        )
        return f"AlterUserScramCredentials {msgspec.to_builtins(request)}", lambda lane: lane.ask(request, 0)

    def _never_led(self) -> set[tuple[str, int]]:
        return {key for key in self._partitions() if self._first.state(*key) is None}

    def _elect_by_znode(self) -> tuple[str, Step]:
        """Kafka's controller leaves the znode when nobody has led one of them."""
        new = self._never_led()
        chosen = [key for key in self._some() if key not in new]
        entries = [{"topic": topic, "partition": number} for topic, number in chosen]
        data = json.dumps({"version": 1, "partitions": entries}).encode()
        return f"elect by znode {chosen}", lambda lane: lane.put(znode_paths.PREFERRED_ELECTION, data)

    def _elect(self) -> tuple[str, Step]:
        """Kafka's controller does not answer for a partition that nobody has led yet."""
        new = self._never_led()
        chosen = [key for key in self._some() if key not in new]
        unclean = self._random.random() < 0.3
        named: dict[str, list[int]] = {}
        for topic, number in chosen:
            named.setdefault(topic, []).append(number)
        every = not new and self._random.random() < 0.2
        request = ElectLeadersRequest(
            int(unclean), None if every else [TopicPartitions(*entry) for entry in named.items()], 2000
        )
        return (
            f"ElectLeaders {'unclean' if unclean else 'preferred'} {'all' if every else chosen}",
            lambda lane: lane.ask(request, 2),
        )

    def _targets(self, *, wrong: bool = False) -> list[tuple[str, int, list[int]]]:
        """With a replica that is in sync: ours refuses to move from all of them, where Kafka's loses their data.
        Of a partition that nobody has led yet, Kafka's controller fails to begin the move, after it was written. Where
        all targets are in sync and none can lead, ours keeps the old replicas until one can; Kafka's ends the move."""
        found = [("nosuch", 0, self._replicas())]
        for topic, number in self._some():
            if (known := self._first.state(topic, number)) is not None:
                kept = self._random.choice(known[0]["isr"])
                moved = [kept, *(b for b in self._replicas() if b != kept)]
                moved = self._random.sample(moved, len(moved))
                if known[0]["leader"] >= 0 or not set(moved) <= set(known[0]["isr"]):
                    found.append((topic, number, moved))
        if found[1:] and wrong:
            topic, number, moved = found[-1]
            found[-1] = (topic, number, self._wrong(moved, 9, -1))
        return found[self._random.random() < 0.8 and len(found) > 1 :]

    def _reassign_by_znode(self) -> tuple[str, Step]:
        if self._first.zk.exists(znode_paths.REASSIGN_PARTITIONS):
            # Kafka's controller does not look at what is written over one that is being carried out.
            return self._isr_written()
        chosen = self._targets()
        entries = [{"topic": t, "partition": n, "replicas": replicas} for t, n, replicas in chosen]
        data = json.dumps({"version": 1, "partitions": entries}).encode()
        return f"reassign by znode {chosen}", lambda lane: lane.put(znode_paths.REASSIGN_PARTITIONS, data)

    def _reassign(self) -> tuple[str, Step]:
        targets = self._targets(wrong=self._random.random() < 0.2)
        return self._altered([(t, n, replicas) for t, n, replicas in targets])

    def _moving(self) -> list[tuple[str, int]]:
        return [
            (t, int(n))
            for t, told in self._topics().items()
            for n in {**told.get("adding_replicas", {}), **told.get("removing_replicas", {})}
        ]

    def _cancel(self) -> tuple[str, Step]:
        """Of a move from one replica: of several, ours gives the order back that they had, which Kafka's forgets."""
        topics = self._topics()
        alone = [
            (t, n)
            for t, n in self._moving()
            if len(topics[t]["partitions"][str(n)]) - len(topics[t]["adding_replicas"].get(str(n), ())) == 1
        ]
        moving = set(self._moving())
        unknown = {"nosuch", *self._first.deleted()}
        known = [key for key in self._some() if key[0] not in unknown and key not in moving]
        chosen = [self._random.choice(alone)] if alone else known
        return self._altered([(t, n, None) for t, n in chosen])

    def _altered(self, chosen: Sequence[tuple[str, int, list[int] | None]]) -> tuple[str, Step]:
        topics: dict[str, list[ReassignablePartition]] = {}
        for topic, number, replicas in chosen:
            topics.setdefault(topic, []).append(ReassignablePartition(number, replicas))
        request = AlterPartitionReassignmentsRequest(
            5000, [ReassignableTopic(name, entries) for name, entries in topics.items()]
        )
        return f"AlterPartitionReassignments {chosen}", lambda lane: lane.ask(request, 0)

    def _list(self) -> tuple[str, Step]:
        named = [ListPartitionReassignmentsTopics(topic, [number]) for topic, number in self._some()]
        request = ListPartitionReassignmentsRequest(5000, self._random.choice([None, named]))
        return f"ListPartitionReassignments {request.topics}", lambda lane: lane.ask(request, 0)

    # what brokers do

    def _drop(self) -> tuple[str, Step]:
        if not self._up:
            return self._restore()
        broker = self._random.choice(sorted(self._up))
        self._ended(broker)
        return f"broker {broker} ends", lambda lane: lane.acceptors.command(f"drop {broker}") and None

    def _ended(self, broker: int) -> None:
        self._up.discard(broker)
        self._failed.discard(broker)

    def _fail_disk(self) -> tuple[str, Step]:
        """Or only the word of it. Not of one that gets a replica: Kafka's controller does not ask about that one."""
        moves = [told.get("adding_replicas", {}) for told in self._topics().values()]
        gets = {broker for adding in moves for ids in adding.values() for broker in ids}
        if not (known := sorted(self._up - gets)):
            return self._restore()
        broker, really = self._random.choice(known), self._random.random() < 0.8
        if really:
            self._failed.add(broker)
        told = json.dumps({"version": 1, "broker": broker, "event": 1}).encode()

        def step(lane: Lane) -> None:
            lane.acceptors.command(f"fail {broker}" if really else "")
            lane.zk.create(f"{znode_paths.LOG_DIR_NOTIFICATIONS}/log_dir_event_", told, sequence=True)

        return f"a disk of broker {broker} fails{'' if really else ', it says'}", step

    def _restore(self) -> tuple[str, Step]:
        down = sorted(set(BROKERS) - self._up)
        if not down:
            return self._drop()
        broker = self._random.choice(down)
        self._up.add(broker)
        return f"broker {broker} starts", lambda lane: lane.acceptors.command(f"restore {broker}") and None

    def _bounce(self) -> tuple[str, Step]:
        if not self._up:
            return self._restore()
        broker = self._random.choice(sorted(self._up))
        self._failed.discard(broker)
        return (
            f"broker {broker} is started anew",
            lambda lane: lane.acceptors.command(f"bounce {broker}") and None,
        )

    def _propose(self) -> tuple[str, Step]:
        """What a leader asks for: that all replicas are in sync, or some."""
        if (drawn := self._drawn()) is None:
            return self._create()
        topic, number, told = drawn
        whole = self._random.random() < 0.6
        isr = list(told) if whole else self._random.sample(told, self._random.randint(1, len(told)))
        stale = self._random.choice([0, 0, 0, 0, 0, -1, 1])
        stale_epoch = self._random.choice([0, 0, 0, 0, 0, -1, 1])
        recovering = self._random.random() < 0.1
        former = self._random.random() < 0.05
        failed = set(self._failed)
        # Version 2 names topics by their ids, and 3 tells the broker epochs of members.
        api_version = self._random.choice([1, 2, 3])
        unknown = api_version >= 2 and self._random.random() < 0.05

        def step(lane: Lane) -> Any:
            found = lane.state(topic, number)
            if found is None:
                return "no state"
            state, version = found
            leader = state["leader"]
            if leader < 0:
                return "no leader"
            wanted = [leader, *(b for b in isr if b not in {leader, *failed} and lane.epoch(b) >= 0)]
            asked = PartitionData(
                number,
                state["leader_epoch"] + stale_epoch,
                wanted if api_version <= 2 else [],
                [] if api_version <= 2 else [BrokerState(b, lane.epoch(b)) for b in wanted],
                int(recovering),
                version + stale,
            )
            beside = PartitionData(99)
            named = (
                TopicData(topic, partitions=[asked, beside])
                if api_version < 2
                else TopicData(
                    topic_id=_NO_TOPIC if unknown else lane.topic_id(topic), partitions=[asked, beside]
                )
            )
            request = AlterPartitionRequest(leader, lane.epoch(leader) - former, [named])
            return lane.ask(request, api_version)

        odd = (
            f"version {stale:+d}, leader epoch {stale_epoch:+d}{', recovering' * recovering}{', of before' * former}"
            f"{', of no topic' * unknown}"
        )
        return f"the leader of {topic}-{number} proposes ISR {isr} by version {api_version}, {odd}", step

    def _isr_written(self) -> tuple[str, Step]:
        """As leaders of old versions do it: by themselves, and then they tell."""
        if (drawn := self._drawn()) is None:
            return self._create()
        topic, number, told = drawn
        kept, failed = self._random.randint(1, len(told)), set(self._failed)
        data = json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": number}]}).encode()

        def step(lane: Lane) -> str | None:
            found = lane.state(topic, number)
            if found is None or found[0]["leader"] < 0:
                return "nobody leads"
            state = found[0]
            others = (b for b in told if b not in {state["leader"], *failed} and lane.epoch(b) >= 0)
            isr = [state["leader"], *others][:kept]
            lane.put(znode_paths.state_path(topic, number), json.dumps(state | {"isr": isr}).encode())
            lane.zk.create(f"{znode_paths.ISR_NOTIFICATIONS}/isr_change_", data, sequence=True, makepath=True)
            return None

        return f"the leader of {topic}-{number} writes an ISR of {kept}", step

    def _shut_down(self) -> tuple[str, Step]:
        """Of a broker that then ends, or in the name of an earlier life of it."""
        if not self._up:
            return self._restore()
        broker, old = self._random.choice(sorted(self._up)), self._random.random() < 0.2
        if not old:
            self._ended(broker)

        def step(lane: Lane) -> Any:
            answer = lane.ask(ControlledShutdownRequest(broker, lane.epoch(broker) - old), 2)
            if not old:
                settle([lane])
                lane.acceptors.command(f"drop {broker}")
            return answer

        return f"ControlledShutdown of broker {broker}{', an older one' if old else ', which ends'}", step

    def _producer_ids(self) -> tuple[str, Step]:
        broker, before = self._random.choice([*BROKERS, 9]), self._random.choice([0, 0, 1])
        return f"AllocateProducerIds of broker {broker}{', an older one' * before}", lambda lane: lane.ask(
            AllocateProducerIdsRequest(broker, lane.epoch(broker) - before), 0
        )

    def _features(self) -> tuple[str, Step]:
        """No broker supports any. Each is named once: ours answers for each time, Kafka's controller once."""
        level, kind = self._random.choice([(1, 1), (0, 1), (0, 2), (-1, 3), (1, 9)])
        names = self._random.sample(["f", ""], self._random.choice([0, 1, 1, 2]))
        request = UpdateFeaturesRequest(
            5000, [FeatureUpdateKey(name, level, upgrade_type=kind) for name in names]
        )
        return f"UpdateFeatures {msgspec.to_builtins(request)}", lambda lane: lane.ask(request, 1)

    def _fail_over(self) -> tuple[str, Step]:
        return "the controller is elected anew", Lane.fail_over

    def _garbage(self) -> tuple[str, Step]:
        path, data = self._random.choice(
            [
                (f"{znode_paths.ISR_NOTIFICATIONS}/isr_change_", b"[]"),
                (f"{znode_paths.ISR_NOTIFICATIONS}/isr_change_", b'{"version":1,"partitions":[]}'),
                (
                    f"{znode_paths.LOG_DIR_NOTIFICATIONS}/log_dir_event_",
                    b'{"version":1,"broker":9,"event":1}',
                ),
                (f"{znode_paths.LOG_DIR_NOTIFICATIONS}/log_dir_event_", b"nonsense"),
                ("/config/changes/config_change_", b"nonsense"),
                ("/config/changes/config_change_", b'{"version":2,"entity_path":"topics/nosuch"}'),
                (znode_paths.PREFERRED_ELECTION, b"nonsense"),
                (znode_paths.PREFERRED_ELECTION, b'{"version":1,"partitions":[]}'),
            ]
        )

        def step(lane: Lane) -> None:
            if path.endswith("_"):
                lane.zk.create(path, data, sequence=True, makepath=True)
            else:
                lane.put(path, data)

        return f"{path} {data.decode()}", step


def walk(seed: int, count: int, directory: Path, say: Callable[[str], None], together: int = 1) -> list[str]:
    """Walk until the clusters differ; in what. ``together``: so many things at most happen before the controllers
    look."""
    with ExitStack() as stack:
        lanes = [
            Lane(name, stack, directory / name, make, {**SETTINGS[seed % len(SETTINGS)], **own})
            for name, make, own in (("kafka", Kafkas, {}), ("ours", Ours, _OF_OURS))
        ]
        settle(lanes)
        drawn = Walk(seed, lanes[0])
        for number in range(1, count + 1):
            whats, answers = [], []
            with stand_still(lanes) if together > 1 else nullcontext():
                for what, step in drawn.group(together):
                    whats.append(what)
                    say(f"seed {seed}, {number}: {what}")
                    answers = [step(lane) for lane in lanes]
            settle(lanes)
            if found := differences(lanes):
                # Whoever stood still for a second may have gone on.
                settle(lanes, PATIENT_S)
                found = differences(lanes)
            if answers[0] != answers[1]:
                found.insert(0, f"Kafka's controller answers {answers[0]}, ours {answers[1]}")
            if found:
                return [f"seed {seed}, step {number}, {'; '.join(whats)}", *found]
    return []


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kafka.side_by_side.walks", description=__doc__)
    parser.add_argument("--seeds", default="1:4", help="FIRST:BEYOND")
    parser.add_argument("--steps", type=int, default=40, help="of each walk")
    parser.add_argument(
        "--together",
        type=int,
        default=1,
        help="so many things at most happen at once in a step; 1: also requests",
    )
    options = parser.parse_args(arguments)
    try:
        jars.KAFKA.fetch(jars.NEWEST)
    except UnreachableFault as fault:
        print(f"SKIPPED: nothing was compared, Kafka's jars are not there. {fault}")
        return 0
    first, beyond = map(int, options.seeds.split(":"))
    failed = 0
    for seed in range(first, beyond):
        try:
            with tempfile.TemporaryDirectory(prefix="pc-walk-") as directory:
                found = walk(
                    seed,
                    options.steps,
                    Path(directory),
                    lambda line: print(line, flush=True),
                    options.together,
                )
        except (EnvironmentFault, TimeoutError) as fault:
            # Of one walk: the others go on.
            found = [f"seed {seed}: not walked to its end: {fault}"]
        failed += bool(found)
        print("\n   ".join(found or [f"seed {seed}: no difference"]), flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
