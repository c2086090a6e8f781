"""Simple summaries: what they say, that they are Markdown and YAML whatever was said, and that nothing makes them fail."""

# ruff: noqa: ISC004  the world's punctuation; strings in pieces

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.store.sessions.sessions import Session, SessionCounts, SummaryTurn
from crystal.summarize.actions import session_actions
from crystal.summarize.markdown import (
    Actions,
    FileTouched,
    Paragraph,
    SummaryText,
    file_stem,
    new_summary_path,
    render,
)
from crystal.summarize.simple import summarize_simply
from crystal.summarize.topics import topics, words
from crystal.summarize.wording import code_span, cut, escaped, one_line, prose, sentences
from tests.support.table import each_row

SESSION = Session(
    1,
    "1f35fa49-0000-4000-8000-00000000cafe",
    "cc-desk",
    "desk",
    "engine",
    "/home/ada/engine",
    "/home/ada/engine",
    "main",
    None,
    1_795_219_200_000,
    1_795_222_800_123,
    None,
    9,
    0,
    None,
    None,
    None,
    0,
    "claude-code",
)
anything = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
ugly = st.sampled_from(
    ["---", "```", "# ", "- ", "| a |", "...", "<!--", "\u2028", "\x85", "\x00", "](", "[[", "。", "\\", "`" * 9]
)


def turns(*said: tuple[str, str]) -> list[SummaryTurn]:
    return [SummaryTurn(index, role, text, None, index, None, len(text)) for index, (role, text) in enumerate(said, 1)]


def front_matter(text: str) -> dict[str, object]:
    assert text.startswith("---\n")
    fields: dict[str, object] = {}
    for line in text[4 : text.index("\n---\n")].split("\n"):
        key, value = re.fullmatch(r" *([a-z_]+):(?: (.*))?", line).groups()  # type: ignore[union-attr]
        fields[key] = None if value is None else json.loads(value)
    return fields


WORK = turns(
    ("user", "Hi! The spool loses notes when the disk is full. Please find out why and repair `crystal/spool.py`."),
    ("assistant", "I will look at the spool first."),
    ("assistant", "The rename in write_note happens before the fsync, so a full disk leaves an empty note behind."),
    ("assistant", "Besides, the folder's permissions allow every user of the machine to read its contents."),
    ("user", "Then move the fsync before the rename and add a test for the full disk."),
    (
        "assistant",
        "Done. The fsync now comes before the rename in write_note. A new test, test_full_disk, fills a small file "
        "system and proves that no note is lost.\n\n```python\nassert notes == []\n```\nAll 41 tests pass.",
    ),
    ("user", "thanks"),
    ("assistant", "You're welcome!"),
)


def test_a_summary_says_what_was_asked_and_how_it_ended() -> None:
    text = summarize_simply(WORK, title=None, session_id="x")
    assert text.title == "The spool loses notes when the disk is full"
    labels = {paragraph.label: paragraph.text for paragraph in text.paragraphs if paragraph.label}
    assert labels["Asked"].startswith("Hi! The spool loses notes when the disk is full.")
    assert labels["Ended with"].startswith("Done. The fsync now comes before the rename")
    assert "All 41 tests pass." in labels["Ended with"]
    assert "assert notes" not in " ".join(paragraph.text for paragraph in text.paragraphs)
    assert {"fsync", "spool", "write_note"} <= {topic.lower() for topic in text.topics}


def test_what_stands_between_is_told_in_its_order_and_not_twice() -> None:
    between = [
        paragraph.text
        for paragraph in summarize_simply(WORK, title=None, session_id="x").paragraphs
        if not paragraph.label
    ]
    assert any(line.startswith("Besides, the folder's permissions") for line in between)
    assert len(between) == len(set(between))


def test_the_same_turns_give_the_same_text() -> None:
    assert len({summarize_simply(WORK, title=None, session_id="x") for _ in range(5)}) == 1


def test_a_given_title_wins() -> None:
    assert summarize_simply(WORK, title="Spool\nrepair", session_id="x").title == "Spool repair"


@each_row(
    ("said", "title"),
    [
        ([("user", "Fix the parser. It fails.")], "Fix the parser"),
        ([("user", "```\ncode\n```\n## Why does this fail?")], "Why does this fail?"),
        ([("user", "\n\n- [ ] repair the parser\n- second")], "repair the parser"),
        ([("user", "Implement the following plan:\n\n# Fix: empty repo\n\nIt fails.")], "Fix: empty repo"),
        ([("user", "Repair these:\n\n- the parser\n- the reader")], "Repair these: the parser"),
        ([("user", "!!!"), ("user", "real words")], "real words"),
        ([("user", "修复解析器。它失败了。")], "修复解析器"),
        ([("user", "لماذا يفشل هذا الاختبار؟ أصلحه.")], "لماذا يفشل هذا الاختبار؟"),
        ([("user", "यह परीक्षण विफल क्यों होता है। इसे ठीक करो।")], "यह परीक्षण विफल क्यों होता है।"),
        ([("user", "```python\nprint(1)\n```")], "```python print(1) ```".replace("`", "").strip()),
        ([("assistant", "I looked around. Nothing to do.")], "I looked around"),
        ([("subagent", "Count the files.")], "Count the files"),
        ([], "Session 1f35fa49"),
        ([("user", "…"), ("assistant", "🎉")], "Session 1f35fa49"),
        ([("user", "word " * 100)], "word " * 15 + "word…"),
    ],
)
def test_the_title_is_the_first_human_sentence(said: list[tuple[str, str]], title: str) -> None:
    assert summarize_simply(turns(*said), title=None, session_id=SESSION.session_id).title == title


def test_thanks_at_the_end_do_not_hide_the_answer_before() -> None:
    ended = next(
        p.text for p in summarize_simply(WORK, title=None, session_id="x").paragraphs if p.label == "Ended with"
    )
    assert "welcome" not in ended


def test_topics_are_names_and_repeated_words_in_any_script_but_no_filler() -> None:
    found = [
        term.text
        for term in topics(
            [
                ("Bitte repariere die Warteschlange, die Warteschlange verliert Notizen und das ist nicht gut", 2.0),
                ("数据库迁移失败了，请检查数据库迁移的日志", 2.0),
                (
                    "parse_turns in transcript/claude_code.py and parseTurns, https://example.com/secret/path [redacted:aws-key:1a2b3c4d]",
                    1.0,
                ),
                ("parse_turns again", 1.0),
            ],
            12,
        )
    ]
    assert {"Warteschlange", "parse_turns", "transcript/claude_code.py"} <= set(found)
    assert "数据库迁移" in found
    assert not {"die", "das", "ist", "nicht", "https", "secret", "redacted", "and", "请"} & {
        term.lower() for term in found
    }


def test_files_and_commands_come_from_tool_calls_each_once() -> None:
    calls = [
        SummaryTurn(1, "tool_call", "Read: /home/ada/engine/a.py", "Read"),
        SummaryTurn(2, "tool_call", "Edit: /home/ada/engine/a.py\nold_string: x\nnew_string: y", "Edit"),
        SummaryTurn(3, "tool_call", "Write: /etc/other\ncontent: Read: /not/this", "Write"),
        SummaryTurn(4, "tool_call", "NotebookEdit: /home/ada/engine/n.ipynb", "NotebookEdit"),
        SummaryTurn(5, "tool_call", "mcp__files__read_file: /home/ada/engine/b.md", "mcp__files__read_file"),
        SummaryTurn(6, "tool_call", "Bash: git status\ndescription: Show status\ntimeout: 5", "Bash"),
        SummaryTurn(7, "tool_call", "Bash: git status", "Bash"),
        SummaryTurn(8, "tool_call", "Bash: cat <<'E' > `x`\nbody\nE\ndescription: heredoc", "Bash"),
        SummaryTurn(9, "tool_call", "Glob: **/*.py\npath: /home/ada", "Glob"),
        SummaryTurn(10, "tool_call", "Bash", "Bash"),
        SummaryTurn(11, "tool_call", "Read", None),
        SummaryTurn(12, "tool_call", "description: no command", "Bash"),
    ]
    actions = session_actions(calls, below="/home/ada/engine/")
    assert actions.files == (
        FileTouched("a.py", ("edited", "read")),
        FileTouched("/etc/other", ("written",)),
        FileTouched("n.ipynb", ("edited",)),
        FileTouched("b.md", ("read",)),
    )
    assert actions.commands == ("git status", "cat <<'E' > `x` …")


def test_a_folder_that_only_begins_alike_is_not_the_projects() -> None:
    calls = [
        SummaryTurn(1, "tool_call", "Read: /home/ada/engineering/a.py", "Read"),
        SummaryTurn(2, "tool_call", r"Read: C:\w\e\a.py", "Read"),
    ]
    assert [file.path for file in session_actions(calls, below="/home/ada/engine").files] == [
        "/home/ada/engineering/a.py",
        r"C:\w\e\a.py",
    ]
    assert [file.path for file in session_actions(calls, below="C:\\w\\e").files][1] == "a.py"


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.sampled_from(["Read", "Bash", "Edit", None, "x__write_file"]), anything | ugly)),
    anything | st.none(),
)
def test_no_tool_call_makes_it_fail(calls: list[tuple[str | None, str]], below: str | None) -> None:
    said = [SummaryTurn(1, "tool_call", f"{tool}: {text}" if text else text, tool) for tool, text in calls]
    actions = session_actions(said, below=below)
    for line in (*actions.commands, *(file.path for file in actions.files)):
        assert len(line.splitlines()) == 1


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["user", "assistant", "subagent", "summary", "thinking"]),
            st.lists(anything | ugly).map("".join),
        ),
        max_size=8,
    )
)
def test_no_content_makes_it_fail(said: list[tuple[str, str]]) -> None:
    text = summarize_simply(turns(*said), title=None, session_id="odd")
    for line in (text.title, *text.topics, *(paragraph.text for paragraph in text.paragraphs)):
        assert line == " ".join(line.split())
        assert line
        assert len(line) <= 500
    body = render(SESSION, SessionCounts(), text, Actions(), model=None, instead=None)
    check_shape(body)
    assert front_matter(body)["title"] == text.title


def check_shape(body: str) -> None:
    """Nothing that was said can add a heading, a field or a line of its own."""
    lines = body.split("\n")
    assert body.splitlines() == lines[:-1]
    assert lines.count("---") == 2
    headings = [line for line in lines if line.startswith("#")]
    assert headings[0].startswith("# ")
    assert headings[1:] == ["## Summary", "## Key topics", "## Files touched", "## Commands run"]


@pytest.mark.slow
@given(anything | ugly, anything | ugly, st.none() | anything | ugly)
def test_the_front_matter_survives_any_name(name: str, branch: str, cwd: str | None) -> None:
    session = Session(
        1,
        name or "s",
        name,
        branch,
        name,
        cwd,
        None,
        branch,
        None,
        -1,
        10**18,
        None,
        1,
        0,
        None,
        None,
        None,
        0,
        "codex",
    )
    text = SummaryText("t", (Paragraph("p"),), ())
    body = render(session, SessionCounts(1, 2, 3, 4), text, Actions(), model="m: #x", instead="no: 'key'")
    check_shape(body)
    fields = front_matter(body)
    assert (fields["project"], fields["branch"], fields["cwd"]) == (name, branch, cwd)
    assert (fields["user"], fields["assistant"], fields["tool_calls"], fields["subagents"]) == (1, 2, 3, 4)
    assert (fields["mode"], fields["model"], fields["instead"]) == ("llm", "m: #x", "no: 'key'")


def test_the_file_reads_as_documented() -> None:
    paragraphs = (
        Paragraph("The spool loses notes when the disk is full. Please repair `crystal/spool.py`.", "Asked"),
        Paragraph("Then move the fsync before the rename and add a test for the full disk."),
        Paragraph("Done. The fsync now comes before the rename in write_note. All 41 tests pass.", "Ended with"),
    )
    text = SummaryText("The spool loses notes when the disk is full", paragraphs, ("spool", "fsync", "write_note"))
    actions = Actions(
        (FileTouched("crystal/spool.py", ("edited", "read")), FileTouched("tests/test_spool.py", ("written",))),
        ("git log -p | head -50", "echo `uname`"),
    )
    page = Path(__file__).parents[2].joinpath("docs/reference/session-summary.md").read_text("utf-8")
    example = page.split("````markdown\n")[1].split("````\n")[0]
    assert render(SESSION, SessionCounts(2, 3, 4, 1), text, actions, model=None, instead=None) == example


def test_long_lists_say_how_much_is_left_out() -> None:
    actions = Actions((), tuple(f"command {number}" for number in range(73)))
    body = render(SESSION, SessionCounts(), SummaryText("t", (), ()), actions, model=None, instead=None)
    assert "- `command 49`\n- and 23 more\n" in body
    assert "## Summary\n\nNone.\n" in body


@each_row(
    ("session_id", "stem"),
    [("1f35fa49-0000-4000-8000-00000000cafe", "1f35fa49-0000-4000-8000-00000000cafe"), ("agent_7", "agent_7")],
)
def test_an_ordinary_id_is_its_own_file_name(session_id: str, stem: str) -> None:
    assert file_stem(session_id) == stem


@pytest.mark.slow
@given(st.text(max_size=400), st.text(max_size=400))
def test_any_other_id_gets_a_safe_name_that_no_other_has(one: str, other: str) -> None:
    stems = [file_stem(one), file_stem(other)]
    assert all(
        re.fullmatch(r"[a-z0-9_][a-z0-9_-]{0,99}", stem) and "--" not in stem and not stem.endswith("-")
        for stem in stems
    )
    assert (stems[0] == stems[1]) == (one == other)


def test_the_name_holds_the_utc_day_of_the_first_turn() -> None:
    assert new_summary_path(SESSION) == "sessions/2026-11-21--1f35fa49-0000-4000-8000-00000000cafe.md"
    timeless = SESSION._replace(started_at=None)
    assert new_summary_path(timeless) == "sessions/undated--1f35fa49-0000-4000-8000-00000000cafe.md"


@given(anything | st.lists(ugly).map("".join))
def test_one_line_is_one_line_of_printable_characters(text: str) -> None:
    line = one_line(text)
    assert len(line.splitlines()) <= 1
    assert all(character.isprintable() or character in "\u200c\u200d" for character in line)
    assert one_line(line) == line


@given(anything, st.integers(10, 100))
def test_a_cut_line_is_short_and_says_so(text: str, limit: int) -> None:
    line = one_line(text)
    short = cut(line, limit)
    assert len(short) <= limit
    assert short == line or (short.endswith("…") and line.startswith(short[:-1].rstrip()))


@pytest.mark.slow
@given(anything | st.lists(ugly).map("".join))
def test_escaping_takes_nothing_away(text: str) -> None:
    line = one_line(text)
    assert re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", escaped(line)) == line


def test_code_spans_hold_any_number_of_backticks() -> None:
    assert [code_span(line) for line in ("a", "a`b", "`a", "``", "")] == [
        "`a`",
        "``a`b``",
        "`` `a ``",
        "``` `` ```",
        "",
    ]


def test_prose_leaves_out_code_tables_and_rules() -> None:
    text = "# Title\n> quoted\n| a | b |\n|---|---|\n***\n~~~\ncode\n```\nstill code\n~~~\n1. one\n  - **two**\n```sh\nopen fence"
    assert prose(text) == ["Title", "quoted", "one", "two"]


def test_sentences_end_where_readers_see_them_end() -> None:
    assert sentences("See e.g. file a.py, v1.2.3. Then z.B. dies! “Why?” he said. Dr. Who? Ok") == [
        "See e.g. file a.py, v1.2.3.",
        "Then z.B. dies!",
        "“Why?” he said.",
        "Dr. Who?",
        "Ok",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["." * 10**6, "(" * 10**6, "a." * 10**6, "`" * 10**6, "a_" * 10**6, "漢" * 10**6, "[" * 10**6, "- " * 10**6]
)
def test_hostile_text_takes_linear_time(text: str) -> None:
    began = time.perf_counter()
    sentences(text[:200_000])
    words(text[:200_000])
    escaped(one_line(text[:200_000]))
    code_span(text[:200_000])
    assert time.perf_counter() - began < 5
