"""What repeats a forgotten line without being one: the client's notes, summaries, and long results that only share it."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crystal.config.harnesses import CLAUDE_CODE
from crystal.config.temporary_files import hold
from crystal.forgetting.execute.execute import carry_out, finish
from crystal.forgetting.match import archive_lines
from crystal.forgetting.match.patterns import TextMatcher
from crystal.forgetting.match.query_terms import Terms
from crystal.forgetting.plan.planner import plan
from crystal.forgetting.request import ForgetPlan, ForgetRequest
from crystal.ingest.forgotten_filter import forgotten_lines, without_lines
from crystal.model.capture import Origin, Segment, SegmentPiece, Watermark
from crystal.store.forget.forgetting import (
    Tombstone,
    add_tombstones,
    is_session_forgotten,
    open_tombstones,
    read_blocks,
)
from crystal.store.forget.forgotten_rows import KeptRow
from tests.support.archive_frames import frames_in
from tests.support.capture_machine import NOW, line
from tests.support.forgetting_ground import Ground, ground

SESSION = "5e551011-aaaa-4000-8000-000000000000"
HERE, THERE = "/home/dev/quartz", "/home/dev/basalt"


def note(text: str, kind: str = "last-prompt", field: str = "lastPrompt") -> bytes:
    return json.dumps({"type": kind, field: text, "sessionId": SESSION}).encode() + b"\n"


@pytest.fixture
def clean(tmp_path: Path) -> Ground:
    return ground(tmp_path / "home", sessions=1, turns=2)


def forget(clean: Ground, wish: ForgetRequest, now: int = NOW + 10**6) -> ForgetPlan:
    made = plan(clean.grounds, wish)
    carry_out(clean.grounds, made, now)
    return made


def archived(clean: Ground) -> bytes:
    files = sorted((clean.home / "agents").rglob("*.zst"))
    return b"".join(text for file in files for text in frames_in(file))


@pytest.mark.parametrize(
    "wish", [ForgetRequest(project=HERE), ForgetRequest(before=NOW + 50), ForgetRequest(session=SESSION)]
)
def test_notes_and_summaries_that_came_later_go_with_a_scope(clean: Ground, wish: ForgetRequest) -> None:
    clean.say(SESSION, line("the zanzibar recipe", at=NOW, cwd=HERE))
    clean.say(SESSION, note("the zanzibar recipe"))  # in a frame of its own: nothing tells when and where
    clean.say(SESSION, line("They said: the zanzibar recipe", at=NOW + 99, cwd=THERE, isCompactSummary=True))
    clean.say(SESSION, line("something else", at=NOW + 200, cwd=THERE), note("the zanzibar recipe"))
    made = forget(clean, wish)
    assert "summary" in {item.because for item in made.items} or wish.session
    assert b"zanzibar" not in archived(clean)
    assert not [text for text in clean.machine.texts() if "zanzibar" in text]
    assert ("something else" in clean.machine.texts()) == (wish.session is None)


def test_notes_of_the_same_hour_stay_if_a_forgotten_text_tells_the_time(clean: Ground) -> None:
    notes = [note(f"2026-11-22T07:30:{second:02}.632Z", "hook", "startedAt") for second in range(20)]
    log = "2026-11-22T07:30:31.632+00:00 the zanzibar recipe"
    clean.say(SESSION, *notes, line(log, ident="gone"), note("the zanzibar recipe, again"))
    made = forget(clean, ForgetRequest(targets=("gone",)))
    assert [item.because for item in made.items if item.kind == "note"] == ["bookkeeping"]
    assert all(one in archived(clean) for one in notes)
    assert b"zanzibar" not in archived(clean)


def test_a_long_result_that_has_one_line_in_common_stays_whole(clean: Ground) -> None:
    shared = "from the common library import everything"
    result = "\n".join([*(f"first line {number}" for number in range(900)), shared, *map(str, range(3000))])
    block = {"type": "tool_result", "tool_use_id": "t", "content": result}
    clean.say(SESSION, line("", message={"role": "user", "content": [block]}, ident="result"))
    clean.say("5e551011-b", line(f"{shared}\nand the zanzibar recipe", ident="gone"))
    assert not [text for text in clean.machine.texts("tool_result") if shared in text], "the middle is not a chunk"
    made = forget(clean, ForgetRequest(targets=("gone",)))
    assert [item.uuid for item in made.items] == ["gone"]
    assert archived(clean).count(shared.encode()) == 1
    assert b"zanzibar" not in archived(clean)


def segment(*lines: bytes) -> Segment:
    clean = b"".join(lines)
    starts = [sum(map(len, lines[:number])) for number in range(len(lines))]
    said = tuple((start, one.rstrip(b"\n")) for start, one in zip(starts, lines, strict=True))
    origin, mark = Origin("cc-test", "desk", SESSION), Watermark(SESSION)
    return Segment(origin, "/x.jsonl", mark, mark, (SegmentPiece(0, len(clean), "captured", None, clean, None, said),))


def test_a_note_goes_with_the_forgotten_line_that_it_came_with(clean: Ground) -> None:
    store = clean.machine.store
    project = Tombstone("a" * 32, "project", {"folders": [HERE], "lines": []}, NOW + 50, NOW + 50, "elsewhere")
    with store.transaction():
        add_tombstones(store, [project], NOW)
    blocks = read_blocks(store)
    assert blocks is not None
    lines = (line("the zanzibar recipe", at=NOW, cwd=HERE), note("zanzibar"), line("another", at=NOW + 99, cwd=THERE))
    coming = segment(*lines)
    gone = forgotten_lines(blocks, coming)
    assert gone == {0, len(lines[0])}
    kept = without_lines(coming, gone)
    assert b"zanzibar" not in b"".join(piece.clean for piece in kept.pieces)
    assert forgotten_lines(blocks, segment(*lines[1:])) == frozenset(), "nothing tells yet what the note repeats"


def test_who_leaves_a_line_out_names_its_session_to_the_others(clean: Ground) -> None:
    store = clean.machine.store
    project = Tombstone("a" * 32, "project", {"folders": [HERE], "lines": []}, NOW + 50, NOW + 50, "elsewhere")
    with store.transaction():
        add_tombstones(store, [project], NOW)
    clean.say(SESSION, line("the zanzibar recipe", at=NOW, cwd=HERE))
    assert is_session_forgotten(store, SESSION)
    named = [one for _, one in open_tombstones(store) if SESSION in one.sessions]
    assert [(one.kind, one.lines, one.device) for one in named] == [("lines", (), "desk")]
    assert finish(clean.grounds, NOW + 10**6) == 0
    clean.say(SESSION, note("the zanzibar recipe"))
    assert b"zanzibar" not in archived(clean)


def test_what_a_killed_process_was_writing_goes_and_what_somebody_writes_waits(clean: Ground) -> None:
    clean.say(SESSION, line("the zanzibar recipe", ident="gone"))
    left = clean.home / "agents/cc-test/memory/sessions/.crystal-1-abc.tmp"
    left.parent.mkdir(parents=True, exist_ok=True)
    with left.open("w") as file:
        hold(file.fileno())
        file.write("the zanzibar recipe")
        forget(clean, ForgetRequest(targets=("gone",)))
        assert left.exists()
        assert open_tombstones(clean.machine.store), "so this is not done yet"
    assert finish(clean.grounds, NOW + 3_600_000) == 0
    assert not left.exists()


@pytest.mark.parametrize(
    ("titled", "left"),
    [
        ({"type": "summary", "summary": "Family", "leafUuid": "gone"}, None),
        ({"type": "custom-title", "customTitle": "Family"}, "Family"),
    ],
)
def test_a_summary_of_a_forgotten_message_is_no_title_any_more(clean, titled, left):
    told = json.dumps(titled).encode() + b"\n"
    clean.say(SESSION, told, line("the zanzibar recipe", ident="gone"), line("else", parentUuid="gone"))
    title = "SELECT title FROM sessions WHERE session_id = ?"
    assert clean.machine.store.value(title, (SESSION,)) == "Family"
    forget(clean, ForgetRequest(targets=("gone",)))
    assert clean.machine.store.value(title, (SESSION,)) == left


# ------------------------------------------------------------------------------------ between the list and the deletion

SAID = "the zanzibar recipe of the quokka keeper"
EVENTS = {
    "note": (SESSION, note(SAID)),
    "note elsewhere": ("5e551011-c", line("plain", ident="plain"), note(f"zanzibar: {SAID}")),
    "fork": ("5e551011-f", line(SAID, ident="gone"), line("the fork goes on", ident="fork")),
    "quotation": ("5e551011-b", line(f"They said: {SAID}!", ident="quoting")),
    "word": (SESSION, line("what is zanzibar?", ident="asking")),
    "escaped": ("5e551011-e", line(SAID, ident="gone").replace(b"gone", b"\\u0067one")),
    "other": (SESSION, line("the okapi song", ident="okapi")),
}


def left_after(folder: Path, events: tuple[list[str], list[str]], *, is_searched_again: bool) -> list[list[object]]:
    """What is left of all that if some of it comes before and some after the list was made."""
    clean = ground(folder, sessions=1, turns=2)
    clean.say(SESSION, line("the okapi dance", ident="dance"), line(SAID, ident="gone"))
    is_danced = False
    for at, names in enumerate(events):
        for name in names:
            if name == "forget":
                if not is_danced:
                    forget(clean, ForgetRequest(targets=("dance",)))
                is_danced = True
            else:
                clean.say(*EVENTS[name])  # type: ignore[arg-type]
        if at == 0:
            made = plan(clean.grounds, ForgetRequest(targets=("gone",)))
    carry_out(clean.grounds, replace(made, searched=None) if is_searched_again else made, NOW + 10**6)
    finish(clean.grounds, NOW + 10**6)
    own = [one for one in archived(clean).splitlines() if b"5e551011-0" not in one and b"uuid" in one]
    named = [
        one for one in own if any(word in one for word in (b"zanzibar", b"okapi", b"plain", b"fork", b"_forgotten"))
    ]
    return [sorted(named), sorted(text for text in clean.machine.texts() if "a" in text and len(text) < 60)]


_events = st.lists(st.sampled_from([*EVENTS, "forget"]), max_size=4)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.tuples(_events, _events))
def test_archives_searched_once_lose_the_same_lines_as_those_searched_twice(
    events: tuple[list[str], list[str]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        once, twice = (left_after(Path(folder) / name / "home", events, is_searched_again=name == "b") for name in "ab")
    assert once == twice
    assert not any(b"recipe" in one for one in once[0])  # type: ignore[operator]


def test_an_archive_is_searched_again_only_if_it_has_changed(clean: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    clean.say(SESSION, line(SAID, ident="gone"))
    clean.say("5e551011-b", line("something else", ident="else"))
    made = plan(clean.grounds, ForgetRequest(targets=("gone",)))
    clean.say("5e551011-c", *EVENTS["note elsewhere"][1:])  # type: ignore[arg-type]
    read: list[str] = []
    text_of_row = archive_lines.text_of_row
    monkeypatch.setattr(archive_lines, "text_of_row", lambda row, home: read.append(row.key) or text_of_row(row, home))
    carry_out(clean.grounds, made, NOW + 10**6)
    assert read == ["5e551011-c"]
    assert b"zanzibar" not in archived(clean)


def test_the_list_has_what_shares_a_word_where_a_note_repeats_it_and_nothing_is_read_again(
    clean: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean.say(SESSION, line(SAID, ident="gone"))
    others = (line("plain"), note("about zanzibar"), note(f"zanzibar: {SAID}"), note("about okapis"))
    clean.say("5e551011-c", *(one.replace(SESSION.encode(), b"5e551011-c") for one in others))
    made = plan(clean.grounds, ForgetRequest(targets=("gone",)))
    assert [item.because for item in made.items if item.kind == "note"] == ["bookkeeping"] * 2
    monkeypatch.setattr(archive_lines, "text_of_row", None)
    carry_out(clean.grounds, made, NOW + 10**6)
    assert b"zanzibar" not in archived(clean)
    assert b"about okapis" in archived(clean)


def test_a_word_that_was_forgotten_elsewhere_meanwhile_is_searched_for(clean: Ground) -> None:
    clean.say(SESSION, line(SAID, ident="gone"), line("the zanzibar zoo", ident="twin"))
    clean.say("5e551011-c", line("something else", ident="else"), note("about zanzibar"))
    made = plan(clean.grounds, ForgetRequest(targets=("gone",)))
    forget(clean, ForgetRequest(targets=("twin",)))
    assert b"about zanzibar" in archived(clean)  # a text that stays has the word
    carry_out(clean.grounds, made, NOW + 10**6)
    assert b"zanzibar" not in archived(clean)


@pytest.mark.slow
@given(st.lists(st.sampled_from([one for _, *lines in EVENTS.values() for one in lines] + [line(SAID, ident="a\\b")]),
                max_size=8), st.sets(st.sampled_from(["gone", "quoting", "a\\b"])), st.booleans())  # fmt: skip
def test_lines_read_alone_match_as_those_read_with_all_others(
    lines: list[bytes], ids: set[str], has_words: bool
) -> None:
    row = KeptRow(1, 1, SESSION, SESSION, None, CLAUDE_CODE, "desk", "x", 0, 1, 0, b"")
    found = []
    for alone in (frozenset({CLAUDE_CODE}), frozenset[str]()):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(archive_lines, "text_of_row", lambda *_: b"".join(lines))
            patch.setattr(archive_lines, "READ_ALONE", alone)
            terms = Terms.of("zanzibar recipe") if has_words else None
            texts = TextMatcher([SAID], {"zanzibar"})
            search = archive_lines.ArchiveSearch(frozenset(ids), texts, {SESSION}, terms, "quoting".__eq__)
            found.append(list(search.run([row], Path())))
    assert found[0] == found[1]
