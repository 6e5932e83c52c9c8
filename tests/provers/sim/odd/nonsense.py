"""A znode that holds one value is edited and does not decode: what needs it is refused, and nobody writes over it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2 as codes
from proto.gen import controller_service_pb2 as service
from proto.gen import features_pb2 as features
from proto.gen import maintenance_pb2 as maintenance
from tests.provers.sim.checks.ledger import NONSENSE
from tests.provers.sim.odd.asking import INVALID, Asker, Case, Codes
from tests.provers.sim.odd.configs import HARMLESS, alter, alteration, resource_of
from tests.provers.sim.odd.topics import CONFIG, UNKNOWN
from tests.provers.sim.plans.plan import TOPICS
from tests.provers.sim.zookeeper.messages import Create, Delete, Exists, Set, Stat

_UNREADABLE: Codes = (codes.UNKNOWN_SERVER_ERROR,)
_UNTIL_MS = 4_102_444_800_000


class Edited(NamedTuple):
    path: str
    #: Each needs what was there.
    cases: Callable[[Asker], list[Case]]


def _features(_: Asker) -> list[Case]:
    update = features.FeatureUpdate(name="sim", max_version_level=1, upgrade_type=features.UPGRADE)
    failed = (codes.FEATURE_UPDATE_FAILED, *INVALID)
    return [
        Case("UpdateFeatures", features.UpdateFeaturesRequest(updates=[update]), [failed]),
        Case("DescribeFeatures", features.DescribeFeaturesRequest(), whole=_UNREADABLE),
    ]


def _producer_ids(asker: Asker) -> list[Case]:
    id_ = asker.rng.choice(asker.ids)
    found = asker.cluster.ask_zookeeper(Exists(f"/brokers/ids/{id_}"))
    epoch = found.czxid if isinstance(found, Stat) else 0
    request = service.AllocateProducerIdsRequest(broker_id=id_, broker_epoch=epoch)
    stale = (codes.STALE_BROKER_EPOCH, codes.BROKER_ID_NOT_REGISTERED)
    return [Case("AllocateProducerIds", request, whole=(*_UNREADABLE, *stale), certificate=f"broker-{id_}")]


def _configured(kind: int, name: str, key: str, failed: Codes) -> list[Case]:
    described = pb.DescribeConfigsRequest(resources=[resource_of(kind, name)])
    return [
        alter(alteration(kind, name, (key, "7")), parts=[failed], unknown_too=True),
        Case("DescribeConfigs", described, [(*CONFIG, *UNKNOWN)]),
    ]


def _restrictions(_: Asker) -> list[Case]:
    said: dict[str, Any] = {"author": "odd operator", "reason": "simulated"}
    return [
        Case("SetPause", maintenance.SetPauseRequest(paused=True, **said), whole=_UNREADABLE),
        Case("SetMaintenance", maintenance.SetMaintenanceRequest(entered=True, **said), whole=_UNREADABLE),
        Case(
            "SetFreeze",
            maintenance.SetFreezeRequest(frozen=True, until_ms=_UNTIL_MS, **said),
            whole=_UNREADABLE,
        ),
        Case(
            "SetDrain",
            maintenance.SetDrainRequest(broker_id=1, drained=True, force=True, **said),
            whole=(*_UNREADABLE, codes.BROKER_NOT_AVAILABLE),
        ),
    ]


def _edited(asker: Asker) -> Edited:
    topic = asker.rng.choice(TOPICS)
    there = (*CONFIG, *UNKNOWN)
    return asker.rng.choice(
        (
            Edited("/feature", _features),
            Edited("/latest_producer_id_block", _producer_ids),
            Edited(f"/config/topics/{topic}", lambda _: _configured(pb.TOPIC, topic, "retention.ms", there)),
            Edited("/config/brokers/<default>", lambda _: _configured(pb.BROKER, "", "sim.odd", CONFIG)),
            Edited("/controllers/settings", lambda _: _configured(pb.CONTROLLER, "", HARMLESS, _UNREADABLE)),
            Edited("/controllers/maintenance", _restrictions),
        )
    )


async def edited_into_nonsense(asker: Asker) -> None:
    """One at a time of each: two editors would put back what the other one has written."""
    edited = _edited(asker)
    if asker.cluster.stored(edited.path) != NONSENSE:
        with asker.editing():
            await _edit(asker, edited)


async def _edit(asker: Asker, edited: Edited) -> None:
    """While ZooKeeper has no leader nobody edits anything."""
    cluster, cases = asker.cluster, edited.cases(asker)
    before = cluster.stored(edited.path)
    edit = Create(edited.path, NONSENSE) if before is None else Set(edited.path, NONSENSE)
    if cluster.ask_zookeeper(edit) is None:
        return
    try:
        for case in cases:
            await asker.ask(case)
            # A topic that is deleted, and made anew, has a configuration of its own.
            if cluster.stored(edited.path) != NONSENSE and not edited.path.startswith("/config/topics"):
                cluster.violated(f"{edited.path} was written over, which did not decode")
    finally:
        undo = Delete(edited.path) if before is None else Set(edited.path, before)
        while cluster.stored(edited.path) == NONSENSE and cluster.ask_zookeeper(undo) is None:
            await asker.pass_s(0.1)
