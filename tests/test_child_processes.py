"""Whether a process is there."""

from __future__ import annotations

import os
import subprocess

import pytest

from controller.child_processes import is_running


def test_who_has_ended_does_not_run() -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    assert (is_running(os.getpid()), is_running(ended.pid)) == (True, False)


def test_who_may_not_be_signalled_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_pid: int, number: int) -> None:
        assert number == 0
        raise PermissionError

    monkeypatch.setattr(os, "kill", refused)
    assert is_running(1)
