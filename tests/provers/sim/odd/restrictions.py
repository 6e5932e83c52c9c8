"""Pauses, freezes, drains and the like that cannot be as asked, and some that are, and are lifted."""

from __future__ import annotations

import json
from typing import Any

from google.protobuf.message import Message

from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2 as codes
from proto.gen import maintenance_pb2 as maintenance
from tests.provers.sim.checks.refusals import NOBODY
from tests.provers.sim.odd.asking import DONE, INVALID, Asker, Case, Codes, OverError
from tests.provers.sim.odd.topics import creation, deletion, lists, topic
from tests.provers.sim.zookeeper.messages import Get

ABSENT: Codes = (codes.BROKER_NOT_AVAILABLE,)
FORBIDDEN: Codes = (codes.POLICY_VIOLATION,)
_UNWRITTEN: Codes = (codes.UNKNOWN_SERVER_ERROR,)
#: Ends in 2100: no clock of a run gets there.
_UNTIL_MS = 4_102_444_800_000
_AUTHOR = "odd operator"
#: Neither of them, one of them, and each of them too long.
_ATTRIBUTIONS: tuple[dict[str, str], ...] = (
    {},
    {"author": _AUTHOR},
    {"reason": "simulated"},
    {"author": " ", "reason": "simulated"},
    {"author": "a" * 201, "reason": "simulated"},
    {"author": _AUTHOR, "reason": "r" * 1001},
)
_SET: tuple[tuple[str, Any, dict[str, Any]], ...] = (
    ("SetPause", maintenance.SetPauseRequest, {"paused": True}),
    ("SetMaintenance", maintenance.SetMaintenanceRequest, {"entered": True}),
    ("SetFreeze", maintenance.SetFreezeRequest, {"frozen": True, "until_ms": _UNTIL_MS}),
    ("SetDrain", maintenance.SetDrainRequest, {"broker_id": 1, "drained": True}),
    ("ForgetBroker", maintenance.ForgetBrokerRequest, {"broker_id": 1}),
)
_KINDS = {"pause": "SetPause", "maintenance": "SetMaintenance", "freeze": "SetFreeze"}
_LIFTED: dict[str, Any] = {
    "SetPause": maintenance.SetPauseRequest,
    "SetMaintenance": maintenance.SetMaintenanceRequest,
    "SetFreeze": maintenance.SetFreezeRequest,
}


def _case(method: str, request: Message, allowed: Codes) -> Case:
    return Case(method, request, whole=allowed)


async def refused_restrictions(asker: Asker) -> None:
    """Nobody knows whom to ask, or why; there is no such broker; or it is another one by now."""
    for method, request, fields in asker.rng.sample(_SET, 3):
        attribution = asker.rng.choice(_ATTRIBUTIONS)
        # What may lose data is refused by whoever authorizes it, before it is looked at.
        allowed = (*INVALID, codes.POLICY_VIOLATION) if method == "ForgetBroker" else INVALID
        await asker.ask(_case(method, request(**fields, **attribution), allowed))
    for method, request in _LIFTED.items():
        await asker.ask(_case(method, request(author=""), INVALID))
    said: dict[str, Any] = {"author": _AUTHOR, "reason": "simulated"}
    await asker.ask(_case("SetFreeze", maintenance.SetFreezeRequest(frozen=True, **said), INVALID))
    drained = maintenance.SetDrainRequest(broker_id=NOBODY, drained=True, **said)
    await asker.ask(_case("SetDrain", drained, ABSENT))
    await asker.ask(_case("SetDrain", maintenance.SetDrainRequest(broker_id=1), INVALID))
    await asker.ask(_case("ForgetBroker", maintenance.ForgetBrokerRequest(broker_id=NOBODY, **said), ABSENT))
    cancelled = maintenance.CancelShutdownRequest(broker_id=NOBODY, broker_epoch=-1)
    await asker.ask(_case("CancelShutdown", cancelled, ABSENT))
    stale = maintenance.CancelShutdownRequest(broker_id=asker.rng.choice(asker.ids), broker_epoch=0)
    await asker.ask(_case("CancelShutdown", stale, (*ABSENT, codes.STALE_BROKER_EPOCH)))


async def set_and_lifted(asker: Asker) -> None:
    """What holds the controller back, for a while; what is stored is what was asked."""
    kind = asker.rng.choice(tuple(_KINDS))
    method = _KINDS[kind]
    fields = next(fields for name, _, fields in _SET if name == method)
    written = (*DONE, *_UNWRITTEN)
    try:
        for _ in range(asker.rng.randint(1, 2)):
            wanted = _LIFTED[method](**fields, author=_AUTHOR, reason="simulated")
            answer = await asker.ask(_case(method, wanted, written))
            if answer is not None and not answer.error_code:
                _check_stored(asker, method)
            await asker.pass_s(asker.rng.choice((0.05, 0.5, 2.0)))
    finally:
        await asker.ask(_case(method, _LIFTED[method](author=_AUTHOR), written), tidying=True)


def _check_stored(asker: Asker, method: str) -> None:
    """Others may set and lift the same meanwhile, but for the freeze: only one who asks for it once."""
    found = asker.cluster.ask_zookeeper(Get("/controllers/maintenance"))
    if method == "SetFreeze" and isinstance(found, tuple) and _AUTHOR not in json.dumps(json.loads(found[0])):
        asker.cluster.violated(f"{method} was granted, and stored is {found[0]!r}")


async def all_drained(asker: Asker) -> None:
    """One broker after the other, until none would be left: the last one is refused."""
    said: dict[str, Any] = {"author": _AUTHOR, "reason": "simulated"}
    order = asker.rng.sample(asker.ids, len(asker.ids))
    granted = []
    try:
        for id_ in order:
            request = maintenance.SetDrainRequest(broker_id=id_, drained=True, **said)
            answer = await asker.ask(_case("SetDrain", request, (*DONE, *_UNWRITTEN, *ABSENT, *FORBIDDEN)))
            if answer is not None and not answer.error_code:
                granted.append(id_)
        if len(granted) == len(order) and _alone(asker):
            asker.cluster.violated(f"all brokers were drained, one after the other: {granted}")
    finally:
        for id_ in order:
            request = maintenance.SetDrainRequest(broker_id=id_, author=_AUTHOR)
            await asker.ask(_case("SetDrain", request, (*DONE, *_UNWRITTEN)), tidying=True)


def _alone(asker: Asker) -> bool:
    """Whether nobody else drains brokers, and undrains them."""
    actions = asker.cluster.plan.actions
    others = [a for a in actions if a.kind == "drain" or "all_drained" in a.arguments]
    return len(others) == 1 and not asker.again


async def forgotten(asker: Asker) -> None:
    """A broker dies, is forgotten, and comes back after all, while a topic of it is deleted."""
    said: dict[str, Any] = {"author": _AUTHOR, "reason": "simulated"}
    id_, name = asker.rng.choice(asker.ids), f"odd_{asker.serial}"
    request = maintenance.ForgetBrokerRequest(broker_id=id_, **said)
    if id_ in asker.registered():
        await asker.ask(_case("ForgetBroker", request, (*FORBIDDEN, *ABSENT, *DONE, *_UNWRITTEN)))
    exists = (codes.TOPIC_ALREADY_EXISTS,)
    wanted = topic(name, assignments=lists(asker.ids))
    try:
        await asker.ask(creation(wanted, parts=[(*DONE, *_UNWRITTEN, *exists)]))
        if asker.cluster.over:
            raise OverError
        timeout_s = asker.cluster.plan.options.session_timeout_ms / 1000
        asker.cluster.kill_broker(id_, timeout_s + asker.rng.uniform(1.0, 3.0))
        await asker.pass_s(timeout_s + 0.2)
        await asker.ask(_case("ForgetBroker", request, (*FORBIDDEN, *ABSENT, *DONE, *_UNWRITTEN)))
    finally:
        gone = (*DONE, codes.UNKNOWN_TOPIC_OR_PARTITION, *_UNWRITTEN)
        await asker.ask(deletion(pb.DeletableTopic(name=name), parts=[gone]), tidying=True)
