"""This controller's registration for brokers that look for it there, on a real ZooKeeper."""

from __future__ import annotations

import json
from typing import cast

from kazoo.client import KazooClient

from controller.core.model import Endpoint
from controller.runtime.kafka.own_registration import OwnRegistration, withdraw
from controller.runtime.zookeeper import cluster_reader, jute
from controller.runtime.zookeeper.session import Session
from tests.support.runtime.sessions import opened

PATH = "/brokers/ids/9001"
NODE_EXISTS = -110
ENDPOINT = Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9192)
BROKERS = b'{"version":4,"endpoints":["PLAINTEXT://h:1"],"host":"h","port":1}'


async def test_it_is_there_while_it_is_wanted_and_is_no_broker(zookeeper: str, zk: KazooClient) -> None:
    zk.create("/controller_epoch", b"1")
    zk.ensure_path("/brokers/ids")
    async with opened(zookeeper) as (session, _):
        own = OwnRegistration(session, 9001, 0)
        await own.update([], None)
        assert not zk.exists(PATH)
        await own.update([ENDPOINT], "r1")
        data, stat = zk.get(PATH)
        assert json.loads(data)["endpoints"] == ["PLAINTEXT://127.0.0.1:9192"]
        assert stat.ephemeralOwner
        assert (await cluster_reader.look(session)).brokers == {}
        await own.update([ENDPOINT], "r1")
        assert zk.get(PATH)[1].czxid == stat.czxid
        await own.update([ENDPOINT], None)
        assert "rack" not in json.loads(zk.get(PATH)[0])
        await own.update([], None)
        assert not zk.exists(PATH)


async def test_a_replaced_controller_does_not_register(zookeeper: str, zk: KazooClient) -> None:
    zk.create("/controller_epoch", b"1")
    zk.ensure_path("/brokers/ids")
    async with opened(zookeeper) as (session, _):
        zk.set("/controller_epoch", b"2")
        await OwnRegistration(session, 9001, 0).update([ENDPOINT], None)
        assert not zk.exists(PATH)


async def test_an_earlier_sessions_registration_goes_and_a_brokers_stays(
    zookeeper: str, zk: KazooClient
) -> None:
    zk.create("/controller_epoch", b"1")
    zk.ensure_path("/brokers/ids")
    async with opened(zookeeper) as (session, _), opened(zookeeper) as (earlier, _):
        await OwnRegistration(earlier, 9001, 0).update([ENDPOINT], None)
        await withdraw(session, 9001)
        assert not zk.exists(PATH)
        await withdraw(session, 9001)
        zk.create(PATH, BROKERS)
        await withdraw(session, 9001)
        assert zk.get(PATH)[0] == BROKERS


class Refusing:
    """A session whose changes are refused."""

    def __init__(self) -> None:
        self.attempts = 0

    async def exists(self, path: str) -> None:
        del path

    def packed_path(self, path: str) -> bytes:
        return path.encode()

    def op_create_ephemeral(self, path: str, data: bytes) -> bytes:
        return path.encode() + data

    async def multi(self, operations: list[bytes]) -> None:
        self.attempts += 1
        raise jute.MultiError([0] * (len(operations) - 1) + [NODE_EXISTS])


async def test_a_registration_that_was_refused_is_tried_again() -> None:
    session = Refusing()
    own = OwnRegistration(cast("Session", session), 9001, 0)
    for attempts in (1, 2):
        await own.update([ENDPOINT], None)
        assert session.attempts == attempts
