"""When ``/controller`` may be claimed over (controller/runtime/election/takeover.py): a pure matter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.errors import MalformedError
from controller.runtime.config import Takeover
from controller.runtime.election import takeover
from controller.runtime.election.takeover import Held, Verdict, claim_due_s, held_by, verdict
from controller.runtime.zookeeper import codecs

MAIN, OTHER, LATER = 0x10, 0x20, 0x30
NOW = 1000.0


@pytest.mark.parametrize(
    ("endpoint", "session", "kraft", "registered", "held"),
    [
        ("", 0, -1, 0, Held.BROKER),
        # A broker may have an id that one of ours has, too.
        ("", 0, -1, OTHER, Held.BROKER),
        ("", 0, 0, 0, Held.KRAFT),
        ("h:1", OTHER, 7, OTHER, Held.KRAFT),
        ("h:1", MAIN, -1, MAIN, Held.THIS_SESSION),
        ("h:1", OTHER, -1, OTHER, Held.ALIVE),
        ("h:1", OTHER, -1, 0, Held.GONE),
        # It is back with another session: its term is over.
        ("h:1", OTHER, -1, LATER, Held.GONE),
        # An earlier process of our id.
        ("h:1", OTHER, -1, MAIN, Held.GONE),
        # One with kafka_takeover = off records no session.
        ("h:1", 0, -1, OTHER, Held.ALIVE),
        ("h:1", 0, -1, 0, Held.GONE),
        ("h:1", 0, -1, MAIN, Held.GONE),
    ],
)
def test_who_holds_it(endpoint: str, session: int, kraft: int, registered: int, held: Held) -> None:
    assert held_by(endpoint, session, kraft, registered, MAIN) is held


@pytest.mark.parametrize("resigned", [False, True])
@pytest.mark.parametrize("held", Held)
def test_what_may_be_claimed_over(held: Held, resigned: bool) -> None:
    claimed = held in (Held.NOBODY, Held.THIS_SESSION, Held.GONE, Held.BROKER) and not resigned
    assert verdict(held, resigned, [], NOW) == Verdict(claimed)


def test_only_brokers_get_time() -> None:
    for held in (Held.NOBODY, Held.THIS_SESSION, Held.GONE):
        assert verdict(held, False, [NOW], NOW).claim
    assert verdict(Held.BROKER, False, [NOW], NOW) == Verdict(False, NOW + takeover.CLAIM_AGAIN_FIRST_S)
    assert verdict(Held.BROKER, False, [NOW], NOW + takeover.CLAIM_AGAIN_FIRST_S).claim


def test_each_claim_over_a_broker_waits_twice_as_long_up_to_a_limit() -> None:
    claims: list[float] = []
    pauses = []
    for _ in range(12):
        now_s = max(claim_due_s(claims), NOW)
        pauses.append(now_s - claims[-1] if claims else 0)
        claims.append(now_s)
    assert pauses[:6] == [0, 5, 10, 20, 40, 80]
    assert pauses[-1] == 300


def test_a_long_term_ends_the_count() -> None:
    burst = [NOW, NOW + 5, NOW + 15]
    assert claim_due_s(burst) == NOW + 15 + 20
    assert claim_due_s([*burst, NOW + 15 + 599]) == NOW + 15 + 599 + 40
    assert claim_due_s([*burst, NOW + 15 + 600]) == NOW + 15 + 600 + 5


@given(st.lists(st.floats(0, 1e6), min_size=1).map(sorted))
def test_a_pause_is_never_without_bounds(claims: list[float]) -> None:
    pause_s = claim_due_s(claims) - claims[-1]
    assert takeover.CLAIM_AGAIN_FIRST_S - 1e-6 <= pause_s <= takeover.CLAIM_AGAIN_MAX_S + 1e-6
    # A long term is longer than any pause: after it, nobody waits.
    assert takeover.CLAIM_AGAIN_MAX_S < takeover.STEADY_S


def test_the_holder_session_leaves_a_standby_time() -> None:
    assert takeover.outlives(18_000, takeover.main_timeout_ms(Takeover.FALLBACK, 18_000))
    for mode in (Takeover.OFF, Takeover.EXCLUSIVE):
        assert takeover.main_timeout_ms(mode, 18_000) == 18_000


@pytest.mark.parametrize(
    ("asked_ms", "long_enough"),
    [(4999, False), (5000, True), (18_000, True), (64_000, True), (64_002, False)],
)
def test_with_zookeeper_s_bounds_the_sessions_are_far_enough_apart_from_5_to_64_s(
    asked_ms: int, long_enough: bool
) -> None:
    """docs/kafka.md. A standby claims after half of the timeout."""
    main_ms = takeover.main_timeout_ms(Takeover.FALLBACK, asked_ms)
    assert main_ms == asked_ms // 2
    holder, main = (min(max(ms, 4000), 40_000) for ms in (asked_ms, main_ms))
    assert takeover.outlives(holder, main) is long_enough


@pytest.mark.parametrize(("holder_ms", "waits_s"), [(1000, 0.5), (6000, 3.0), (10_000, 5.0), (40_000, 5.0)])
def test_a_leader_that_stops_waits_for_half_of_its_holder_session(holder_ms: int, waits_s: float) -> None:
    assert takeover.hand_over_s(holder_ms) == waits_s


def test_the_claim_reads_back() -> None:
    data = codecs.encode_controller(9001, "h:1", 0xABC)
    assert codecs.decode_claim(data) == (9001, "h:1", 0xABC, -1)
    assert codecs.decode_controller(data) == (9001, "h:1")
    assert b"session" not in codecs.encode_controller(9001, "h:1")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b'{"brokerid":1,"session":"12"}',
        b'{"brokerid":1,"session":"0x11111111111111111"}',
        b'{"brokerid":1,"kraftControllerEpoch":"x"}',
        b'{"brokerid":1,"kraftControllerEpoch":4294967296}',
    ],
)
def test_a_claim_that_cannot_be_read(data: bytes) -> None:
    with pytest.raises(MalformedError, match="/controller"):
        codecs.decode_claim(data)


def test_what_to_change_depends_on_which_of_zookeeper_s_bounds_holds() -> None:
    # The servers' bounds on what is asked for: 18 s and half of it, 90 s and half of it.
    for asked, low, high, named in (
        (18_000, 20_000, 40_000, "minSession"),
        (90_000, 4000, 40_000, "maxSession"),
    ):
        holder, main = (min(max(ms, low), high) for ms in (asked, asked // 2))
        assert not takeover.outlives(holder, main)
        assert named in takeover.remedy(holder, asked)
