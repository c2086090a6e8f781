"""The relay's store, where HTTP does not show it: files, counts, commits. The rest is in tests/relay_conformance."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from dataclasses import replace
from pathlib import Path

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_worker.errors import RequestRefusedError
from relay_worker.model import NewBody
from relay_worker.settings import Settings
from relay_worker.store import accounts, blobs, database, files
from tests.support.examples import examples
from tests.support.relay_server import DAY, NOW, STREAM, OpenStore, sealed

LARGE = 200_000


@pytest.fixture
def opened(tmp_path):
    with OpenStore(tmp_path / "relay") as found:
        yield found


def code_of(caught) -> str:
    return caught.value.code


# -- putting and reading


@pytest.mark.parametrize("size", [300, LARGE])
def test_another_blob_of_the_same_seq_changes_nothing(opened, size):
    body = sealed(1, size)
    opened.put(body)
    before = opened.files()
    for other in (sealed(1, size), sealed(1, size, tag=body[-32:])):
        with pytest.raises(RequestRefusedError) as caught:
            opened.put(other)
        assert code_of(caught) == "blob-conflict"
    with pytest.raises(RequestRefusedError):
        opened.put(sealed(1, size), resend=True)
    assert opened.get() == body
    assert opened.files() == before


@pytest.mark.slow
def test_a_lost_or_shortened_file_is_said_to_be_lost_and_can_be_sent_again(opened):
    body = sealed(1, LARGE)
    for harm in (Path.unlink, lambda path: os.truncate(path, 1000)):
        opened.put(body, resend=True)
        harm(opened.files()[0])
        with pytest.raises(RequestRefusedError) as caught:
            opened.get()
        assert code_of(caught) == "body-lost"
    assert opened.put(body, resend=True) == "created"
    assert opened.get() == body


def test_limits_refuse_before_anything_is_changed(tmp_path):
    limits = Settings(max_blobs=2, max_streams=2, quota_bytes=LARGE + 1000)
    with OpenStore(tmp_path / "r", limits) as opened:
        opened.put(sealed(1), 1)
        opened.put(sealed(2), 2)
        refused = []
        for seq, size, stream in ((3, 300, STREAM), (1, LARGE + 401, b"b" * 16), (1, LARGE + 500, b"b" * 16)):
            with pytest.raises(RequestRefusedError) as caught:
                opened.put(sealed(seq, size, stream=stream), seq, stream=stream)
            refused.append(code_of(caught))
        opened.put(sealed(1, stream=b"b" * 16), stream=b"b" * 16)
        with pytest.raises(RequestRefusedError) as caught:
            opened.put(sealed(1, stream=b"c" * 16), stream=b"c" * 16)
        assert [*refused, code_of(caught)] == ["stream-full", "account-full", "account-full", "too-many-streams"]
        assert not opened.files()
        assert opened.store.usage().bytes == 900
        opened.ack(2)
        assert opened.put(sealed(3), 3) == "created"


@pytest.mark.slow
@examples(12)
@given(st.lists(st.tuples(st.sampled_from(["put", "resend", "ack", "sweep"]), st.integers(1, 4)), max_size=25))
def test_counts_and_bytes_are_those_of_what_is_stored(tmp_path_factory, steps):
    with OpenStore(tmp_path_factory.mktemp("r") / "r") as opened:
        bodies = {seq: sealed(seq, 300 if seq < 3 else LARGE) for seq in range(1, 5)}
        now = NOW
        for verb, seq in steps:
            now += DAY
            if verb == "ack":
                opened.ack(seq)
            elif verb == "sweep":
                opened.run(opened.store.sweep(now + seq * 5 * DAY))
            else:
                opened.put(bodies[seq], seq, resend=verb == "resend", now=now)
        stored = opened.seqs()
        state = opened.state()
        held = sum(len(bodies[seq]) for seq in stored)
        usage = opened.store.usage()
        assert (state.count, state.bytes, usage.bytes) == (len(stored), held, held)
        assert all(opened.get(seq) == bodies[seq] for seq in stored)
        assert len(opened.files()) == len([seq for seq in stored if seq >= 3])


# -- many at once


@pytest.fixture(params=["sqlite", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("postgres", "bucket"))])
def either(request, tmp_path):
    """A store of each kind, with room for 20 blobs in a stream."""
    url = bodies = ""
    if request.param != "sqlite":
        url = request.getfixturevalue("postgres").database(secrets.token_hex(8))
    if request.param == "bucket":
        bodies = request.getfixturevalue("s3").address()
    with OpenStore(tmp_path / "relay", Settings(store=url, bodies=bodies, max_blobs=20)) as found:
        yield found


def test_at_once_no_more_is_stored_than_a_stream_may_hold(either):
    async def race() -> list[str]:
        done = await asyncio.gather(*(either.putting(sealed(n), n) for n in range(1, 61)), return_exceptions=True)
        return sorted(one.code if isinstance(one, RequestRefusedError) else str(one) for one in done)

    assert either.run(race()) == ["created"] * 20 + ["stream-full"] * 40
    assert either.state().count == 20


def test_at_once_no_more_is_stored_than_an_account_may_hold(either):
    async def race() -> list[str]:
        bodies = [sealed(n, 300 if n % 3 else 400) for n in range(1, 41)]
        done = await asyncio.gather(
            *(either.putting(body, 1, stream=bytes([n]) * 16) for n, body in enumerate(bodies)), return_exceptions=True
        )
        return sorted(one.code if isinstance(one, RequestRefusedError) else str(one) for one in done)

    either.store.settings = replace(either.store.settings, quota_bytes=5_000)
    answers = either.run(race())
    assert set(answers) == {"created", "account-full"}
    assert 4_600 < either.store.usage().bytes <= 5_000


def test_of_two_blobs_for_one_place_one_wins_and_the_other_hears_of_it(either):
    async def race() -> list[str]:
        bodies = [sealed(seq // 2, LARGE if seq % 8 == 0 else 300) for seq in range(2, 42)]
        pairs = [either.putting(body, number // 2 + 1) for number, body in enumerate(bodies)]
        done = await asyncio.gather(*pairs, return_exceptions=True)
        return sorted("conflict" if isinstance(one, RequestRefusedError) else str(one) for one in done)

    assert either.run(race()) == ["conflict"] * 20 + ["created"] * 20
    assert either.state().count == 20


def test_requests_share_a_commit_and_each_is_answered_after_it(opened):
    async def many() -> None:
        await asyncio.gather(*(opened.putting(sealed(seq), seq) for seq in range(1, 201)))

    opened.batches.clear()
    opened.run(many())
    assert sum(opened.batches) == 200
    assert len(opened.batches) < 100
    fresh = apsw.Connection(str(opened.folder / "relay.db"))
    assert fresh.execute("SELECT count(*) FROM blobs").get == 200
    fresh.close()


def test_one_failing_job_fails_alone(opened):
    async def mixed() -> list[object]:
        def broken(batch):
            raise ZeroDivisionError

        def sql(batch):
            batch.db.execute("INSERT INTO nowhere VALUES (1)")

        good = [opened.putting(sealed(seq), seq) for seq in range(1, 4)]
        writer = opened.store._writer
        return await asyncio.gather(*good, writer.run(broken), writer.run(sql), return_exceptions=True)

    done = opened.run(mixed())
    assert done[:3] == ["created"] * 3
    assert isinstance(done[3], ZeroDivisionError)
    assert isinstance(done[4], RequestRefusedError)
    assert done[4].code == "unavailable"
    assert opened.seqs() == [1, 2, 3]


def test_a_full_disk_is_told_as_such_and_nothing_is_left(opened, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(files.os, "fsync", full)
        with pytest.raises(RequestRefusedError) as caught:
            opened.put(sealed(1, LARGE))
    assert code_of(caught) == "disk-full"
    assert not opened.files()
    assert database.refusal_of(apsw.FullError("disk full")).code == "disk-full"
    assert opened.put(sealed(1, LARGE)) == "created"


@pytest.mark.slow
def test_a_cancelled_request_leaves_either_all_or_nothing(opened):
    async def cancelled() -> None:
        for delay in (0.0, 0.001, 0.003, 0.006, 0.01, 0.02):
            seq = int(delay * 1000) + 1
            task = asyncio.ensure_future(opened.putting(sealed(seq, 1_000_000), seq))
            await asyncio.sleep(delay)
            task.cancel()
            await asyncio.wait([task])

    opened.run(cancelled())
    opened.store.close()
    with OpenStore(opened.folder) as again:
        stored = again.seqs()
        assert len(again.files()) == len(stored)
        for seq in stored:
            assert len(again.get(seq)) == 1_000_000


def test_a_statement_is_planned_once_whatever_its_values(opened):
    planned: list[str | None] = []

    def note(_: int, table: str | None, *__: object) -> int:
        planned.append(table)
        return apsw.SQLITE_OK

    with contextlib.closing(database.connect(opened.folder / "relay.db")) as db:
        db.authorizer = note
        rows, counts = database.SqliteRows(db), set[int]()
        for number in range(3):
            accounts.find(rows, str(number))
            _, values = next(blobs.put(rows, NewBody(str(number), b"", b"", False, NOW), STREAM, number, b""))
            rows.one(blobs._KNOWN, *values)
            counts.add(len(planned))
    assert counts == {len(planned)} != {0}
