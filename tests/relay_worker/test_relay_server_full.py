"""A relay whose disk is full: it takes no more bodies while there is still room to make room."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import NamedTuple

import pytest

from relay_worker.errors import CannotServeError, RequestRefusedError
from relay_worker.model import NewBody
from relay_worker.store import files, objects, operator
from tests.support.relay_server import DAY, NOW, OpenStore, sealed
from tests.support.small_disk import small_disk

LARGE = 200_000


class Disk(NamedTuple):
    total: int
    used: int
    free: int


def refused(opened: OpenStore, seq: int, size: int = 300) -> str:
    with pytest.raises(RequestRefusedError) as caught:
        opened.put(sealed(seq, size), seq)
    return caught.value.code


def test_bodies_are_refused_while_acknowledging_still_has_room(tmp_path, monkeypatch):
    with OpenStore(tmp_path / "relay") as opened:
        body, large = sealed(1), sealed(2, LARGE)
        opened.put(body)
        opened.put(large, 2)
        monkeypatch.setattr(files.shutil, "disk_usage", lambda _: Disk(1 << 40, 0, files.RESERVE_BYTES - 1))
        assert refused(opened, 3) == "disk-full"
        assert refused(opened, 4, LARGE) == "disk-full"
        digest = hashlib.sha256(b"x").digest()
        new = NewBody("default", b"x", digest, resend=False, now=NOW)
        with pytest.raises(RequestRefusedError, match="disk-full"):
            opened.run(opened.store.put(objects.put, new, bytes(16)))
        assert opened.put(body) == "duplicate"
        assert opened.get() == body
        opened.ack(1)
        opened.run(opened.store.sweep(NOW + 31 * DAY))
        assert (opened.seqs(), opened.files(), opened.state().expired_upto) == ([], [], 2)
        monkeypatch.setattr(files.shutil, "disk_usage", lambda _: Disk(1 << 20, 0, 1 << 19))
        assert opened.put(sealed(3), 3) == "created", "of a small disk half is kept"


@pytest.fixture
def tiny_disk(tmp_path: Path):
    with small_disk(tmp_path, "64m") as disk:
        yield disk


def fill(opened: OpenStore, size: int) -> int:
    """Put until the disk is full; the seq that found no place."""
    seq = opened.state().head
    with contextlib.suppress(RequestRefusedError):
        while seq := seq + 1:
            opened.put(sealed(seq, size), seq)
    assert refused(opened, seq, size) == "disk-full"
    return seq


@pytest.mark.slow
@pytest.mark.parametrize("size", [120_000, LARGE])
def test_a_full_disk_becomes_free_by_reading_it(tiny_disk, size):
    with OpenStore(tiny_disk / "relay") as opened:
        for _ in range(2):
            first = opened.state().head + 1
            last = fill(opened, size)
            assert last > first + 10
            opened.ack(last)
            assert opened.put(sealed(last, size), last) == "created"
            opened.ack(last)


@pytest.mark.slow
def test_a_backup_for_which_there_is_no_room_says_so_and_leaves_nothing(tiny_disk, tmp_path):
    with OpenStore(tmp_path / "relay") as opened:
        for seq in range(1, 550):
            opened.put(sealed(seq, 130_000), seq)
        with pytest.raises(CannotServeError, match="disk is full"):
            operator.back_up(tmp_path / "relay", tiny_disk / "backup")
    assert list(tiny_disk.iterdir()) == []


@pytest.mark.slow
def test_what_is_backed_up_is_closed_to_others(tmp_path):
    with OpenStore(tmp_path / "relay") as opened:
        opened.put(sealed(1, LARGE))
        operator.back_up(tmp_path / "relay", tmp_path / "backup")
    copied = [tmp_path / "backup", *(tmp_path / "backup").rglob("*")]
    assert any(path.is_file() and path.stat().st_size == LARGE for path in copied)
    assert not [path for path in copied if path.stat().st_mode & 0o077]
