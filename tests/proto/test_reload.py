"""The registry of what SIGHUP reads again."""

from __future__ import annotations

from proto.reload import Reloads


def test_each_part_is_called_in_order_also_after_one_that_raised() -> None:
    reloads, called = Reloads(), []

    def fails() -> None:
        called.append("b")
        raise ValueError("no certificate")

    reloads.on_reload("a", lambda: called.append("a"))
    reloads.on_reload("b", fails)
    reloads.on_reload("c", lambda: called.append("c"))
    outcome = reloads.reload()
    assert called == ["a", "b", "c"]
    assert [(name, error and str(error)) for name, error in outcome] == [
        ("a", None),
        ("b", "no certificate"),
        ("c", None),
    ]


def test_a_later_part_of_a_name_replaces_the_earlier() -> None:
    reloads, called = Reloads(), []
    reloads.on_reload("a", lambda: called.append("first"))
    reloads.on_reload("a", lambda: called.append("second"))
    reloads.reload()
    assert called == ["second"]
