"""pctl elect leader and unclean on a running cluster; preferred is in test_pctl.py."""

from __future__ import annotations

import pytest

from tests.support.cli.operator import Operator
from tests.support.cli.terminal import at_a_terminal

pytestmark = pytest.mark.slow


def test_a_chosen_leader_leads_and_the_preferred_one_again(operator: Operator) -> None:
    operator.ok("topics", "create", "choose", "--replica-assignment=1:2,2:3")
    asked = ("elect", "leader", "2", "--topic=choose")
    (row,) = operator.json(*asked, "--dry-run")["partitions"]
    assert row == {"partition": "choose-0", "leader": 1, "new_leader": 2, "possible": True}
    assert operator.state("choose", 0)["leader"] == 1
    done = operator.ok(*asked)
    assert "1 of 1 partitions are led by broker 2" in done.stderr
    assert operator.state("choose", 0)["leader"] == 2
    assert "nothing to do" in operator.ok(*asked).stderr
    operator.ok("elect", "preferred", "--topic=choose")
    assert operator.state("choose", 0)["leader"] == 1


def test_a_leader_that_cannot_be_is_refused(operator: Operator) -> None:
    operator.ok("topics", "create", "outsider", "--replica-assignment=1:2")
    for tried in ((), ("--dry-run",)):
        refused = operator.run("elect", "leader", "3", "--partition=outsider-0", *tried)
        assert refused.exit_code == 3
        assert "outsider-0: INVALID_REQUEST: leader = 3: must be one of its replicas [1, 2]" in refused.stderr
        assert "broker 3 could lead none of them" in refused.stderr
    assert "nothing to do" in operator.ok("elect", "leader", "3", "--topic=outsider").stderr
    assert operator.run("elect", "leader", "x", "--topic=outsider").exit_code == 2
    assert operator.run("elect", "leader", "1").exit_code == 2
    assert operator.state("outsider", 0)["leader"] == 1


def test_an_unclean_election_is_asked_for_twice(operator: Operator) -> None:
    """Nobody of the ISR is alive: only a person can say that its records may be lost."""
    with operator.controller_away():
        operator.topic_by_hand("lost", [98, 1], 98, [98])
    operator.wait(lambda: operator.state("lost", 0)["leader"] == -1)
    asked = ("elect", "unclean", "--topic=lost")
    (row,) = operator.json(*asked, "--dry-run")["partitions"]
    assert (row["isr"], row["alive"], row["possible"]) == ([98], [1], True)
    refused = operator.run(*asked)
    assert (refused.exit_code, "use --yes" in refused.stderr) == (2, True)
    code, said = at_a_terminal(operator.cluster.connect, "n", *asked)
    assert (code, "lose records that no live replica has?" in said) == (3, True), said
    assert operator.state("lost", 0)["leader"] == -1
    done = operator.ok(*asked, "--yes")
    assert "1 of 1 partitions are led" in done.stderr
    assert (operator.state("lost", 0)["leader"], operator.state("lost", 0)["isr"]) == (1, [1])
    assert "nothing to do" in operator.ok(*asked).stderr


def test_without_any_replica_alive_it_is_refused(operator: Operator) -> None:
    with operator.controller_away():
        operator.topic_by_hand("allgone", [98, 99], 98, [98])
    refused = operator.run("elect", "unclean", "--topic=allgone", "--yes")
    assert (refused.exit_code, "no replica of any of them could lead" in refused.stderr) == (3, True)


def test_all_partitions_are_not_those_of_a_topic_that_is_being_deleted(operator: Operator) -> None:
    operator.ok("topics", "create", "stays", "--replica-assignment=1:2")
    operator.ok("elect", "leader", "2", "--topic=stays")
    with operator.controller_away():
        operator.topic_by_hand("goes", [97, 1], 97, [97])
        operator.zk.create("/admin/delete_topics/goes")
    everywhere = operator.run("elect", "preferred", "--all")
    assert ("stays-0" in everywhere.output, "goes-0" in everywhere.output) == (True, False)
    assert operator.state("stays", 0)["leader"] == 1
    named = operator.run("elect", "preferred", "--topic=goes")
    assert (named.exit_code, "INVALID_TOPIC_EXCEPTION" in named.stderr) == (3, True)
