"""The proof of forgetting: it finds what is left in every kind of place, and nothing where nothing is."""

from __future__ import annotations

import gzip
import io
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.errors import Damaged
from crystal.forgetting import ForgetRequest, carry_out, plan
from crystal.forgetting.match.multi_pattern import MultiPatternMatcher
from crystal.forgetting.match.needles import Needles, forms_of, needles_of, stretches_of
from crystal.forgetting.match.plan_needles import needles_for
from crystal.forgetting.prove import files as places
from crystal.forgetting.prove import prove
from crystal.ingest import archive
from crystal.search.index import bring_up_to_date
from crystal.store import Store
from crystal.store.search import space
from tests.support.archive_frames import frames_in
from tests.support.capture_machine import line
from tests.support.forgetting_ground import Ground, ground, plan_of
from tests.support.store_factory import NOW, add_turn

SECRET = 'die Zuckerwattenmaschine öffnet mit "Kirschblüte" \\ unter https://example.org/schlüsselbund 🍒'
GONE = "00000000-0000-4000-8000-00000000beef"


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    found = ground(tmp_path_factory.mktemp("clean") / "home")
    found.keep_up()
    return found


@pytest.fixture(scope="module")
def needles(clean: Ground) -> Needles:
    return needles_for(clean.grounds, plan_of(SECRET, lines=(GONE,)))


def test_nothing_is_found_where_nothing_is(clean: Ground, needles: Needles) -> None:
    found = prove.prove(clean.grounds, needles)
    assert found.proved, found
    assert found.files >= 5
    assert found.bytes >= sum(path.stat().st_size for path in (clean.home / "memory").glob("crystal.db"))
    assert (found.texts, found.by_rows_only) == (1, 0)


# ----------------------------------------------------------------------------------------- every kind of place


def test_each_kind_of_file_is_looked_into(clean: Ground, needles: Needles, subtests: pytest.Subtests) -> None:
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

    def keyword_index(store: Store) -> None:
        store.execute("INSERT INTO chunks_fts (rowid, text) VALUES (999, 'kirschblut kirschblütenfest')")

    cases: dict[str, tuple[Callable[[Store], None], str, bool]] = {
        "page": (page, "crystal.db", True),
        "free page": (free_page, "crystal.db", True),
        "log": (log, "crystal.db-wal", False),
        "long value": (long_value, "crystal.db: problems", True),
        "keyword index": (keyword_index, "crystal.db", True),
    }
    for name, (plant, where, is_folded) in cases.items():
        with subtests.test(name):
            clean = ground(tmp_path / name, sessions=1, turns=2)
            store = clean.machine.store
            sought = needles_for(clean.grounds, plan_of(text, lines=(GONE,)))
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
    sought = needles_for(clean.grounds, plan_of("what the zuckerwatte and the mikado say", lines=(GONE,)))
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
    words = places.word_list(part)
    assert words is not None
    data = part.read_bytes()
    for text in (b"mikado", b"rolamba"):
        at = data.index(text, words.start)
        assert not words.joins(at, at + len(text))
        assert words.joins(at + 1, at + len(text) + 1)
    assert not words.joins(0, 20)
    clean.machine.store.close()


def test_sealed_blobs_are_opened(clean: Ground, needles: Needles) -> None:
    payloads = {1: b'{"kind":"segment"}\n' + line("harmless"), 2: b'{"kind":"segment"}\n' + line(SECRET)}

    class Outbox:
        def find(self, matches: Callable[[bytes], bool]) -> list[object]:
            return [number for number, payload in payloads.items() if matches(payload)]

        def clean(self, found: list[object]) -> None:
            raise AssertionError(found)

        def unopened(self) -> int:
            return 3

    with_outbox = Ground(clean.machine, outbox=Outbox())
    found = prove.prove(with_outbox.grounds, needles)
    assert [(one.file, one.kind) for one in found.traces] == [("outbox: 2", "outbox")]
    assert [one.file for one in found.unread] == ["outbox"], "what no key opens is not proved"


def test_a_row_that_is_left_is_known_by_its_id(tmp_path: Path) -> None:
    clean = ground(tmp_path / "home", sessions=1, turns=2)
    add_turn(clean.machine.store, "ok", uuid=GONE)
    sought = needles_for(clean.grounds, plan_of(lines=(GONE,)))
    assert (sought.asked, sought.by_rows_only, len(sought.seeker)) == (1, 1, 0)
    found = prove.prove(clean.grounds, sought)
    assert {one.kind for one in found.traces} == {"row"}
    with clean.machine.store.transaction():
        space.delete_chunks(clean.machine.store, [clean.machine.store.value("SELECT max(id) FROM chunks")])
        clean.machine.store.execute("DELETE FROM turns WHERE uuid = ?", (GONE,))
    assert prove.prove(clean.grounds, sought).proved
    clean.machine.store.close()


# ---------------------------------------------------------------------------------------- what cannot be read


def test_what_cannot_be_decompressed_is_never_proved(clean: Ground, needles: Needles) -> None:
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


def test_a_skippable_frame_and_an_empty_file_hide_nothing(clean: Ground, needles: Needles) -> None:
    path = clean.home / "agents/cc-test/memory/transcripts/odd.jsonl.zst"
    skippable = b"\x50\x2a\x4d\x18" + (20).to_bytes(4, "little") + b"z" * 20
    for data, is_clean in ((b"", True), (skippable + _frames(line("x")), True), (skippable + _frames(line(SECRET)), 0)):
        path.write_bytes(data)
        found = prove.prove(clean.grounds, needles)
        path.unlink()
        assert found.proved == bool(is_clean), found


def test_an_error_for_what_is_not_proved_is_one_of_damage() -> None:
    assert issubclass(prove.NotProved, Damaged)
    assert prove.NotProved("x").exit_code == 6


# ---------------------------------------------------------------------------------- what is also said elsewhere


def test_what_stays_is_not_looked_for(tmp_path: Path) -> None:
    clean = ground(tmp_path / "home", sessions=1, turns=2)
    shared = "this stretch of words is said in two sessions, by right"
    clean.say("5e551011-a", line(f"{shared}\nand Kirschwasser beside it", ident=GONE))
    clean.say("5e551011-b", line(f"{shared}\nelsewhere", ident="stays"))
    clean.keep_up()
    sought = needles_for(clean.grounds, plan_of(lines=(GONE,)))
    strings = b"\n".join(sought.seeker.strings)
    assert b"two sessions" not in strings
    assert b"Kirschwasser" in strings
    assert b"beside it" in strings
    found = prove.prove(clean.grounds, sought)
    kinds = {one.kind for one in found.traces if one.file.endswith("-b.jsonl.zst")}
    assert not kinds
    assert {one.kind for one in found.traces if one.file.endswith("-a.jsonl.zst")} == {"line", "text", "word"}
    clean.machine.store.close()


def test_a_line_of_the_archive_that_is_still_found_may_say_the_same(tmp_path: Path) -> None:
    """Of a long result only head and tail are chunks; the middle is in the archive by right."""
    clean = ground(tmp_path / "home", sessions=1, turns=2)
    clean.say("5e551011-b", line("something else", ident="stays", extra={"stdout": SECRET}))
    sought = needles_for(clean.grounds, plan_of(SECRET, lines=(GONE,)))
    assert len(sought.seeker)
    assert prove.prove(clean.grounds, sought).proved
    clean.say("5e551011-b", line("no id", ident=None, uuid=None, type="last-prompt", lastPrompt=SECRET))
    assert not prove.prove(clean.grounds, sought).proved
    clean.machine.store.close()


def test_transcripts_of_claude_code_are_named_and_do_not_count(tmp_path: Path) -> None:
    clean = ground(tmp_path / "home", sessions=1, turns=2)
    path = clean.machine.transcript("not-ours")
    path.write_bytes(line(SECRET))
    sought = needles_for(clean.grounds, plan_of(SECRET, lines=(GONE,)))
    found = prove.prove(clean.grounds, sought)
    assert found.proved
    assert found.transcripts == (str(path),)
    assert found.as_dict()["transcripts"] == [str(path)]
    clean.machine.store.close()


def test_a_short_text_is_proved_by_rows_only_and_that_is_said() -> None:
    found = needles_of(["ok", "yes", "  \n ", "no\nyes"])
    assert (found.asked, found.by_rows_only, len(found.seeker)) == (3, 2, len(forms_of("no\nyes")))


# ------------------------------------------------------------------------------------------------ the seeker


@given(st.lists(st.binary(min_size=5, max_size=24), min_size=1, max_size=20), st.data())
def test_the_seeker_finds_what_a_plain_search_finds(strings: list[bytes], data: st.DataObject) -> None:
    strings = list(dict.fromkeys(strings))
    parts = data.draw(st.lists(st.one_of(st.sampled_from(strings), st.binary(max_size=9)), max_size=20))
    text = b"".join(parts)
    expected = {
        (at, number) for number, string in enumerate(strings) for at in range(len(text)) if text.startswith(string, at)
    }
    seeker = MultiPatternMatcher(strings)
    assert set(seeker.find(text)) == expected
    size = data.draw(st.integers(1, 30))
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    found = list(seeker.find_in(pieces))
    assert set(found) == expected
    assert len(found) == len(expected)


@given(st.text(min_size=1, max_size=60))
def test_every_form_in_which_json_can_hold_a_text_is_looked_for(text: str) -> None:
    forms = forms_of(text)
    for ascii_only in (True, False):
        once = json.dumps(text, ensure_ascii=ascii_only)
        assert once[1:-1].encode("utf-8", "surrogatepass") in forms
        twice = json.dumps(once, ensure_ascii=ascii_only)
        assert twice[3:-3].encode("utf-8", "surrogatepass") in forms
    assert text.encode("utf-16-le", "surrogatepass") in forms
    if "/" in text:
        assert json.dumps(text)[1:-1].replace("/", "\\/").encode() in forms


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp", "Cs"]), max_size=300))
def test_whoever_quotes_enough_of_a_line_quotes_a_stretch_of_it(text: str) -> None:
    line = text.strip()
    found = stretches_of(line)
    if len(line) < 20 or len(line.splitlines()) != 1:
        return
    assert all(stretch in line for stretch in found)
    for at in range(max(1, len(line) - 63)):
        quotation = line[at : at + 64]
        assert len(quotation) < 64 or any(stretch in quotation for stretch in found)


def test_a_file_of_any_size_is_read_in_the_same_memory() -> None:
    dice = random.Random(5)
    lines = [line(f"{dice.random()}" * 40) for _ in range(400)]
    packed = _frames(*lines)
    texts = list(places.frames(io.BytesIO(packed)))
    assert b"".join(texts) == b"".join(lines)
    assert max(map(len, places.lines_of(texts))) < 2 * max(map(len, lines))


def test_a_word_is_not_looked_for_within_other_words() -> None:
    needles = needles_of((), words=["zweitausend"])
    assert needles.asked == needles.by_rows_only == 0
    alone = (
        "zweitausend",
        '"zweitausend"',
        r"eins\nzweitausend\t",
        r"\\nzweitausend",
        r"\u00e9zweitausend",
        "日zweitausend",
    )
    for text in alone:
        assert list(needles.find_in_lines(text.encode())), text
    for text in ("zweitausenddrei", "hundertzweitausend", "ßzweitausend", "zweitausendä"):
        assert list(needles.seeker.find(text.encode())), text
        assert not list(needles.find_in_lines(text.encode())), text


def test_the_word_of_a_query_may_stay_within_other_words(tmp_path: Path) -> None:
    found = ground(tmp_path / "home")
    note = {"type": "queue-operation", "timestamp": "2026-11-21T10:00:00Z", "content": "zweitausenddreiundzwanzig"}
    found.say("5e551011-9", line("wir haben zweitausend"), json.dumps(note).encode() + b"\n", line("gut so"))
    wanted = plan(found.grounds, ForgetRequest(query="zweitausend"))
    needles = needles_for(found.grounds, wanted)
    carry_out(found.grounds, wanted, NOW)
    assert prove.prove(found.grounds, needles).proved


def test_what_archives_of_other_sessions_say_is_not_looked_for(tmp_path: Path) -> None:
    found = ground(tmp_path / "home")
    tools = {"type": "attachment", "uuid": "tools-1", "attachment": {"tools": ["Zuckerwatte", "Kirschblüte"]}}
    for number, said in enumerate(("bitte die Zuckerwatte nehmen", "nichts weiter")):
        note = {**tools, "uuid": f"tools-{number}", "timestamp": "2026-11-21T10:00:00Z"}
        found.say(f"5e551011-{number + 7}", line(said), json.dumps(note).encode() + b"\n")
    before = _archived_text(found)
    wanted = plan(found.grounds, ForgetRequest(session="5e551011-7"))
    needles = needles_for(found.grounds, wanted)
    carry_out(found.grounds, wanted, NOW)
    after = _archived_text(found)
    assert prove.prove(found.grounds, needles).proved
    assert before.count(b"tools-1") == after.count(b"tools-1") == 1
    assert b"Zuckerwatte nehmen" in before
    assert b"Zuckerwatte nehmen" not in after


def test_a_forgotten_message_takes_no_word_from_the_notes_of_other_sessions(tmp_path: Path) -> None:
    found = ground(tmp_path / "home")
    note = {"type": "attachment", "uuid": "tools-1", "attachment": {"tools": ["Zuckerwatte"]}}
    found.say("5e551011-7", line("bitte die Zuckerwatte nehmen", ident=GONE))
    found.say("5e551011-8", line("nichts weiter"), json.dumps(note).encode() + b"\n")
    wanted = plan(found.grounds, ForgetRequest(targets=(GONE,)))
    assert [item.uuid for item in wanted.items] == [GONE]
    needles = needles_for(found.grounds, wanted)
    carry_out(found.grounds, wanted, NOW)
    assert prove.prove(found.grounds, needles).proved
    assert b'"Zuckerwatte"' in _archived_text(found)


def test_what_differs_in_spaces_alone_is_not_looked_for() -> None:
    text = "eine   Zeile mit mehr Leerzeichen als die andere Zeile"
    assert list(needles_of([text]).seeker.find(text.encode()))
    assert not needles_of([text], staying=[" ".join(text.split())]).texts


def _archived_text(found: Ground) -> bytes:
    paths = sorted(found.home.glob("agents/*/memory/transcripts/**/*.zst"))
    return b"".join(text for path in paths for text in frames_in(path))


def test_what_is_left_of_a_compressed_text_is_found(tmp_path: Path) -> None:
    found = ground(tmp_path / "home")
    gone = "the " + " ".join(f"plumtree{at} was said by zebra{at}" for at in range(40))
    found.say("s-0", line(gone, ident=GONE))
    looked_for = plan(found.grounds, ForgetRequest((GONE,)))
    needles = needles_for(found.grounds, looked_for, for_proof=True)
    body = found.machine.store.value("SELECT body FROM chunks WHERE text LIKE '%plumtree1 %'")
    assert isinstance(body, bytes)
    carry_out(found.grounds, looked_for, NOW)
    found.keep_up()
    assert prove.prove(found.grounds, needles).proved
    (found.home / "memory" / "left.bin").write_bytes(b"\1" * 999 + body[30:90])
    (trace,) = prove.prove(found.grounds, needles).traces
    assert (trace.file, trace.kind) == ("memory/left.bin", "text")
