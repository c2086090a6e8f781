"""What is forgotten is gone from every file, and nothing else is."""

from __future__ import annotations

import errno
import time
import uuid
from pathlib import Path

import pytest

from crystal.app.forget import execute_and_prove, finish_left, plan_forget
from crystal.app.integrity import prove, repair_all
from crystal.errors import NotFoundError, UsageError
from crystal.forgetting.request import ForgetRequest, Forgotten
from tests.support.forgetting_machine import NOW, Desk, said
from tests.support.table import each_row

pytestmark = pytest.mark.slow

SECRET = "the quokka sleeps under the zanzibar bridge at seven"
S1, S2 = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    desk.meet()
    return desk


def proved(desk: Desk) -> float:
    with desk.open() as machine:
        proof = prove(machine, lambda _: None)
    assert not proof.damaged, proof.faults
    return proof.percent


def assert_left(desk: Desk, done: Forgotten, *texts: str) -> None:
    assert done.is_done, done.pending
    assert desk.holding("quokka") == []
    assert desk.texts() == list(texts)
    assert proved(desk) == 100.0


def test_one_message_is_gone_from_every_file_and_its_neighbours_stay(desk: Desk) -> None:
    before, after = said("what stands before it stays"), said("what stands after it stays", role="assistant")
    note = b'{"type":"last-prompt","lastPrompt":"the quokka sleeps under the zanzi","sessionId":"%s"}\n' % S1.encode()
    desk.say(S1, before, said(SECRET, ident="8e8d3d0e-aaaa-4aaa-8aaa-000000000001"), note, after)
    desk.capture()
    assert desk.holding("quokka")
    done = desk.forget(query="quokka")
    assert done.is_done, done.pending
    assert done.lines == 1
    assert desk.holding("quokka", "zanzibar") == []
    assert desk.texts() == ["what stands after it stays", "what stands before it stays"]
    archived = dict(desk.files())
    kept = next(data for name, data in archived.items() if name.endswith("decompressed"))
    assert before in kept
    assert after in kept
    assert proved(desk) == 100.0


def linked_archive(desk: Desk) -> tuple[Path, Path]:
    """The archive, which a person moved to another disk, and the place there."""
    archived = next(desk.ldm.rglob("*.zst"))
    moved = desk.home.parent / "moved.zst"
    archived.rename(moved)
    archived.symlink_to(moved)
    return archived, moved


def test_of_an_archive_that_became_a_link_nothing_stays_where_the_link_leads_to(desk: Desk) -> None:
    desk.say(S1, said("what stands before it stays"), said(SECRET))
    desk.capture()
    archived, moved = linked_archive(desk)
    assert_left(desk, desk.forget(query="quokka"), "what stands before it stays")
    assert not moved.exists()
    assert not archived.is_symlink()


def test_a_moved_archive_that_cannot_be_deleted_is_named_until_it_is_gone(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.say(S1, said("what stands before it stays"), said(SECRET))
    desk.capture()
    archived, moved = linked_archive(desk)
    unlink = Path.unlink

    def refusing(path: Path, *, missing_ok: bool = False) -> None:
        if path == moved:
            raise PermissionError(errno.EACCES, "Permission denied")
        unlink(path, missing_ok=missing_ok)

    with monkeypatch.context() as patch, desk.open() as machine:
        patch.setattr(Path, "unlink", refusing)
        done, proof = execute_and_prove(machine, plan_forget(machine, ForgetRequest(query="quokka")))
    assert not done.is_done
    assert any(str(moved) in reason for reason in done.pending), done.pending
    assert not proof.proved
    assert archived.is_symlink()
    with desk.open() as machine:
        assert finish_left(machine) == 0
    assert not moved.exists()
    assert desk.holding("quokka") == []


def test_a_moved_archive_that_is_not_there_is_no_proof(desk: Desk) -> None:
    """Its disk is not mounted: what it has comes back with it."""
    desk.say(S1, said("what stands before it stays"), said(SECRET))
    desk.capture()
    archived, moved = linked_archive(desk)
    away = moved.rename(moved.with_name("away"))
    with desk.open() as machine:
        _, proof = execute_and_prove(machine, plan_forget(machine, ForgetRequest(query="quokka")))
    assert not proof.proved
    assert [(one.file, str(moved) in one.why) for one in proof.unread] == [
        (archived.relative_to(desk.ldm).as_posix(), True)
    ]
    assert away.exists()


def test_a_file_of_somebody_else_that_a_link_leads_to_stays(desk: Desk) -> None:
    desk.say(S1, said("what stands before it stays"), said(SECRET))
    desk.capture()
    archived, moved = linked_archive(desk)
    moved.write_bytes(b"a file of another program")
    assert desk.forget(query="quokka").is_done
    assert archived.read_bytes() == moved.read_bytes() == b"a file of another program"


def test_an_equal_archive_of_another_session_that_a_link_leads_to_stays(desk: Desk) -> None:
    for session in (S1, S2):
        desk.say(session, said(SECRET, ident=session), said("it stays", ident=f"{session}-2"))
    desk.capture()
    one, other = sorted(desk.ldm.rglob("*.zst"))
    before = other.read_bytes()
    one.unlink()
    one.symlink_to(other)
    assert desk.forget(session=S1).is_done
    assert (one.is_symlink(), other.read_bytes()) == (False, before)


@pytest.mark.parametrize("hops", [1, 2])
def test_an_archive_of_another_home_that_a_link_leads_to_stays_and_is_named(desk: Desk, hops: int) -> None:
    """Two homes captured the same session, and one has a link to the archive of the other, which may be moved, too."""
    desk.say(S1, said("what stands before it stays"), said(SECRET))
    desk.capture()
    archived = next(desk.ldm.rglob("*.zst"))
    other = desk.home.parent / "other" / archived.relative_to(desk.ldm)
    other.parent.mkdir(parents=True)
    archived.rename(other)
    archived.symlink_to(other)
    last = other
    if hops == 2:
        last = other.rename(desk.home.parent / "moved.zst")
        other.symlink_to(last)
    before = last.read_bytes()
    with desk.open() as machine:
        plan = plan_forget(machine, ForgetRequest(query="quokka"))
        done, proof = execute_and_prove(machine, plan)
    assert other in plan.still_held
    assert done.is_done
    assert str(other) in proof.transcripts
    assert (archived.is_symlink(), last.read_bytes()) == (False, before)
    assert desk.holding("quokka") == []


def test_nothing_brings_it_back(desk: Desk) -> None:
    path = desk.say(S1, said("hello there my friend"), said(SECRET))
    desk.capture()
    desk.forget(query=SECRET)
    # a fork copies the lines, a file is replaced, and everything is imported
    desk.transcript(S2).write_bytes(path.read_bytes().replace(S1.encode(), S2.encode()))
    moved = path.read_bytes()
    path.unlink()
    path.write_bytes(b'{"type":"mode"}\n' + moved)
    desk.capture()
    desk.backfill()
    assert desk.holding("quokka") == []
    assert "hello there my friend" in desk.texts()


def test_a_session_goes_as_a_whole(desk: Desk) -> None:
    desk.say(S1, said(SECRET), said("a secret answer to it", role="assistant"))
    desk.say(S2, said("another session stays as it is"))
    desk.capture()
    assert_left(desk, desk.forget(session=S1), "another session stays as it is")
    assert desk.holding("secret answer") == []
    desk.say(S1, said("what is said afterwards is new", at=9_999_999_999_999 - 5_000_000_000_000))
    desk.capture()


def test_before_a_moment(desk: Desk) -> None:
    desk.say(S1, said(SECRET, at=NOW - 10_000), said("a newer thing was said", at=NOW))
    desk.capture()
    assert_left(desk, desk.forget(before=NOW - 5_000), "a newer thing was said")


def test_a_project(desk: Desk) -> None:
    desk.say(S1, said(SECRET, cwd="/home/dev/zoo"), said("elsewhere it is fine", cwd="/home/dev/other"))
    desk.capture()
    assert_left(desk, desk.forget(project="/home/dev/zoo"), "elsewhere it is fine")


def test_it_stays_forgotten_when_the_database_is_lost(desk: Desk) -> None:
    desk.say(S1, said("what is said before it"), said(SECRET))
    desk.say(S2, said("another talk about " + SECRET + " in a session that goes as a whole"))
    desk.capture()
    desk.forget(session=S2)
    desk.forget(query="quokka")
    for path in (desk.ldm / "memory").glob("crystal.db*"):
        path.unlink()
    with desk.open() as machine:
        repair_all(machine, prove(machine, lambda _: None))
    desk.backfill()
    assert desk.holding("quokka") == []
    assert desk.texts() == ["what is said before it"]


def test_it_is_forgotten_again_when_the_database_is_put_back(desk: Desk) -> None:
    desk.say(S1, said("what is said before it"), said(SECRET))
    desk.capture()
    database = desk.ldm / "memory" / "crystal.db"
    with desk.open() as machine:
        machine.store.db.wal_checkpoint(mode=3)
    copy = database.read_bytes()
    desk.forget(query="quokka")
    database.write_bytes(copy)
    desk.capture()
    assert desk.texts() == ["what is said before it"]
    assert desk.holding("quokka") == []


def test_a_lost_archive_is_made_again_without_it(desk: Desk) -> None:
    note = b'{"type":"last-prompt","lastPrompt":"about the quokka"}\n'
    desk.say(S1, said("what is said before it"), said(SECRET), note)
    desk.say(S2, said("another quokka, alone in its session"))
    desk.capture()
    database = desk.ldm / "memory" / "crystal.db"
    with desk.open() as machine:
        machine.store.db.wal_checkpoint(mode=3)
    copy = database.read_bytes()
    desk.forget(query="quokka")
    database.write_bytes(copy)  # the archives of that time are gone
    desk.capture()
    with desk.open() as machine:
        repair_all(machine, prove(machine, lambda _: None))
    assert desk.texts() == ["what is said before it"]
    assert desk.holding("quokka") == []
    assert proved(desk) == 100.0


def test_what_is_said_afterwards_in_a_forgotten_session_is_kept(desk: Desk) -> None:
    desk.say(S1, said(SECRET))
    desk.capture()
    desk.forget(session=S1)
    later = int(time.time() * 1000) + 60_000
    desk.say(S1, said("an old line that comes late", at=NOW - 1), said("said afterwards, and new", at=later))
    desk.capture()
    assert desk.texts() == ["said afterwards, and new"]
    assert proved(desk) == 100.0


def test_a_fork_goes_without_what_it_copied_and_an_original_with_its_copies(desk: Desk) -> None:
    first = [said("the original question here", ident="8e8d3d0e-aaaa-4aaa-8aaa-000000000001")]
    desk.say(S1, *first)
    desk.capture()
    desk.say(S2, *first, said("only the fork says this quokka thing"))
    desk.capture()
    desk.forget(session=S2)
    assert desk.texts() == ["the original question here"]
    assert desk.holding("quokka") == []
    desk.forget(session=S1)
    assert desk.texts() == []
    assert desk.holding("original question") == []
    assert proved(desk) == 100.0


@pytest.fixture
def forked(desk: Desk) -> Desk:
    """A fork of a session, and its original, which was read later."""
    first = [said("the original question here", ident="8e8d3d0e-aaaa-4aaa-8aaa-000000000001")]
    note = b'{"type":"queue-operation","operation":"enqueue","timestamp":"%s"}\n'
    desk.say(S2, note % b"2026-11-21T23:00:00.000Z", *first, said("only the fork says this quokka thing"))
    desk.capture()
    desk.say(S1, note % b"2026-01-01T10:00:00.000Z", *first)
    desk.capture()
    return desk


def test_an_original_goes_also_where_its_fork_was_read_before(forked: Desk) -> None:
    desk = forked
    desk.forget(session=S1)
    assert desk.texts() == ["only the fork says this quokka thing"]
    assert desk.holding("original question") == []
    assert proved(desk) == 100.0


def test_a_fork_that_was_read_before_its_original_leaves_it_alone(forked: Desk) -> None:
    desk = forked
    desk.forget(session=S2)
    assert desk.texts() == ["the original question here"]
    assert desk.holding("quokka") == []
    with desk.open() as machine:
        rows = machine.store.rows("SELECT s.session_id, count(t.id) FROM sessions s JOIN turns t ON t.session = s.id")
        assert rows == [(S1, 1)]
        assert machine.store.value("SELECT count(*) FROM sessions") == 1
    desk.capture()
    assert desk.texts() == ["the original question here"]
    assert proved(desk) == 100.0


def test_notes_alone_are_forgotten_and_stay_out(desk: Desk) -> None:
    note = b'{"type":"queue-operation","content":"the zorilla","sessionId":"%s"}\n' % S1.encode()
    path = desk.say(S1, said("an ordinary line is said"), note)
    desk.capture()
    done = desk.forget(query="zorilla")
    assert (done.lines, done.notes, done.is_done) == (0, 1, True)
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(b'{"type":"mode"}\n' + content)
    desk.capture()
    assert desk.holding("zorilla") == []
    assert desk.texts() == ["an ordinary line is said"]


def test_a_line_without_an_id_is_known_by_where_it_stands(desk: Desk) -> None:
    path = desk.say(S1, said("what is said before it"), said(SECRET, uuid=None), said("what is said after it"))
    desk.capture()
    with desk.open() as machine:
        derived = machine.store.value("SELECT uuid FROM turns WHERE uuid LIKE 'line-%'")
    assert desk.forget(targets=(derived,)).is_done
    assert desk.holding("quokka") == []
    assert proved(desk) == 100.0
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)
    with desk.open() as machine, machine.store.transaction():
        machine.store.execute("UPDATE capture_state SET offset = 0, generation = 1, tail_hash = x''")
    desk.capture()
    assert desk.holding("quokka") == []
    assert desk.texts() == ["what is said after it", "what is said before it"]


@each_row("name", ["query", "session", "project", "key", "targets"])
@each_row("value", ["\ud800", "a\0b", "", "' OR 1 --", "%", "*", "/", "9" * 40, "-1"])
def test_odd_words_are_refused_or_find_nothing(desk: Desk, name: str, value: str) -> None:
    if name == "query" and value == "":
        return
    try:
        plan = desk.plan(**{name: (value,) if name == "targets" else value})
    except (NotFoundError, UsageError):
        return
    assert plan.items == ()
