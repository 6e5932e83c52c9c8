"""The lease rule, in numbers."""

from __future__ import annotations

import pytest

from controller.runtime import lease


def test_the_lease_ends_two_thirds_of_a_timeout_after_the_request() -> None:
    assert lease.remaining_s(100.0, 18_000, 100.0) == pytest.approx(12.0)
    assert lease.remaining_s(100.0, 18_000, 111.0) == pytest.approx(1.0)
    assert lease.remaining_s(100.0, 18_000, 113.0) == pytest.approx(-1.0)


@pytest.mark.parametrize(
    ("remaining", "timeout_s", "pause_s"),
    [(12.0, 12.0, 2.25), (2.0, 2.0, 2.0), (0.0005, 0.001, 0.001), (-1.0, 0.001, 0.001)],
)
def test_a_sync_takes_the_rest_of_the_lease_and_no_pause_goes_beyond_it(
    remaining: float, timeout_s: float, pause_s: float
) -> None:
    assert lease.renewal_timeout_s(remaining) == timeout_s
    assert lease.renewal_pause_s(18_000, remaining) == pause_s


def test_pauses_between_sessions_double_up_to_the_greatest() -> None:
    pauses = [lease.SESSION_RETRY_FIRST_S]
    while pauses[-1] < lease.SESSION_RETRY_MAX_S:
        pauses.append(lease.session_retry_s(pauses[-1]))
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0])
    assert lease.session_retry_s(pauses[-1]) == pauses[-1]


def test_giving_up_takes_no_longer_than_an_expiry() -> None:
    assert lease.resign_timeout_s(18_000) == 18.0
