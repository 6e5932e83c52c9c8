"""Configurations and features that cannot be as asked, and some that are set, read and taken back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2 as codes
from proto.gen import features_pb2 as features
from tests.provers.sim.checks.refusals import NOBODY, REFUSED
from tests.provers.sim.odd.asking import DONE, INVALID, Asker, Case, Codes
from tests.provers.sim.odd.topics import CONFIG, NAME, UNKNOWN
from tests.provers.sim.plans.plan import TOPICS
from tests.provers.sim.zookeeper.messages import Get

DEFAULT = "<default>"
_NO_TYPE, _NO_UPGRADE = 0, 0
#: Settings of controllers that change nothing that a run looks at.
HARMLESS = "leader_rebalance_leaders_per_second"


def resource_of(kind: int, name: str) -> pb.ConfigResource:
    return pb.ConfigResource(resource_type=kind, resource_name=name)  # type: ignore[arg-type]


def alteration(kind: int, name: str, *configs: tuple[str, str | None]) -> pb.AlterConfigsResource:
    return pb.AlterConfigsResource(
        resource=resource_of(kind, name),
        configs=[pb.AlterableConfig(name=key, value=value) for key, value in configs],
    )


def alter(
    *resources: pb.AlterConfigsResource,
    parts: Sequence[Codes] = (),
    whole: Codes = DONE,
    trying: bool = False,
    unknown_too: bool = False,
) -> Case:
    request = pb.AlterConfigsRequest(resources=resources, validate_only=trying, unknown_keys_too=unknown_too)
    return Case("AlterConfigs", request, parts, whole)


async def refused_configs(asker: Asker) -> None:
    topic, unknown = asker.rng.choice(TOPICS), asker.refused()
    there = (*CONFIG, *UNKNOWN)
    twice = alteration(pb.BROKER, "1", ("log.dirs", REFUSED))
    await asker.ask(alter(alteration(_NO_TYPE, unknown, ("a", REFUSED)), whole=INVALID))
    await asker.ask(
        alter(
            alteration(pb.TOPIC, unknown, ("retention.ms", "1")),
            alteration(pb.TOPIC, f"{REFUSED}!", ("retention.ms", "1")),
            alteration(pb.BROKER, REFUSED, ("a", REFUSED)),
            alteration(pb.CONTROLLER, REFUSED, (HARMLESS, "1")),
            twice,
            twice,
            alteration(pb.CONTROLLER, "", (REFUSED, "1"), (HARMLESS, REFUSED)),
            parts=[UNKNOWN, NAME, INVALID, INVALID, INVALID, INVALID, CONFIG],
        )
    )
    for configs in (
        (("retention.ms", REFUSED),),
        (("retention.mss", REFUSED),),
        (("", REFUSED), ("flush.ms", REFUSED)),
    ):
        await asker.ask(alter(alteration(pb.TOPIC, topic, *configs), parts=[there]))
    named_twice = (*INVALID, *UNKNOWN)
    both = (("flush.ms", REFUSED), ("flush.ms", "1"))
    await asker.ask(alter(alteration(pb.TOPIC, topic, *both), parts=[named_twice]))
    # Valid, and only to be tried.
    tried = alteration(pb.BROKER, "", (f"sim.{REFUSED}", "1"))
    settings = alteration(pb.CONTROLLER, str(NOBODY), (HARMLESS, "7"))
    await asker.ask(alter(tried, settings, parts=[DONE, DONE], trying=True))
    resources = [
        resource_of(pb.TOPIC, unknown),
        resource_of(pb.TOPIC, ""),
        resource_of(pb.BROKER, REFUSED),
        resource_of(pb.CONTROLLER, REFUSED),
    ]
    described = pb.DescribeConfigsRequest(resources=resources)
    await asker.ask(Case("DescribeConfigs", described, [UNKNOWN, NAME, INVALID, INVALID]))
    described = pb.DescribeConfigsRequest(resources=[resource_of(_NO_TYPE, unknown)])
    await asker.ask(Case("DescribeConfigs", described, whole=INVALID))


async def configs_to_and_fro(asker: Asker) -> None:
    """What is set is durable, is told with where it comes from, and is gone once it is taken back."""
    key, value = f"sim.odd.{asker.serial}", str(asker.rng.randrange(1000))
    kind, name = asker.rng.choice(((pb.BROKER, ""), (pb.BROKER, str(asker.rng.choice(asker.ids)))))
    entity = name or DEFAULT
    try:
        for wanted in (value, value, None, value):
            answer = await asker.ask(_set(kind, name, key, wanted))
            if answer is not None and not answer.responses[0].error_code:
                _check_stored(asker, entity, key, wanted)
                await _check_told(asker, kind, name, key, wanted)
    finally:
        await asker.ask(_set(kind, name, key, None), tidying=True)


def _set(kind: int, name: str, key: str, value: str | None) -> Case:
    written = (*DONE, codes.UNKNOWN_SERVER_ERROR)
    return alter(alteration(kind, name, (key, value)), parts=[written], unknown_too=True)


def _check_stored(asker: Asker, entity: str, key: str, wanted: str | None) -> None:
    found = asker.cluster.ask_zookeeper(Get(f"/config/brokers/{entity}"))
    stored: Mapping[str, str] = json.loads(found[0])["config"] if isinstance(found, tuple) else {}
    if isinstance(found, tuple) and stored.get(key) != wanted and not asker.again:
        asker.cluster.violated(f"{key} of {entity} was set to {wanted}, and is {stored.get(key)}")


async def _check_told(asker: Asker, kind: int, name: str, key: str, wanted: str | None) -> None:
    described = pb.DescribeConfigsRequest(resources=[resource_of(kind, name)])
    answer = await asker.ask(Case("DescribeConfigs", described, [DONE]))
    found: list[Any] = [c for c in answer.results[0].configs if c.name == key] if answer is not None else []
    told = found[0].value if found else None
    if answer is not None and told != wanted and not asker.again:
        asker.cluster.violated(f"{key} of {name or DEFAULT} is told to be {told}, and was set to {wanted}")


async def settings_of_controllers(asker: Asker) -> None:
    """Set for one or all controllers, and taken back."""
    name = asker.rng.choice(("", "1", str(90 + asker.serial)))
    written = (*DONE, codes.UNKNOWN_SERVER_ERROR)
    key, value = asker.rng.choice(
        ((HARMLESS, "5"), (HARMLESS, " 7 "), ("auto_leader_rebalance_enable", "false"))
    )
    try:
        await asker.ask(alter(alteration(pb.CONTROLLER, name, (key, value)), parts=[written]))
        described = pb.DescribeConfigsRequest(
            resources=[resource_of(pb.CONTROLLER, name), resource_of(pb.CONTROLLER, "1")]
        )
        answer = await asker.ask(Case("DescribeConfigs", described, [DONE, DONE]))
        for config in answer.results[0].configs if answer is not None else ():
            if not config.known or config.problem:
                asker.cluster.violated(f"a setting of controllers is told to be wrong: {config}")
    finally:
        undone = alter(alteration(pb.CONTROLLER, name, (key, None)), parts=[written])
        await asker.ask(undone, tidying=True)


async def refused_features(asker: Asker) -> None:
    def update(name: str, level: int, kind: int) -> features.FeatureUpdate:
        return features.FeatureUpdate(name=name, max_version_level=level, upgrade_type=kind)  # type: ignore[arg-type]

    up, down, unsafe = features.UPGRADE, features.SAFE_DOWNGRADE, features.UNSAFE_DOWNGRADE
    updates = [
        update("", 1, up),
        update(REFUSED, 1, _NO_UPGRADE),
        update(f"{REFUSED}-1", 1, up),
        update(f"{REFUSED}-2", 0, up),
        update(f"{REFUSED}-3", 0, down),
        update(f"{REFUSED}-4", 1, unsafe),
        update("sim", 9, up),
        update("sim", 9, up),
    ]
    trying = asker.rng.random() < 0.5
    request = features.UpdateFeaturesRequest(updates=updates, validate_only=trying)
    await asker.ask(Case("UpdateFeatures", request, [INVALID] * len(updates)))
    await asker.ask(Case("DescribeFeatures", features.DescribeFeaturesRequest()))
