"""What the product keeps for sharing must not keep ``steps.Id``: equal tuples of later tests would become it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from controller.core.model import broker_ids
from controller.runtime.zookeeper import codecs


@pytest.fixture(autouse=True)
def nothing_shared_stays() -> Iterator[None]:
    yield
    broker_ids._interned.clear()
    codecs._distinct_known.clear()
    for name, module in list(sys.modules.items()):
        if name.startswith("controller."):
            for value in vars(module).values():
                if callable(clear := getattr(value, "cache_clear", None)):
                    clear()
