"""Members as they are stored and restored."""

from __future__ import annotations

from broker_stub.group.members import JoinRequest, Member

REQUEST = JoinRequest("m", "c", 10, 20, "consumer", (("range", b"1"), ("sticky", b"2")))


def test_a_member_from_the_log_is_as_it_was_and_knows_its_id() -> None:
    member = Member("m", REQUEST)
    restored = Member.restore(member.stored(b"assigned"))
    assert restored.stored(b"assigned") == member.stored(b"assigned")
    assert (restored.assignment, restored.session_deadline_ms) == (b"assigned", None)
    restored.restart_session(100)
    restored.join_token = object()
    assert restored.expires_at_ms() is None, (
        "it can send heartbeats, so a waiting request suspends its session"
    )
    member.restart_session(100)
    member.join_token = object()
    assert member.expires_at_ms() == 110
