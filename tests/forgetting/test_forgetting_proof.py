"""The proof of forgetting: it finds what is left in every kind of place, and nothing where nothing is."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from crystal.errors import DamagedError
from crystal.forgetting.execute.execute import carry_out
from crystal.forgetting.match.forgotten_text import ForgottenText, forgotten_text
from crystal.forgetting.plan.planner import plan
from crystal.forgetting.prove import file_reader, prove
from crystal.forgetting.request import ForgetRequest
from crystal.ingest import archive
from crystal.search.index import bring_up_to_date
from crystal.store import Store
from crystal.store.search import space
from tests.support.capture_machine import line
from tests.support.forgetting_ground import Ground, forgotten, ground
from tests.support.store_factory import NOW, add_turn

SECRET = 'die Zuckerwattenmaschine öffnet mit "Kirschblüte" \\ unter https://example.org/schlüsselbund 🍒'
GONE = "00000000-0000-4000-8000-00000000beef"


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    found = ground(tmp_path_factory.mktemp("clean") / "home")
    found.keep_up()
    return found


@pytest.fixture(scope="module")
def needles(clean: Ground) -> ForgottenText:
    return forgotten(clean, SECRET, lines=(GONE,))


def test_nothing_is_found_where_nothing_is(clean: Ground, needles: ForgottenText) -> None:
    found = prove.prove(clean.grounds, needles)
    assert found.proved, found
    assert found.files >= 5
    assert found.bytes >= sum(path.stat().st_size for path in (clean.home / "memory").glob("crystal.db"))
    assert (found.texts, found.by_rows_only) == (1, 0)


# ----------------------------------------------------------------------------------------- every kind of place


@pytest.mark.slow
def test_each_kind_of_file_is_looked_into(clean: Ground, needles: ForgottenText, subtests: pytest.Subtests) -> None:
    said = line(SECRET, ident="another-line")
    agent = clean.home / "agents/cc-test/memory"
    files: dict[str, bytes] = {
        "memory/spool/00-note.json": json.dumps({"prompt": SECRET}).encode(),
        "memory/spool/.00-note.json.tmp": json.dumps({"prompt": SECRET}, ensure_ascii=False).encode(),
        "memory/crystal.db.v3.backup": b"\0" * 5000 + SECRET.encode() + b"\0" * 99,
        "memory/mirror.json": json.dumps(json.dumps({"text": SECRET})).encode(),
        "memory/index/crystal/words-0.part.tmp": b"\0" * 99 + b"zuckerwattenmaschin",
        "agents/cc-test/memory/sessions/2026-11-21--x.md": "# Kirschblüte\n".encode(),
        "agents/cc-test/memory/daily/2026-11-21.md": SECRET[:40].encode(),
        "agents/cc-test/memory/transcripts/x.jsonl.zst": _frames(line("x"), said),
        "agents/cc-test/memory/transcripts/by-id.jsonl.zst": _frames(line("x"), line("short", ident=GONE)),
        "agents/cc-test/memory/transcripts/old.jsonl.zst.recovered": _frames(said),
        "agents/cc-test/memory/transcripts/packed.jsonl.gz": gzip.compress(said),
        ".crystal-123-abc.tmp": SECRET.encode("utf-16-le"),
        "context/notes.bin": b"\1" * (1 << 16) + SECRET.encode("utf-16-be"),
        "logs/Kirschblüte.log": b"nothing in it",
    }
    for name, data in files.items():
        with subtests.test(name):
            path = clean.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            try:
                found = prove.prove(clean.grounds, needles)
            finally:
                path.unlink()
            assert not found.proved
            assert {one.file for one in found.traces} == {name}, found
    assert agent.is_dir()


def _frames(*stretches: bytes) -> bytes:
    options = {archive.zstd.CompressionParameter.checksum_flag: 1}
    return b"".join(archive.zstd.compress(stretch, options=options) for stretch in stretches)


@pytest.mark.slow
def test_each_part_of_a_database_is_looked_into(tmp_path: Path, subtests: pytest.Subtests) -> None:
    text = SECRET

    def page(store: Store) -> None:
        store.execute("INSERT INTO problems (room, message, since, at, tries) VALUES ('x', ?, 1, 1, 1)", (text,))

    def free_page(store: Store) -> None:
        store.execute("PRAGMA secure_delete = 0")
        page(store)
        store.execute("INSERT INTO problems (room, message, since, at, tries) VALUES ('y', ?, 1, 1, 1)", (text * 500,))
        store.execute("DELETE FROM problems")

    def log(store: Store) -> None:
        page(store)
        store.execute("DELETE FROM problems")

    def long_value(store: Store) -> None:
        for cut in range(4000, 4200, 10):  # in one of them the text lies across two pages
            store.execute(
                "INSERT INTO problems (room, message, since, at, tries) VALUES (?, ?, 1, 1, 1)",
                (str(cut), "x" * cut + " Kirschblüte " + "x" * 9000),
            )

    cases: dict[str, tuple[Callable[[Store], None], str, bool]] = {
        "page": (page, "crystal.db", True),
        "free page": (free_page, "crystal.db", True),
        "log": (log, "crystal.db-wal", False),
        "long value": (long_value, "crystal.db: problems", True),
    }
    for name, (plant, where, is_folded) in cases.items():
        with subtests.test(name):
            clean = ground(tmp_path / name, sessions=1, turns=2)
            store = clean.machine.store
            sought = forgotten(clean, text, lines=(GONE,))
            store.db.wal_checkpoint(mode=3)
            plant(store)
            if is_folded:
                store.db.wal_checkpoint(mode=3)
            found = prove.prove(clean.grounds, sought)
            assert f"memory/{where}" in {one.file for one in found.traces}, found
            store.close()


def test_the_words_of_the_index_files_are_found_and_what_only_joins_two_is_not(tmp_path: Path) -> None:
    clean = ground(tmp_path / "home", sessions=1, turns=2)
    store = clean.machine.store
    sought = forgotten(clean, "what the zuckerwatte and the mikado say", lines=(GONE,))
    add_turn(store, "lalami kadoro", uuid="joins")  # sorted, the one after the other: kado|lalami
    bring_up_to_date(store, now=NOW)
    store.db.wal_checkpoint(mode=3)
    assert prove.prove(clean.grounds, sought).proved
    add_turn(store, "the Zuckerwatte", uuid="again")
    bring_up_to_date(store, now=NOW)
    with store.transaction():
        space.delete_chunks(store, [store.value("SELECT max(id) FROM chunks")])
        store.execute("DELETE FROM turns WHERE uuid = 'again'")
    store.db.wal_checkpoint(mode=3)
    found = prove.prove(clean.grounds, sought)
    assert {Path(one.file).parent.name for one in found.traces} == {"crystal"}, found
    bring_up_to_date(store, now=NOW)
    store.db.wal_checkpoint(mode=3)
    assert prove.prove(clean.grounds, sought).proved
    store.close()


def test_words_that_lie_end_to_end_are_told_apart(tmp_path: Path) -> None:
    clean = ground(tmp_path / "home", sessions=1, turns=2)
    for text in ("mikado", "rolamba"):
        add_turn(clean.machine.store, text, uuid=text)
    bring_up_to_date(clean.machine.store, now=NOW)
    part = next((clean.home / "memory/index/crystal").glob("words-*"))
    borders = set(file_reader.word_borders(part).tolist())
    data = part.read_bytes()
    for text in (b"mikado", b"rolamba"):
        at = data.index(text, min(borders))
        assert {at, at + len(text)} <= borders
        assert not {at + 1, at + len(text) + 1} & borders
    clean.machine.store.close()


def test_sealed_blobs_are_opened(clean: Ground, needles: ForgottenText) -> None:
    payloads = {1: b'{"kind":"segment"}\n' + line("harmless"), 2: b'{"kind":"segment"}\n' + line(SECRET)}

    class Outbox:
        def payloads(self) -> Iterator[tuple[str, bytes]]:
            yield from ((str(number), payload) for number, payload in payloads.items())

        def clean(self) -> None:
            raise AssertionError

        def unopened(self) -> int:
            return 3

    with_outbox = Ground(clean.machine, outbox=Outbox())
    found = prove.prove(with_outbox.grounds, needles)
    assert [(one.file, one.kind) for one in found.traces] == [("outbox: 2", "outbox")]
    assert [one.file for one in found.unread] == ["outbox"], "what no key opens is not proved"


def test_a_row_that_is_left_is_known_by_its_id(tmp_path: Path) -> None:
    clean = ground(tmp_path / "home", sessions=1, turns=2)
    add_turn(clean.machine.store, "ok", uuid=GONE)
    sought = forgotten(clean, lines=(GONE,))
    found = prove.prove(clean.grounds, sought)
    assert (found.texts, found.by_rows_only) == (1, 1)
    assert {one.kind for one in found.traces} == {"row"}
    with clean.machine.store.transaction():
        space.delete_chunks(clean.machine.store, [clean.machine.store.value("SELECT max(id) FROM chunks")])
        clean.machine.store.execute("DELETE FROM turns WHERE uuid = ?", (GONE,))
    assert prove.prove(clean.grounds, sought).proved
    clean.machine.store.close()


# ---------------------------------------------------------------------------------------- what cannot be read


@pytest.mark.slow
def test_what_cannot_be_decompressed_is_never_proved(clean: Ground, needles: ForgottenText) -> None:
    frame = _frames(line("x" * 50))
    broken = bytearray(frame)
    broken[len(frame) // 2] ^= 0x55
    path = clean.home / "agents/cc-test/memory/transcripts/torn.jsonl.zst"
    for data in (frame[:-3], bytes(broken), frame + b"junk behind it", frame + frame[:5]):
        path.write_bytes(data)
        found = prove.prove(clean.grounds, needles)
        path.unlink()
        assert not found.proved, data
        assert [one.file for one in found.unread] == ["agents/cc-test/memory/transcripts/torn.jsonl.zst"]
        assert not found.traces


def test_a_skippable_frame_and_an_empty_file_hide_nothing(clean: Ground, needles: ForgottenText) -> None:
    path = clean.home / "agents/cc-test/memory/transcripts/odd.jsonl.zst"
    skippable = b"\x50\x2a\x4d\x18" + (20).to_bytes(4, "little") + b"z" * 20
    for data, is_clean in ((b"", True), (skippable + _frames(line("x")), True), (skippable + _frames(line(SECRET)), 0)):
        path.write_bytes(data)
        found = prove.prove(clean.grounds, needles)
        path.unlink()
        assert found.proved == bool(is_clean), found


def test_a_file_of_any_size_is_read_in_the_same_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_reader, "TEXT", 500)
    lines = [line(f"{number}" * 80) for number in range(400)]
    path = tmp_path / "packed"
    path.write_bytes(_frames(*lines))
    pieces = list(file_reader.lines_of(file_reader.decompressed(path, path.read_bytes()[:16])))
    assert b"".join(pieces) == b"".join(lines)
    assert max(map(len, pieces)) < 500 + max(map(len, lines))


def test_an_error_for_what_is_not_proved_is_one_of_damage() -> None:
    assert issubclass(prove.NotProvedError, DamagedError)
    assert prove.NotProvedError("x").exit_code == 6


def test_transcripts_of_claude_code_are_named_and_do_not_count(tmp_path: Path) -> None:
    clean = ground(tmp_path / "home", sessions=1, turns=2)
    path = clean.machine.transcript("not-ours")
    path.write_bytes(line(SECRET))
    sought = forgotten(clean, SECRET, lines=(GONE,))
    found = prove.prove(clean.grounds, sought)
    assert found.proved
    assert found.transcripts == (str(path),)
    assert found.as_dict()["transcripts"] == [str(path)]
    clean.machine.store.close()


@pytest.mark.slow
def test_what_is_left_of_a_compressed_text_is_found(tmp_path: Path) -> None:
    found = ground(tmp_path / "home")
    gone = "the " + " ".join(f"plumtree{at} was said by zebra{at}" for at in range(40))
    found.say("s-0", line(gone, ident=GONE))
    looked_for = plan(found.grounds, ForgetRequest((GONE,)))
    needles = forgotten_text(found.grounds, looked_for)
    body = found.machine.store.value(
        "SELECT b.body FROM chunks c JOIN text_blocks b ON b.id = block_of(c.body) WHERE c.text LIKE '%plumtree1 %'"
    )
    assert isinstance(body, bytes)
    carry_out(found.grounds, looked_for, NOW)
    found.keep_up()
    assert prove.prove(found.grounds, needles).proved
    (found.home / "memory" / "left.bin").write_bytes(b"\1" * 999 + body[30:90])
    (trace,) = prove.prove(found.grounds, needles).traces
    assert (trace.file, trace.kind) == ("memory/left.bin", "text")
