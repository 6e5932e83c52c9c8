"""pctl where znodes have owners: it logs in to ZooKeeper as told, and says what it could not read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from kazoo.client import KazooClient
from kazoo.security import CREATOR_ALL_ACL

from controller.cli.pctl.main import main
from controller.core.znode_paths import BROKER_DEFAULTS, TOPICS
from controller.runtime.zookeeper import cluster_reader
from proto.zookeeper_access import OPEN_ACCESS, ZooKeeperAccess
from tests.support.runtime.secured_zookeeper import USERS, access, secured_zookeeper

pytestmark = pytest.mark.slow

KAFKA = access("kafka")


@pytest.fixture(scope="module")
def owned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Connect string of a cluster whose topics and broker defaults nobody else may read."""
    with secured_zookeeper(tmp_path_factory.mktemp("zookeeper-owned")) as connect:
        zk = KazooClient(connect, **KAFKA.client_options())
        zk.start(20)
        config = json.dumps({"version": 1, "config": {"min.insync.replicas": "2"}})
        topic = json.dumps({"version": 2, "partitions": {"0": [1]}})
        for path, data in ((BROKER_DEFAULTS, config), (f"{TOPICS}/t", topic)):
            zk.ensure_path(path.rpartition("/")[0])
            zk.create(path, data.encode(), acl=CREATOR_ALL_ACL)
        zk.create("/brokers/ids", acl=CREATOR_ALL_ACL)
        zk.stop()
        zk.close()
        yield connect


def read(connect: str, login: ZooKeeperAccess) -> cluster_reader.ClusterState:
    async def look() -> cluster_reader.ClusterState:
        async with cluster_reader.connected(connect, 10_000, access=login) as session:
            return await cluster_reader.look(session, states=False, configs=True)

    return asyncio.run(look())


def test_what_may_not_be_read_is_a_problem_and_not_absent(owned: str) -> None:
    zk = KazooClient(owned, **KAFKA.client_options())
    zk.start(20)
    zk.delete("/brokers/ids")
    try:
        state = read(owned, OPEN_ACCESS)
        assert state.problems.keys() == {BROKER_DEFAULTS, f"{TOPICS}/t"}
        assert (state.topics, state.broker_defaults) == ({}, {})
        state = read(owned, KAFKA)
        assert state.problems == {}
        assert (list(state.topics), state.broker_defaults) == (["t"], {"min.insync.replicas": "2"})
    finally:
        zk.create("/brokers/ids", acl=CREATOR_ALL_ACL)
        zk.stop()
        zk.close()


def run(connect: str, *login: str, **environment: str) -> Result:
    asked = [f"--zookeeper={connect}", "-o", "json", *login, "brokers"]
    return CliRunner(env=environment).invoke(main, asked)


def gone(listed: Result) -> list[int]:
    """The brokers of a list, each of which has replicas and is not registered."""
    rows = json.loads(listed.stdout)
    assert all(row["state"] == ["gone"] for row in rows), rows
    return [row["broker"] for row in rows]


def test_pctl_logs_in(owned: str, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text(USERS["kafka"] + "\n")
    denied = run(owned)
    assert denied.exit_code == 1
    assert "ZooKeeper's ACLs deny access" in denied.output
    variables = {
        "PCTL_ZOOKEEPER_SASL_USERNAME": "kafka",
        "PCTL_ZOOKEEPER_SASL_PASSWORD_FILE": str(password),
    }
    done = run(owned, **variables)
    assert gone(done) == [1]
    assert "secret_readable_by_others" in done.stderr
    password.chmod(0o600)
    options = "--zookeeper-sasl-username=kafka", f"--zookeeper-sasl-password-file={password}"
    assert gone(run(owned, *options)) == [1]
    password.write_text("wrong\n")
    refused = run(owned, **variables)
    assert refused.exit_code == 1
    assert "refused the login of 'kafka'" in refused.output


@pytest.mark.parametrize(
    ("login", "why"),
    [
        (["--zookeeper-sasl-username=kafka"], "zookeeper_sasl_password_file"),
        (
            ["--zookeeper-sasl-username=kafka", "--zookeeper-sasl-password-file=/nowhere"],
            "zookeeper_sasl_password_file",
        ),
    ],
)
def test_a_login_without_a_password_is_a_usage_error(login: list[str], why: str) -> None:
    done = run("127.0.0.1:1", *login)
    assert done.exit_code == 2
    assert why in done.output
