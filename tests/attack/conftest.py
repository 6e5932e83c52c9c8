"""Replayed attacks on real processes: whoever can reach a port, or has the same settings as one of ours."""

from __future__ import annotations

from tests.integration.conftest import session, start_cluster

__all__ = ["session", "start_cluster"]
