"""A controller process under fire: brokers that accept everything, somebody who looks at it all the time, and what
ZooKeeper must hold afterwards."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message_factory import GetMessageClass
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from controller.core import znode_paths
from controller.core.config_keys import BROKER_KEYS, TOPIC_KEYS
from controller.core.effects import TopicInfo
from controller.core.names import topic_name_problem
from controller.core.znode_paths import NodePath
from controller.core.znode_sizes import ZNODE_BYTES_MAX
from controller.runtime.zookeeper import codecs, single_codecs
from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2, controller_service_pb2, maintenance_pb2
from proto.gen.broker_control_pb2 import StopReplicaRequest
from proto.limits import MESSAGE_LIMITS
from tests.support.runtime.programs import BIN, Program, program
from tests.support.runtime.pushes import stopped

ADMIN = pb.DESCRIPTOR.services_by_name["AdminService"]
CONTROLLER = controller_service_pb2.DESCRIPTOR.services_by_name["ControllerService"]
METHODS = {method.name: method for service in (ADMIN, CONTROLLER) for method in service.methods}
#: How long an answer, a probe, and the end of all work may take.
ANSWER_S, PROBE_S, SETTLED_S = 60.0, 10.0, 60.0
BROKERS = (1, 2, 3)


class Prober:
    """Asks ``/live`` and DescribeCluster again and again; keeps what failed and the slowest answers, in seconds."""

    def __init__(self, http: str, channel: grpc.Channel) -> None:
        self._http, self._channel = http, channel
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._probe, daemon=True)
        self.failures: list[str] = []
        self.slowest = {"live": 0.0, "DescribeCluster": 0.0}

    def __enter__(self) -> Prober:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()

    def _probe(self) -> None:
        while not self._over.wait(0.05):
            for name, look in (("live", self._live), ("DescribeCluster", self._describe)):
                began = time.monotonic()
                try:
                    look()
                except (OSError, grpc.RpcError, AssertionError) as error:
                    self.failures.append(f"{name}: {error}")
                self.slowest[name] = max(self.slowest[name], time.monotonic() - began)

    def _live(self) -> None:
        with urllib.request.urlopen(f"http://{self._http}/live", timeout=PROBE_S) as answer:
            assert answer.status == 200

    def _describe(self) -> None:
        answer = call(self._channel, "DescribeCluster", b"", PROBE_S)
        assert answer.error_code == common_pb2.NONE, answer


def call(channel: grpc.Channel, method: str, request: bytes, timeout_s: float = ANSWER_S) -> Any:
    """The response; of a stream the first one. Raises grpc.RpcError for what is no response."""
    known = METHODS[method]
    path = f"/{known.containing_service.full_name}/{method}"
    parse = GetMessageClass(known.output_type).FromString
    if not known.server_streaming:
        unary: Any = channel.unary_unary(path, response_deserializer=parse)
        return unary(request, timeout=timeout_s)
    open_stream: Any = channel.unary_stream(path, response_deserializer=parse)
    stream = open_stream(request, timeout=timeout_s)
    try:
        return next(stream)
    finally:
        stream.cancel()


@dataclass
class Candidate:
    """One controller process."""

    running: Program
    channel: grpc.Channel
    http: str

    def describe(self) -> Any:
        with suppress(grpc.RpcError):
            answer = call(self.channel, "DescribeCluster", b"", PROBE_S)
            if answer.error_code == common_pb2.NONE:
                return answer
        return None


@dataclass
class Fuzzed:
    """The cluster. ``start`` starts a controller; the first one leads."""

    connect: str
    directory: Path
    zk: KazooClient
    epochs: dict[int, int] = field(default_factory=dict)

    @contextmanager
    def start(self, controller_id: int, session_timeout_ms: int = 12_000) -> Iterator[Candidate]:
        command = [
            str(BIN / "partition-controller"),
            "run",
            f"--controller-id={controller_id}",
            f"--zookeeper={self.connect}",
            "--grpc-listen=127.0.0.1:0",
            "--http-listen=127.0.0.1:0",
            f"--session-timeout-ms={session_timeout_ms}",
            f"--state-log-dir={self.directory / f'log-{controller_id}'}",
        ]
        path = f"/controllers/ids/{controller_id}"
        with ExitStack() as stack:
            running = stack.enter_context(
                program(command, self.directory, name=f"controller-{controller_id}")
            )
            running.until(lambda: self.zk.exists(path) is not None)
            notified = json.loads(self.zk.get(path)[0])
            channel = stack.enter_context(grpc.insecure_channel(notified["endpoint"], options=MESSAGE_LIMITS))
            yield Candidate(running, channel, notified["http"])

    def register(self, broker_id: int, port: int) -> None:
        features = '{"f":{"min_version":1,"max_version":3}}'
        data = f'{{"version":5,"endpoints":["GRPC://127.0.0.1:{port}"],"features":{features}}}'
        self.zk.create(f"/brokers/ids/{broker_id}", data.encode(), ephemeral=True)
        self.epochs[broker_id] = self.zk.exists(f"/brokers/ids/{broker_id}").czxid

    def release(self, controller: Candidate) -> None:
        """Whatever was paused, drained or leaving goes on."""
        author: Any = {"author": "ann", "reason": "the end"}
        requests: list[tuple[str, Any]] = [
            ("SetPause", maintenance_pb2.SetPauseRequest(**author)),
            ("SetMaintenance", maintenance_pb2.SetMaintenanceRequest(**author)),
        ]
        for broker_id in BROKERS:
            requests += [
                ("SetDrain", maintenance_pb2.SetDrainRequest(broker_id=broker_id, **author)),
                (
                    "CancelShutdown",
                    maintenance_pb2.CancelShutdownRequest(broker_id=broker_id, broker_epoch=-1),
                ),
            ]
        for method, request in requests:
            answer = call(controller.channel, method, request.SerializeToString())
            assert answer.error_code == common_pb2.NONE, answer

    def wait(self, reached: Callable[[], Any], what: str, timeout_s: float = SETTLED_S) -> Any:
        deadline = time.monotonic() + timeout_s
        while not (found := reached()):
            assert time.monotonic() < deadline, f"waited in vain for {what}"
            time.sleep(0.05)
        return found


@contextmanager
def accepting() -> Iterator[int]:
    """A server that does whatever it is asked, and says so; its port."""

    class Everything(grpc.GenericRpcHandler):
        def service(self, handler_call_details: Any) -> Any:
            if handler_call_details.method.endswith("/StopReplica"):
                return grpc.unary_unary_rpc_method_handler(
                    lambda request, context: stopped(StopReplicaRequest.FromString(request))
                )
            return grpc.unary_unary_rpc_method_handler(lambda request, context: b"")

    server = grpc.server(futures.ThreadPoolExecutor(6), options=[("grpc.so_reuseport", 0), *MESSAGE_LIMITS])
    server.add_generic_rpc_handlers((Everything(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port
    finally:
        server.stop(0).wait()


@contextmanager
def fuzzed(connect: str, directory: Path) -> Iterator[tuple[Fuzzed, Candidate]]:
    """Below a chroot of its own: one controller, three brokers, topics t and u."""
    hands = KazooClient(connect.partition("/")[0])
    hands.start(20)
    hands.ensure_path("/" + connect.partition("/")[2])
    hands.stop()
    hands.close()
    hands = KazooClient(connect, timeout=30)
    hands.start(20)
    try:
        with accepting() as port:
            cluster = Fuzzed(connect, directory, hands)
            with cluster.start(1) as first:
                for broker_id in BROKERS:
                    cluster.register(broker_id, port)
                cluster.wait(
                    lambda: (d := first.describe()) and len(d.brokers) == len(BROKERS), "the brokers"
                )
                made = call(first.channel, "CreateTopics", topics("t", "u").SerializeToString())
                assert [topic.error_code for topic in made.topics] == [0, 0]
                yield cluster, first
    finally:
        hands.stop()
        hands.close()


def topics(*names: str) -> pb.CreateTopicsRequest:
    return pb.CreateTopicsRequest(
        topics=[pb.CreatableTopic(name=name, num_partitions=3, replication_factor=2) for name in names]
    )


# --- what must be so afterwards ------------------------------------------------------------------------------


def stored_problems(zk: KazooClient, path: str = "/") -> Iterator[str]:
    """Znodes that do not decode, say nonsense, or are too large, in words; all below a path."""
    try:
        data, stat = zk.get(path)
        children = zk.get_children(path)
    except NoNodeError:
        return
    if len(data) > ZNODE_BYTES_MAX:
        yield f"{path}: {len(data)} bytes"
    try:
        yield from (f"{path}: {problem}" for problem in _problems(zk, path, data, stat))
    except Exception as error:  # noqa: BLE001  (whatever it is, it is a finding)
        yield f"{path}: {type(error).__name__}: {error}"
    for name in children:
        yield from stored_problems(zk, f"{path.rstrip('/')}/{name}")


def _problems(zk: KazooClient, path: str, data: bytes, stat: Any) -> Iterator[str]:
    match path.strip("/").split("/"):
        case ["brokers", "topics", name]:
            yield from _topic_problems(codecs.decode_topic(name, data, stat.czxid, stat.version))
        case ["brokers", "topics", name, "partitions", number, "state"]:
            topic = _topic(name, zk.get(znode_paths.topic_path(name))[0])
            state = codecs.decode_state(name, int(number), data, stat.version)
            replicas = set(topic.partitions[int(number)])
            if not set(state.isr) <= replicas or not state.isr or state.leader not in {*state.isr, -1}:
                yield f"{state} of replicas {replicas}"
        case ["config", ("topics" | "brokers") as kind, _]:
            known = TOPIC_KEYS if kind == "topics" else BROKER_KEYS
            for key, value in codecs.decode_config(path, data).items():
                if (check := known.get(key)) and (problem := check(value)):
                    yield f"{key} = {value!r}: {problem}"
        case ["admin", "delete_topics", name]:
            if problem := topic_name_problem(name):
                yield problem
        case ["config", "changes", _]:
            single_codecs.decode_config_change(path, data)
        case ["feature"]:
            codecs.decode_feature(data, stat.version)
        case ["controllers", "maintenance" | "approvals"] | ["latest_producer_id_block"]:
            single_codecs.decode(NodePath[object](path), data)


@lru_cache(4)
def _topic(name: str, data: bytes) -> TopicInfo:
    """Not anew for each of ten thousand partitions."""
    return codecs.decode_topic(name, data, 1, 1)


def _topic_problems(topic: Any) -> Iterator[str]:
    if sorted(topic.partitions) != list(range(len(topic.partitions))):
        yield f"partitions {sorted(topic.partitions)[:20]}"
    for number, replicas in topic.partitions.items():
        wrong = (
            [b for b in replicas if not 0 <= b < 2**31] or len(set(replicas)) != len(replicas) or not replicas
        )
        if wrong:
            yield f"partition {number}: replicas {replicas}"
    for name in ("adding", "removing", "queued"):
        if unknown := getattr(topic, name).keys() - topic.partitions.keys():
            yield f"{name}: partitions {unknown}"
