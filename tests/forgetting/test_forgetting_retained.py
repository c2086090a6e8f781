"""What stays proves nothing: texts and words that are also said by right are not counted as left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crystal.forgetting.execute.execute import carry_out
from crystal.forgetting.match.forgotten_text import forgotten_text
from crystal.forgetting.plan.planner import plan
from crystal.forgetting.prove import prove
from crystal.forgetting.request import ForgetRequest
from crystal.ingest import archive
from tests.support.archive_frames import frames_in
from tests.support.capture_machine import line
from tests.support.forgetting_ground import Ground, forgotten, ground
from tests.support.store_factory import NOW

SECRET = 'die Zuckerwattenmaschine öffnet mit "Kirschblüte" \\ unter https://example.org/schlüsselbund 🍒'
GONE = "00000000-0000-4000-8000-00000000beef"


def test_what_stays_is_not_looked_for(tmp_path: Path) -> None:
    clean = ground(tmp_path / "home", sessions=1, turns=2)
    shared = "this stretch of words is said in two sessions, by right"
    clean.say("5e551011-a", line(f"{shared}\nand Kirschwasser beside it", ident=GONE))
    clean.say("5e551011-b", line(f"{shared}\nelsewhere", ident="stays"))
    clean.keep_up()
    sought = forgotten(clean, lines=(GONE,))
    found = prove.prove(clean.grounds, sought)
    kinds = {one.kind for one in found.traces if one.file.endswith("-b.jsonl.zst")}
    assert not kinds, "what another session says by right"
    assert {one.kind for one in found.traces if one.file.endswith("-a.jsonl.zst")} == {"line", "text", "word"}
    clean.machine.store.close()


def test_a_line_of_the_archive_that_is_still_found_may_say_the_same(tmp_path: Path) -> None:
    """Of a long result only head and tail are chunks; the middle is in the archive by right."""
    clean = ground(tmp_path / "home", sessions=1, turns=2)
    clean.say("5e551011-b", line("something else", ident="stays", extra={"stdout": SECRET}))
    sought = forgotten(clean, SECRET, lines=(GONE,))
    assert prove.prove(clean.grounds, sought).proved
    clean.say("5e551011-b", line("no id", ident=None, uuid=None, type="last-prompt", lastPrompt=SECRET))
    assert not prove.prove(clean.grounds, sought).proved
    clean.machine.store.close()


def test_the_word_of_a_query_may_stay_within_other_words(tmp_path: Path) -> None:
    found = ground(tmp_path / "home")
    note = {"type": "queue-operation", "timestamp": "2026-11-21T10:00:00Z", "content": "zweitausenddreiundzwanzig"}
    found.say("5e551011-9", line("wir haben zweitausend"), json.dumps(note).encode() + b"\n", line("gut so"))
    wanted = plan(found.grounds, ForgetRequest(query="zweitausend"))
    needles = forgotten_text(found.grounds, wanted)
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
    needles = forgotten_text(found.grounds, wanted)
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
    needles = forgotten_text(found.grounds, wanted)
    carry_out(found.grounds, wanted, NOW)
    assert prove.prove(found.grounds, needles).proved
    assert b'"Zuckerwatte"' in _archived_text(found)


@pytest.mark.parametrize(("shown", "is_proved"), [(slice(0, 4), True), (slice(0, 6), False), (slice(9, 10), True)])
def test_progress_elsewhere_that_shows_other_parts_of_a_file_proves_nothing(
    tmp_path: Path, shown: slice, *, is_proved: bool
) -> None:
    file = [f"func handle{number}Kirschbaum(w http.ResponseWriter, r *http.Request) {{" for number in range(10)]
    found = ground(tmp_path / "home")
    other = "\n".join(["package elsewhere, that nobody wants to forget", *file[shown]])
    progress = {"type": "progress", "uuid": "progress-1", "timestamp": "2026-11-21T10:00:00Z", "data": {"text": other}}
    found.say("5e551011-7", line("\n".join(["unexpected input", *file]), ident=GONE))
    found.say("5e551011-8", line("nichts weiter"), json.dumps(progress).encode() + b"\n")
    wanted = plan(found.grounds, ForgetRequest(query="unexpected input"))
    needles = forgotten_text(found.grounds, wanted)
    carry_out(found.grounds, wanted, NOW)
    assert prove.prove(found.grounds, needles).proved is is_proved


def test_what_stays_within_json_proves_nothing(tmp_path: Path) -> None:
    found = ground(tmp_path / "home")
    code = 'return errors.New("--force requires the flag --generate")'
    found.say("5e551011-7", line(f"unexpected input\n{code}", ident=GONE))
    found.say("5e551011-8", line(json.dumps({"content": code})))
    wanted = plan(found.grounds, ForgetRequest(query="unexpected input"))
    needles = forgotten_text(found.grounds, wanted)
    carry_out(found.grounds, wanted, NOW)
    assert prove.prove(found.grounds, needles).proved


def test_what_differs_in_spaces_alone_proves_nothing(tmp_path: Path) -> None:
    clean = ground(tmp_path / "home", sessions=1, turns=2)
    text = "eine   Zeile mit mehr Leerzeichen als die andere Zeile"
    sought = forgotten(clean, text)
    (clean.home / "left.txt").write_text(text, "utf-8")
    assert not prove.prove(clean.grounds, sought).proved
    clean.say("5e551011-b", line(" ".join(text.split())))
    found = prove.prove(clean.grounds, sought)
    assert (found.proved, found.by_rows_only) == (True, 1)
    clean.machine.store.close()


def _archived_text(found: Ground) -> bytes:
    paths = sorted(found.home.glob("agents/*/memory/transcripts/**/*.zst"))
    return b"".join(text for path in paths for text in frames_in(path))


@pytest.mark.slow
def test_a_line_of_a_forgotten_project_that_only_an_archive_has_is_found(tmp_path: Path) -> None:
    found = ground(tmp_path / "home")
    note = {"type": "attachment", "attachment": {"stdout": SECRET}, "timestamp": "2026-01-01T10:00:00Z"}
    here, there = (json.dumps({**note, "uuid": f"note-of-{cwd}", "cwd": cwd}).encode() for cwd in ("/zoo", "/other"))
    found.say("5e551011-7", line(SECRET, cwd="/zoo"), here + b"\n", line("stays", cwd="/other"), there + b"\n")
    wanted = plan(found.grounds, ForgetRequest(project="/zoo"))
    sought = forgotten_text(found.grounds, wanted)
    carry_out(found.grounds, wanted, NOW)
    assert b"note-of-/other" in _archived_text(found)
    assert prove.prove(found.grounds, sought).proved
    left = found.home / "agents/cc-test/memory/transcripts/left.zst"
    for text, is_proved in ((there, True), (here, False)):
        left.write_bytes(archive.compressed(text + b"\n"))
        assert prove.prove(found.grounds, sought).proved == is_proved
