"""Our decoders of Kafka's znodes, each with how its value and Kafka's are compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from broker_stub.zookeeper import codecs as broker_codecs
from controller.core.cluster.producer_ids import PATH as PRODUCER_IDS
from controller.core.effects import TopicInfo
from controller.core.model import Broker, LeaderAndIsr
from controller.core.znode_paths import CLUSTER_ID
from controller.errors import MalformedError
from controller.runtime.zookeeper import codecs, single_codecs
from tests.kafka_decoders.deviations import Compared

_PATH = "/znode"


class Decoder(NamedTuple):
    """``ours``: of bytes, as JSON; ``theirs``: what is compared of Kafka's value. ``refusal``: what we raise."""

    ours: Callable[[bytes], object]
    theirs: Callable[[Any], object] = lambda value: value
    refusal: type[Exception] = MalformedError


def _broker(broker: Broker) -> object:
    endpoints = [[e.listener, e.security_protocol, e.host, e.port] for e in broker.endpoints]
    features = {feature.name: [feature.min, feature.max] for feature in broker.features}
    return {"endpoints": endpoints, "rack": broker.rack, "features": features}


def _topic(info: TopicInfo) -> object:
    """Kafka keeps moves only of partitions that there are."""

    def moves(by_number: Mapping[int, tuple[int, ...]]) -> dict[str, list[int]]:
        return {str(n): list(ids) for n, ids in by_number.items() if ids and n in info.partitions}

    return {
        "topic_id": info.topic_id,
        "partitions": {str(number): list(ids) for number, ids in info.partitions.items()},
        "adding": moves(info.adding),
        "removing": moves(info.removing),
    }


def _state(state: LeaderAndIsr) -> object:
    return {
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "isr": list(state.isr),
        "controller_epoch": state.controller_epoch,
        "recovery": state.recovery,
    }


def _feature(data: bytes) -> object:
    found = codecs.decode_feature(data, 1)
    return {"enabled": found.enabled, "features": {feature.name: feature.max for feature in found.features}}


def _producer_ids(data: bytes) -> object:
    found = single_codecs.decode(PRODUCER_IDS, data)
    return [found.broker, found.start, found.end] if found else None


def _broker_state(data: bytes) -> object:
    state = broker_codecs.decode_state(_PATH, data)
    return [state.leader, state.leader_epoch, list(state.isr), state.controller_epoch]


def _config_change(data: bytes) -> object:
    change = broker_codecs.decode_change(_PATH, data)
    return None if change is None else f"{change.kind.value}/{change.name}"


def _reassignments(data: bytes) -> object:
    return [[t, n, list(ids)] for t, n, ids in codecs.decode_reassignments(_PATH, data, 1).entries]


def _partition_list(data: bytes) -> object:
    return sorted({(topic, number) for topic, number in codecs.decode_partition_list(_PATH, data)})


def _as_set(value: list[list[object]]) -> object:
    return sorted((topic, number) for topic, number in value)


def _of_broker(
    ours: Callable[[bytes], object], theirs: Callable[[Any], object] = lambda value: value
) -> Decoder:
    return Decoder(ours, theirs, broker_codecs.MalformedZnode)


CONTROLLER: Mapping[str, Decoder] = {
    "controller": Decoder(lambda data: codecs.decode_controller(data)[0]),
    "controller_epoch": Decoder(codecs.decode_epoch),
    "broker": Decoder(lambda data: _broker(codecs.decode_broker("/brokers/ids/7", data, 1))),
    "topic": Decoder(lambda data: _topic(codecs.decode_topic("t", data, 1, 1))),
    "state": Decoder(lambda data: _state(codecs.decode_state("t", 0, data, 1))),
    "election": Decoder(_partition_list, _as_set),
    "isr_change": Decoder(_partition_list, _as_set),
    "reassignment": Decoder(lambda data: sorted(_reassignments(data)), sorted),  # type: ignore[call-overload]
    "log_dir_event": Decoder(lambda data: codecs.decode_log_dir_event(_PATH, data)),
    "config": Decoder(lambda data: codecs.decode_config(_PATH, data)),
    "config_change": Decoder(lambda data: single_codecs.decode_config_change(_PATH, data)),
    "producer_ids": Decoder(_producer_ids),
    "cluster_id": Decoder(lambda data: single_codecs.decode(CLUSTER_ID, data)),
    "feature": Decoder(_feature),
}
BROKER: Mapping[str, Decoder] = {
    "config": _of_broker(lambda data: broker_codecs.decode_config(_PATH, data)),
    "topic": _of_broker(
        lambda data: broker_codecs.decode_partition_count(_PATH, data), lambda value: len(value["partitions"])
    ),
    "state": _of_broker(
        _broker_state, lambda v: [v["leader"], v["leader_epoch"], v["isr"], v["controller_epoch"]]
    ),
    "config_change": _of_broker(
        _config_change,
        lambda value: value if value.startswith(("topics/", "brokers/")) else None,
    ),
}
#: By who reads.
DECODERS: Mapping[str, Mapping[str, Decoder]] = {"controller": CONTROLLER, "broker_stub": BROKER}


def _as_json(value: object) -> Any:
    return json.loads(json.dumps(value))


def _decoded(decoder: Decoder, data: bytes) -> dict[str, object]:
    try:
        return {"value": _as_json(decoder.ours(data))}
    except decoder.refusal as error:
        return {"refused": str(error)}


def compared(znode: str, data: bytes, kafka: Mapping[str, Any]) -> Iterator[Compared]:
    """Kafka's answer with that of each of our decoders. Whatever else a decoder raises, is raised."""
    for who, decoders in DECODERS.items():
        if (decoder := decoders.get(znode)) is not None:
            theirs = {"value": _as_json(decoder.theirs(kafka["value"]))} if "value" in kafka else dict(kafka)
            yield Compared(who, znode, data, theirs, _decoded(decoder, data))
