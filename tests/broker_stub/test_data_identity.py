"""Which id a data directory has for the next process: only what cannot have lost anything keeps its own."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker_stub import data_identity
from broker_stub.data_identity import (
    BOOT_ID,
    CLEAN_SHUTDOWN,
    NO_EPOCH,
    begin,
    kept_all,
    of_broker,
    short_id,
    started,
    stopped_cleanly,
)
from controller.core.model.broker_ids import of_several
from controller.runtime.zookeeper import codecs

ID = "AAAAAAAAAAAAAAAAAAAAAA"


@pytest.fixture(autouse=True)
def boot_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The machine's, which changes when it starts."""
    file = tmp_path / "boot_id"
    file.write_text("first\n")
    monkeypatch.setattr(data_identity, "_BOOT_ID_FILE", file)
    return file


@pytest.mark.parametrize(
    ("clean", "synced", "boot_before", "boot_now", "kept"),
    [
        (True, False, "1", "2", True),
        (False, True, "1", "2", True),
        (False, False, "1", "1", True),
        (False, False, "1", "2", False),
        (False, False, "", "1", False),
        (False, False, "", "", False),
    ],
)
def test_what_may_be_gone(clean: bool, synced: bool, boot_before: str, boot_now: str, kept: bool) -> None:
    assert kept_all(clean=clean, synced=synced, boot_before=boot_before, boot_now=boot_now) == kept


@pytest.mark.parametrize("synced", [False, True])
@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("rebooted", [False, True])
def test_the_id_of_the_next_process(
    synced: bool, clean: bool, rebooted: bool, tmp_path: Path, boot_id: Path
) -> None:
    first = begin(tmp_path, None)
    assert (len(first.directory_id), first.previous_broker_epoch) == (22, NO_EPOCH)
    started(tmp_path, synced=synced)
    if clean:
        stopped_cleanly(tmp_path, 7)
    if rebooted:
        boot_id.write_text("second\n")
    again = begin(tmp_path, ID)
    assert (again.directory_id == ID) == (synced or clean or not rebooted)
    assert again.previous_broker_epoch == (7 if clean else NO_EPOCH)
    started(tmp_path, synced=False)
    assert begin(tmp_path, ID).previous_broker_epoch == NO_EPOCH, "a mark counts once"


def test_the_mark_of_a_clean_shutdown_is_kafka_s(tmp_path: Path) -> None:
    stopped_cleanly(tmp_path, 7)
    assert (tmp_path / CLEAN_SHUTDOWN).read_bytes() == b'{"version":0,"brokerEpoch":7}'


def test_a_broken_boot_id_is_another_one(tmp_path: Path) -> None:
    started(tmp_path, synced=False)
    (tmp_path / BOOT_ID).write_bytes(b"\xff")
    assert begin(tmp_path, ID).directory_id != ID


def test_a_directory_without_an_id_gets_one_whatever_happened(tmp_path: Path) -> None:
    started(tmp_path, synced=True)
    assert len(begin(tmp_path, None).directory_id) == 22


@pytest.mark.parametrize("content", ["", "{", "[]", '{"brokerEpoch": "7"}', "\xff"])
def test_a_broken_mark_is_none(content: str, tmp_path: Path, boot_id: Path) -> None:
    started(tmp_path, synced=False)
    (tmp_path / CLEAN_SHUTDOWN).write_bytes(content.encode("latin-1"))
    boot_id.write_text("second\n")
    found = begin(tmp_path, ID)
    assert found.directory_id != ID
    assert found.previous_broker_epoch == NO_EPOCH


# --- as the controller names them ---------------------------------------------------------------------------------


@given(st.binary(min_size=16, max_size=16))
@example(b"\0\0\0\0\xff" + bytes(11))
def test_a_directory_has_the_same_short_id_on_both_sides(whole: bytes) -> None:
    directory_id = urlsafe_b64encode(whole).rstrip(b"=").decode()
    registration = {"version": 5, "host": "h", "port": 9, "directories": [directory_id]}
    found = codecs.decode_broker("/brokers/ids/1", json.dumps(registration).encode(), 1)
    assert (short_id(directory_id),) == found.directories


@given(st.sets(st.integers(1, 2**32 - 1), max_size=4))
@example({1, 2})
@example({2**32 - 1, 1, 256})
def test_several_directories_have_the_same_name_on_both_sides(directories: set[int]) -> None:
    assert of_broker(directories) == of_several(tuple(directories))
