"""Moving a relay between SQLite and PostgreSQL: every row and body, while it serves, after any interruption."""

from __future__ import annotations

import itertools
import secrets
import threading
from pathlib import Path

import pytest

from relay_worker import commands
from relay_worker.__main__ import main
from relay_worker.errors import CannotServeError, RequestRefusedError
from relay_worker.model import NewBody
from relay_worker.settings import Settings
from relay_worker.store import choice, mailboxes, moving, objects
from relay_worker.store.bucket import Bucket
from relay_worker.store.postgres import connecting
from tests.relay_worker.test_relay_bucket import Place
from tests.support.postgres import Postgres
from tests.support.relay_server import DAY, NOW, OpenStore, sealed
from tests.support.whole_memory import wait_until

LARGE = 200_000


def put_object(opened: OpenStore, name: bytes, body: bytes) -> None:
    import hashlib

    new = NewBody("default", body, hashlib.sha256(body).digest(), resend=False, now=NOW)
    opened.run(opened.store.put(objects.put, new, name))


def fill(opened: OpenStore) -> None:
    """Something of everything that a relay can hold."""
    for seq in range(1, 9):
        opened.put(sealed(seq, LARGE if seq % 4 == 0 else 300), seq)
    opened.ack(3)
    other = secrets.token_bytes(16)
    opened.put(sealed(1, stream=other), stream=other, now=NOW - 31 * DAY)
    opened.run(opened.store.sweep(NOW))
    opened.token("objects:read", account="alice")
    for size in (10, LARGE):
        put_object(opened, secrets.token_bytes(16), secrets.token_bytes(size))
    box = opened.run(opened.store.write(mailboxes.LOCK, mailboxes.open_one, "default", [7], NOW))
    opened.run(opened.store.write(mailboxes.LOCK, mailboxes.put_mail, box.nameplate, "a", "x", b"hello", NOW))


def settings_of(place: str) -> Settings:
    return Settings(store=place) if "://" in place else Settings(data_dir=Path(place))


def content(place: str | Path, bodies: str = "") -> dict[str, list[object]]:
    """Every row of a relay, and its bodies."""
    with choice.source_of(str(place), bodies) as source:
        found = {table.name: list(moving._rows(source.rows, table)) for table in moving.TABLES}
        for table in moving.TABLES:
            if table.has_bodies:
                columns = source.rows.all(f"SELECT file, body FROM {table.name} ORDER BY id")
                found[f"{table.name} bodies"] = [source.body(*one) for one in columns]
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with OpenStore(tmp_path / "relay") as opened:
        fill(opened)
    return tmp_path / "relay"


@pytest.fixture
def url(postgres: Postgres) -> str:
    return postgres.database(secrets.token_hex(8))


def test_a_relay_moves_to_another_folder_row_by_row(folder, tmp_path, capsys):
    before = content(folder)
    assert all(before.values()), "nothing is moved that was not there"
    commands.move(str(folder), str(tmp_path / "new"))
    assert content(tmp_path / "new") == before
    assert "do not start" in capsys.readouterr().err
    with pytest.raises(CannotServeError, match="exists already"):
        commands.move(str(folder), str(tmp_path / "new"))
    with OpenStore(tmp_path / "new") as again:
        assert again.get(4)[:4] == b"CRB1"
        assert again.put(sealed(9), 9) == "created"


def test_a_relay_moves_into_the_current_folder(folder, tmp_path, monkeypatch):
    (tmp_path / "new").mkdir()
    monkeypatch.chdir(tmp_path / "new")
    commands.move(str(folder), ".")
    assert content(tmp_path / "new") == content(folder)


def test_a_lost_body_is_lost_at_the_new_place_too_and_may_be_sent_again(folder, tmp_path, capsys):
    (some, *_) = [path for path in (folder / "bodies").rglob("*") if path.is_file() and path.stat().st_size == LARGE]
    some.unlink()
    commands.move(str(folder), str(tmp_path / "new"))
    assert "1 bodies were lost" in capsys.readouterr().err
    lost = [name for name, rows in content(tmp_path / "new").items() if "bodies" in name and None in rows]
    assert len(lost) == 1


def test_who_killed_a_move_at_its_end_is_told_that_it_is_complete(folder, tmp_path):
    commands.move(str(folder), str(tmp_path / "new"))
    (other := tmp_path / "other").mkdir()
    (other / "photo.jpg").touch()
    for target, hint in ((tmp_path / "new", moving.COMPLETE), (other, "name a folder")):
        with pytest.raises(CannotServeError, match="exists already") as caught:
            commands.move(str(folder), str(target))
        assert caught.value.hint.startswith(hint)


def test_what_cannot_be_moved_is_said(tmp_path, capsys):
    for origin, target, code in ((tmp_path / "none", tmp_path / "new", 3), ("mysql://x/y", tmp_path / "new", 2)):
        with pytest.raises(SystemExit) as caught:
            main(["move", "--from", str(origin), "--to", str(target)])
        assert (caught.value.code, "hint:" in capsys.readouterr().err) == (code, True)
        assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_a_relay_moves_to_postgresql_and_back_unchanged(folder, tmp_path, url):
    before = content(folder)
    commands.move(str(folder), url)
    assert content(url) == before
    with OpenStore(tmp_path / "unused", Settings(store=url)) as other:
        body = sealed(9, LARGE)
        assert other.put(body, 9) == "created", "new rows get ids of their own"
        assert other.get(9) == body
        assert other.put(sealed(1, stream=b"n" * 16), stream=b"n" * 16) == "created"
    after = content(url)
    commands.move(url, str(tmp_path / "back"))
    assert content(tmp_path / "back") == after
    assert {row[1] for row in after["streams"]} == {1}


@pytest.mark.slow
def test_a_server_that_has_just_stopped_is_waited_for(folder, tmp_path, url):
    commands.move(str(folder), url)
    with connecting.session(url, 5) as server:
        server.one("SELECT pg_advisory_lock_shared(?)", connecting.SERVING_LOCK)
        ended = threading.Timer(0.5, server.db.close)
        ended.start()
        commands.move(url, str(tmp_path / "back"))
        ended.join()
    assert content(tmp_path / "back") == content(url)


@pytest.mark.slow
def test_a_relay_moves_through_buckets_and_databases_and_back_unchanged(folder, tmp_path, postgres, s3):
    before = content(folder)
    ends = [(str(folder), "")]
    ends += [(postgres.database(secrets.token_hex(8)), bodies) for bodies in (s3.address(), "", s3.address())]
    ends.append((str(tmp_path / "back"), ""))
    for (origin, origin_bodies), (target, target_bodies) in itertools.pairwise(ends):
        commands.move(origin, target, origin_bodies, target_bodies)
        assert content(target, target_bodies) == before
        if target_bodies:
            place = Place(tmp_path / "unused", target, target_bodies)
            assert len(place.named()) == 3
            assert place.named() == place.stored()
            assert place.execute("SELECT * FROM unnamed") == []
    with pytest.raises(CannotServeError, match="has bodies in a bucket"):
        content(ends[1][0])


@pytest.mark.slow
def test_a_move_into_a_bucket_while_serving_leaves_nothing_behind(tmp_path, url, s3):
    place = Place(tmp_path / "unused", url, s3.address())
    with OpenStore(tmp_path / "relay") as opened:
        fill(opened)
        with pytest.raises(CannotServeError, match="still serves"):
            commands.move(str(tmp_path / "relay"), url, "", place.bodies)
        opened.ack(8)
        opened.put(sealed(20, LARGE), 20)
    commands.move(str(tmp_path / "relay"), url, "", place.bodies)
    assert content(url, place.bodies) == content(tmp_path / "relay")
    with place.open() as opened:
        place.sweep_now(opened)
        assert place.named() == place.stored()
        assert opened.get(20)[:4] == b"CRB1"


@pytest.mark.slow
def test_a_move_does_not_take_a_bucket_that_cannot_be_reached_for_lost_bodies(tmp_path, url, s3, monkeypatch):
    place = Place(tmp_path / "unused", url, s3.address())
    with place.open() as opened:
        fill(opened)
    monkeypatch.setattr(Bucket, "check", lambda *_, **__: None)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(CannotServeError, match="cannot be reached") as caught:
        commands.move(url, str(tmp_path / "new"), place.bodies)
    assert caught.value.exit_code == 4
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_a_move_to_a_database_with_a_relay_changes_nothing_there(folder, url):
    choice.open_store(Settings(store=url), now=NOW).close()
    with pytest.raises(CannotServeError, match="already") as caught:
        commands.move(str(folder), url)
    assert caught.value.hint == f"{moving.COMPLETE}name an empty database"
    with connecting.session(url, 5) as rows:
        assert rows.all("SELECT nspname::text FROM pg_namespace WHERE nspname ~ '^crystal'") == [("crystal_relay",)]


@pytest.mark.slow
@pytest.mark.parametrize("to_postgres", [True, False])
def test_a_move_while_serving_is_completed_by_the_same_command_once_it_is_stopped(tmp_path, url, to_postgres):
    target = url if to_postgres else str(tmp_path / "new")
    with OpenStore(tmp_path / "relay") as opened:
        fill(opened)
        with pytest.raises(CannotServeError, match="still serves") as caught:
            commands.move(str(tmp_path / "relay"), target)
        assert caught.value.exit_code == 4
        with pytest.raises(CannotServeError, match="no relay") as caught:
            choice.source_of(target).__enter__()
        with pytest.raises(CannotServeError, match="not complete"):
            choice.open_store(settings_of(target), now=NOW)
        with pytest.raises(CannotServeError, match="not complete"):
            choice.transaction(settings_of(target), create=True).__enter__()
        opened.ack(8)  # SQLite gives the ids of these to others
        for seq in (20, 22, 21):
            opened.put(sealed(seq, LARGE if seq == 20 else 300), seq)
        with pytest.raises(CannotServeError, match="still serves"):
            commands.move(str(tmp_path / "relay"), target)
        opened.ack(22)
        for seq in (21, 22, 20):
            opened.put(sealed(seq + 10), seq + 10)
        opened.token("pair")
    commands.move(str(tmp_path / "relay"), target)
    assert content(target) == content(tmp_path / "relay")


@pytest.mark.slow
def test_a_serving_postgresql_is_copied_and_cannot_be_started_while_it_is_completed(tmp_path, url, monkeypatch):
    store = choice.open_store(Settings(store=url), now=NOW)
    with pytest.raises(CannotServeError, match="still serves"):
        commands.move(url, str(tmp_path / "new"))
    store.close()
    monkeypatch.setattr(connecting, "_OPTIONS", connecting._OPTIONS.replace("lock_timeout=10000", "lock_timeout=100"))
    with choice.source_of(url), pytest.raises(CannotServeError, match="is being moved"):
        choice.open_store(Settings(store=url), now=NOW)
    commands.move(url, str(tmp_path / "new"))
    assert content(tmp_path / "new") == content(url)


def is_served(url):
    with choice.source_of(url) as source:
        return source.is_serving


@pytest.mark.slow
def test_a_server_that_no_longer_hears_cannot_write_into_what_is_being_moved(url, tmp_path, monkeypatch):
    monkeypatch.setattr(connecting, "_OPTIONS", connecting._OPTIONS.replace("lock_timeout=10000", "lock_timeout=100"))
    with OpenStore(tmp_path / "unused", Settings(store=url)) as opened:
        opened.store._bus.close()
        wait_until(lambda: not is_served(url), "PostgreSQL to notice that the server's connection is gone")
        with choice.source_of(url), pytest.raises(RequestRefusedError, match="unavailable"):
            opened.put(sealed(1))
        assert opened.put(sealed(1)) == "created"


@pytest.mark.slow
def test_an_interrupted_move_is_served_by_nobody_and_goes_on_when_it_is_run_again(
    folder, tmp_path, url, monkeypatch, postgres, s3
):
    """Interrupted before each of its transactions in turn."""
    write, before, limit = moving._write, content(folder), 0
    in_bucket = Place(tmp_path / "unused", postgres.database(secrets.token_hex(8)), s3.address())
    for target, bodies in ((url, ""), (in_bucket.url, in_bucket.bodies), (str(tmp_path / "new"), "")):
        while True:
            left = [limit]

            def interrupted(*given, left=left):
                if left[0] == 0:
                    raise KeyboardInterrupt
                left[0] -= 1
                write(*given)

            monkeypatch.setattr(moving, "_write", interrupted)
            try:
                commands.move(str(folder), target, "", bodies)
                break
            except KeyboardInterrupt:
                with pytest.raises(CannotServeError, match="no relay"):
                    choice.source_of(target, bodies).__enter__()
                limit += 1
        assert content(target, bodies) == before
        assert limit > 4
        limit = 0
