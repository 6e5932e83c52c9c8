"""A command of pctl in this process: what it reads of a cluster, and what a controller answers, are given."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from controller.cli.common import progress
from controller.cli.common.options import Options
from controller.cli.pctl.main import main
from controller.client import admin
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.cluster_reader import ClusterState


class Asked:
    """``looks``: what each look at ZooKeeper finds; the last one also every further one. ``answers``: by method, an
    answer, an error to be raised, or a function of the request. ``requests``: what was asked for, in order."""

    def __init__(self, *looks: ClusterState, **answers: Any) -> None:
        self.looks, self.answers = list(looks), answers
        self.requests: list[tuple[str, Any]] = []
        self.endpoints: list[str] = []

    @property
    def methods(self) -> list[str]:
        return [method for method, _ in self.requests]

    def of(self, method: str) -> list[Any]:
        return [request for asked, request in self.requests if asked == method]

    def _answer(self, method: str, request: Any) -> Any:
        self.requests.append((method, request))
        answer = self.answers[method]
        answer = answer(request) if callable(answer) else answer
        if isinstance(answer, Exception):
            raise answer
        return answer

    def install(self, monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> Asked:
        """In place of the controller, for what these modules ask, and of ZooKeeper."""

        async def ask(_options: Any, _session: Any, method: str, request: Any) -> Any:
            return self._answer(method, request)

        async def ask_at(endpoint: str, method: str, request: Any, *_: Any) -> Any:
            self.endpoints.append(endpoint)
            return self._answer(method, request)

        async def look(_: Any, **asked: Any) -> ClusterState:
            return _seen(self.looks.pop(0) if len(self.looks) > 1 else self.looks[0], **asked)

        @asynccontextmanager
        async def connected(_: Options) -> AsyncIterator[Any]:
            yield SimpleNamespace(over=False)

        for module in modules:
            monkeypatch.setattr(module, "ask", ask)
        monkeypatch.setattr(admin, "ask", ask_at)
        monkeypatch.setattr(cluster_reader, "look", look)
        monkeypatch.setattr(Options, "connected", connected)
        return self


def _seen(
    there: ClusterState, *, topics: Sequence[str] | None = None, states: bool = True, configs: bool = False
) -> ClusterState:
    """What `cluster_reader.look` tells of it to who asks so."""
    named = {*there.topics, *there.configs, *(p.topic for p in there.partitions)}
    wanted = named if topics is None else named.intersection(topics)
    return replace(
        there,
        topics={name: info for name, info in there.topics.items() if name in wanted},
        partitions=[p for p in there.partitions if states and p.topic in wanted],
        configs={name: there.configs[name] for name in wanted & there.configs.keys()} if configs else {},
        broker_defaults=there.broker_defaults if configs else {},
    )


def typed(command: str, style: str = "json") -> Result:
    """What ``pctl -o json`` makes of it."""
    return CliRunner().invoke(main, ["-o", style, *shlex.split(command)], catch_exceptions=False)


def in_vain(monkeypatch: pytest.MonkeyPatch, waiting: ModuleType = progress) -> None:
    """Whoever waits there looks at the clock a few times, and then his time is over."""
    now_s = count()
    monkeypatch.setattr(waiting, "time", SimpleNamespace(monotonic=lambda: next(now_s)))
    monkeypatch.setattr(waiting, "POLL_EVERY_S", 0)


def refused(method: str, error: str, message: str = "") -> admin.RefusedError:
    return admin.RefusedError("c:1", method, error, message)
