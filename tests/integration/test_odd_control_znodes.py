"""What a stranger may write to the controller's own znodes, to ``/feature`` and to registrations, while it runs and
before its next failover: it leads, is asked about maintenance, approvals and features, and makes and deletes topics."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import suppress

import pytest
from kazoo.exceptions import NodeExistsError, NoNodeError

from tests.support.cli.operator import Operator, operating
from tests.support.runtime.admins import REQUESTS, ask

pytestmark = pytest.mark.slow

PATHS = (
    "/controllers/maintenance",
    "/controllers/approvals",
    "/feature",
    "/cluster/id",
    "/config/brokers/<default>",
    "/brokers/ids/77",
    "/log_dir_event_notification/log_dir_event_0000000001",
)
MORE = (
    "/controllers/quarantine",
    "/latest_producer_id_block",
    "/config/changes/config_change_0000009999",
    "/controllers/ids/77",
    "/isr_change_notification/isr_change_0000000001",
)
#: Names that nobody gives, beside those above.
ODD_NAMES = (
    "/controllers/ids/x",
    "/brokers/ids/x",
    "/isr_change_notification/x",
    "/admin/something",
    "/something",
)
CONTENTS = """

not json
[]
null
{}
{"version":99}
{"version":1}
{"version":1,"drained":{"99999999999":{"reason":"r","author":"a"}},"accepted":[-1]}
{"version":1,"drained":{"77":{"reason":"r","author":"a"}},"accepted":[77]}
{"version":1,"approvals":{"1":{"broker_epoch":99999999999999999999,"reason":"r","author":"a","at_ms":1}}}
{"version":1,"status":1,"features":{"":{"max_version_level":1}}}
{"version":2,"status":0,"features":{"f":{"max_version_level":32768}}}
{"version":5,"host":"h","port":1,"features":{"f":{"min_version":5,"max_version":1}}}
{"version":5,"endpoints":["GRPC://127.0.0.1:1"],"features":{"f":{"min_version":1,"max_version":1}},"rack":"\\u0000"}
{"version":1,"broker":99,"event":1}
{"version":1,"partitions":[{"topic":"nosuch","partition":0},{"topic":"ok","partition":99}]}
{"version":2,"entity_path":"topics/../../x"}
{"version":1,"broker":1,"block_start":"9223372036854775000","block_end":"9223372036854775807"}
{"version":1,"suspects":{"topic/ok":{"kind":"topic","name":"ok"}}}
{"version":1,"config":{"unclean.leader.election.enable":"maybe"}}
""".strip("\n").splitlines()
#: The last one is as large as a server takes.
CONTENTS.append("{" + " " * 1_000_000)


QUESTIONS = (
    "DescribeCluster",
    "DescribeMaintenance",
    "DescribeFeatures",
    "DescribeReplicas",
    "DescribeTopics",
    "CheckStoppable",
    "WithdrawStopApproval",
    "Explain",
    "Plan",
)


@pytest.fixture(scope="module")
def operator(zookeeper_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    directory = tmp_path_factory.mktemp("strangers")
    with operating(f"{zookeeper_server}/strangers-{os.getpid()}", directory / "run", 2) as running:
        running.ok("topics", "create", "ok", "--replica-assignment=1:2")
        yield running


def write(operator: Operator, path: str, data: bytes) -> None:
    """Notifications are deleted by the controller at any time."""
    while True:
        with suppress(NoNodeError):
            try:
                operator.zk.create(path, data, makepath=True)
            except NodeExistsError:
                operator.zk.set(path, data)
            return


def works(operator: Operator, name: str) -> None:
    """A topic is made, led and deleted, and questions about all of it are answered."""
    path = f"/brokers/topics/{name}"
    operator.zk.create(path, b'{"version":1,"partitions":{"0":[2,1]}}')
    operator.wait(lambda: operator.zk.exists(f"{path}/partitions/0/state") is not None)
    operator.zk.create(f"/admin/delete_topics/{name}", b"")
    operator.wait(lambda: operator.zk.exists(path) is None)
    endpoint = json.loads(operator.zk.get("/controller")[0])["endpoint"]
    for method in QUESTIONS:
        # Any answer will do, but for none: what cannot be said over the wire would end the call.
        asyncio.run(ask(endpoint, method, REQUESTS[method]))


@pytest.mark.parametrize(
    "path", [*PATHS, *(pytest.param(path, marks=pytest.mark.long) for path in (*MORE, *ODD_NAMES))]
)
def test_while_it_runs_and_at_failover(operator: Operator, path: str) -> None:
    kept = operator.zk.get(path)[0] if operator.zk.exists(path) else None
    try:
        for number, content in enumerate(CONTENTS):
            write(operator, path, content.encode())
            if number % 5 == 4:
                works(operator, f"running-{number}")
        for number in (3, 7, 9, 13, len(CONTENTS) - 1):
            write(operator, path, CONTENTS[number].encode())
            operator.zk.delete("/controller")
            works(operator, f"failover-{number}")
    finally:
        if kept is None:
            with suppress(NoNodeError):
                operator.zk.delete(path, recursive=True)
        else:
            write(operator, path, kept)
    works(operator, "after")
