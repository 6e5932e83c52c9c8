"""What is shown of refusals and of what the audit found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from controller.core.model import Partition, Topic
from controller.runtime.audit.auditor import BrokerAudit, Known
from controller.runtime.audit.differences import Difference, Remedy, Side
from controller.runtime.audit.problems import ReplicaProblem, all_problems, mend_of, problems_of
from tests.support.runtime.audits import Rig


class Refusing:
    """What senders know of refusals: broker, partition, error."""

    def __init__(self, *refused: tuple[int, Partition, str]) -> None:
        self.refused = refused

    def refusals(self) -> Iterator[tuple[int, Partition, str]]:
        yield from self.refused

    def refusal(self, broker_id: int, partition: Partition) -> str:
        return next((e for b, p, e in self.refused if b == broker_id and p is partition), "")


def test_problems_are_refusals_and_what_the_audit_found() -> None:
    rig = Rig()
    cluster = rig.core.cluster
    rig.handlers(2).metadata._remove(("t", 1))
    rig.look(2)
    t1, u0 = cluster.topics["t"].partitions[1], cluster.topics["u"].partitions[0]
    former = Partition(Topic("t"), 1, t1.replicas)
    senders: Any = Refusing(
        (1, u0, "KAFKA_STORAGE_ERROR"), (3, t1, "ODD_ERROR"), (3, former, "INCONSISTENT_TOPIC_ID")
    )

    def shown(found: Iterable[ReplicaProblem]) -> list[tuple[str, int, int, str, str]]:
        return [(p.topic, p.partition, p.broker_id, p.kind.value, p.mend) for p in found]

    disk = "the disk of broker 1 is repaired or replaced, and the broker restarted"
    odd = "the log of broker 3 says why it refused (ODD_ERROR)"
    of_u = ("u", 0, 1, "refused", disk)
    of_t = ("t", 1, 3, "refused", odd)
    differs = ("t", 1, 2, "metadata differs", "the controller: it is told again")
    assert shown(all_problems(cluster, senders, rig.auditor)) == [of_u, of_t, differs]
    assert shown(all_problems(cluster, senders, rig.auditor, {"u"})) == [of_u]
    assert shown(all_problems(cluster, senders, rig.auditor, {"t"})) == [of_t, differs]
    assert shown(problems_of(cluster, senders, rig.auditor, u0)) == [of_u]
    assert shown(problems_of(cluster, senders, rig.auditor, t1)) == [of_t, differs]
    broker = cluster.brokers.pop(3)
    assert shown(problems_of(cluster, senders, rig.auditor, t1)) == [differs], "nobody refuses who is gone"
    cluster.brokers[3] = broker
    (problem,) = all_problems(cluster, senders, rig.auditor, {"u"})
    assert str(problem) == "broker 1 refuses LeaderAndIsr: KAFKA_STORAGE_ERROR"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            "INCONSISTENT_TOPIC_ID",
            ("former topic of this name", "stop it", "folder away", "start it", "all", "changed its id"),
        ),
        ("KAFKA_STORAGE_ERROR", ("disk of broker 3", "repaired or replaced", "restarted")),
        ("UNKNOWN_TOPIC_OR_PARTITION", ("not count itself among the replicas", "restart it")),
        ("INVALID_REQUEST", ("not understand", "controller's version")),
        ("CLUSTER_AUTHORIZATION_FAILED", ("lets this controller do nothing", "authorizer")),
    ],
)
def test_each_refusal_says_what_would_mend_it(error: str, said: tuple[str, ...]) -> None:
    mend = mend_of(error, 3)
    assert [words for words in ("broker 3", *said) if words not in mend] == []


@pytest.mark.parametrize(
    ("topic", "partition", "kept"),
    [
        ("gone", 3, "create /brokers/topics/gone again, with its topic id and replicas"),
        ("t", 9, "add partition 9 again, on the brokers that have it"),
        ("t", 0, "move the partition to broker 2, too"),
    ],
)
def test_of_what_nothing_mends_records_are_kept_or_moved_away_by_hand(
    topic: str, partition: int, kept: str
) -> None:
    found = Difference(topic, partition, Side.HOSTED, "nothing", "a replica", Remedy.NONE)
    audit = BrokerAudit(7, known={found.key: Known(found)})
    auditor: Any = SimpleNamespace(brokers={2: audit})
    senders: Any = Refusing()
    (problem,) = all_problems(Rig().core.cluster, senders, auditor)
    assert problem.kind.value == "replica differs"
    assert problem.what == f"holds something else: {found}"
    assert problem.mend == (
        f"if its records are needed, {kept}, before anything is written to the topic"
        " (runbook 'ZooKeeper was restored from a backup');"
        " if not, stop broker 2, move the folder away, and start it"
    )
