"""Who is the controller, and who would be next, as a tool says it."""

from __future__ import annotations

from controller.core.explain.controllers import explain_controller


def test_a_controller_is_explained_by_its_epoch_and_candidates() -> None:
    assert explain_controller(1, 4, [1, 2, 3]).words() == [
        "controller 1 is active since controller epoch 4",
        "candidates: 1, 2, 3",
        "would change it: when it resigns or its session ends, 2 or 3 takes over, as controller epoch 5",
    ]
    alone = explain_controller(1, 4, [1])
    assert alone.changes[0].endswith("nobody takes over: there is no other candidate")
    assert "not registered as a candidate" in explain_controller(5, 4, [1]).summary
    nobody = explain_controller(-1, 4, [2])
    assert nobody.summary == "no controller is active; the last was of controller epoch 4"
    assert nobody.changes[0].startswith("one of the candidates takes over; until then")
    never = explain_controller(-1, -1, [])
    assert never.summary == "no controller is active, and there never was one"
    assert never.changes[0].startswith("start one: partition-controller run")
    assert never.words()[1] == "candidates: none"
    assert explain_controller(0, 4, [0]).summary == "controller 0 is active since controller epoch 4"
    assert (
        explain_controller(-1, 0, []).summary == "no controller is active; the last was of controller epoch 0"
    )


def test_a_spoiled_znode_is_why_nobody_leads() -> None:
    epoch = explain_controller(-1, -1, [1, 2], ["/brokers/topics/t", "/controller_epoch"])
    assert epoch.words() == [
        "no controller is active, and nobody can be elected: /controller_epoch cannot be read",
        "candidates: 1, 2",
        "would change it: /controller_epoch: the largest controller epoch of the state-change logs is written to it",
    ]
    both = explain_controller(-1, -1, [], ["/controller_epoch", "/controller"])
    assert len(both.changes) == 2
    assert "deletes it" in both.changes[0]
    assert explain_controller(-1, 4, [], ["/brokers/topics/t"]).summary.endswith("controller epoch 4")
    assert explain_controller(1, -1, [1], ["/controller_epoch"]).summary.startswith("controller 1 is active")


def test_a_cluster_that_was_handed_back_is_kafkas_until_somebody_claims_it() -> None:
    for controller in (5, -1):
        (change,) = explain_controller(controller, 4, [9001, 9002], handed_back=True).changes
        assert (
            "one of Kafka's brokers takes over, and none of the candidates before pctl controllers claim"
            in change
        )
