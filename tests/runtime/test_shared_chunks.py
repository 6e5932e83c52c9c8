"""How much of what is encoded for all brokers is kept."""

from __future__ import annotations

import pytest

from controller.runtime import shared_chunks
from controller.runtime.shared_chunks import SharedChunks


def test_what_is_forgotten_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_chunks, "BYTES_MAX", 10)
    kept = SharedChunks[int, str]()
    for _ in range(2):
        kept.keep(1, "five bytes", 5)
        kept.keep(2, "five more", 5)
        assert [kept.get(1), kept.get(2)] == ["five bytes", "five more"]
        kept.clear()
        assert [kept.get(1), kept.get(2)] == [None, None]
    kept.keep(3, "too large", 50)
    assert kept.get(3) == "too large"
    kept.keep(4, "small", 1)
    assert [kept.get(3), kept.get(4)] == [None, "small"]
