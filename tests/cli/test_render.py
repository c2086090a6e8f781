import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.cli.render import (
    Look,
    cells,
    clipped,
    count_words,
    harmless,
    look_of,
    one_line,
    padded,
    say,
    snippet,
    speaker,
)
from crystal.search.highlight import match_spans
from tests.support.command import Terminal
from tests.support.store_factory import open_store
from tests.support.table import each_row

COLOUR = Look(60, colour=True)
PLAIN = Look(60, colour=False)
YELLOW, END = "\x1b[1;33m", "\x1b[0m"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with open_store(tmp_path_factory.mktemp("store")) as store:
        yield store


# ---------------------------------------------------------------------------------------------------------- matching


def marked(store, query, text):
    return [text[start:end] for start, end in match_spans(store, query, text)]


@each_row(
    ("query", "text", "words"),
    [
        ("connect", "Connecting, connected: connections", ["Connecting", "connected", "connections"]),
        ("how is the login", "the login is done", ["login"]),
        ('"connection refused"', "a connection\n refused", ["connection\n refused"]),
        ("foo_bar.baz()", "call foo_bar.baz() now", ["foo_bar.baz"]),
        ("cafe", "im Café nebenan", ["Café"]),
        ("数据库", "我们用数据库工具", ["数据库"]),
        ("donaudampf", "Donaudampfschiff ahoi", ["Donaudampfschiff"]),
        ("emoji", "🦀🦀 emoji 🦀 emoji", ["emoji", "emoji"]),
        ("nothing", "here", []),
    ],
)
def test_the_words_that_answer_are_found_in_the_text(store, query, text, words):
    assert marked(store, query, text) == words


@pytest.mark.slow
@given(query=st.text(max_size=30), text=st.text(max_size=200))
def test_spans_are_in_order_inside_the_text_and_apart(store, query, text):
    last = 0
    for start, end in match_spans(store, query, text):
        assert last <= start < end <= len(text)
        last = end


# ---------------------------------------------------------------------------------------------------------- snippets


def test_marks_are_visible_and_only_with_colours(store):
    text = "the login token"
    spans = match_spans(store, "token", text)
    assert snippet(text, spans, COLOUR) == [f"    the login {YELLOW}token{END}"]
    assert snippet(text, spans, PLAIN) == ["    the login token"]


def test_a_long_text_is_shown_around_its_matches(store):
    text = "filler " * 300 + "here the needle lies " + "filler " * 300
    lines = snippet(text, match_spans(store, "needle", text), PLAIN)
    assert len(lines) <= 3
    assert "needle" in " ".join(lines)
    assert lines[0].startswith("    …")
    assert lines[-1].endswith("…")
    assert all(cells(line) <= 60 for line in lines)


def test_the_place_with_most_different_words_is_chosen(store):
    text = "alpha " * 50 + "filler " * 100 + "alpha beta gamma " + "filler " * 100
    assert "beta gamma" in " ".join(snippet(text, match_spans(store, "alpha beta gamma", text), PLAIN))


def test_a_text_without_matches_is_shown_from_its_beginning():
    lines = snippet("one two three " * 100, [], PLAIN)
    assert lines[0].startswith("    one two three")
    assert lines[-1].endswith(" …")


@pytest.mark.slow
@given(text=st.text(max_size=400), width=st.integers(20, 100), data=st.data())
def test_lines_are_never_wider_than_the_terminal_nor_harmful(text, width, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8, unique=True)))
    spans = [(a, b) for a, b in zip(cuts[::2], cuts[1::2], strict=False)]
    lines = snippet(text, spans, Look(width, colour=False), indent="  ")
    assert len(lines) <= 3
    for line in lines:
        assert cells(line) <= width
        assert harmless(line) == line
        assert "\n" not in line


@pytest.mark.slow
@given(text=st.text(max_size=300), data=st.data())
def test_a_short_text_loses_no_word(text, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4, unique=True)))
    spans = [(a, b) for a, b in zip(cuts[::2], cuts[1::2], strict=False)]
    lines = snippet(text, spans, Look(110, colour=False), lines=400, indent="")
    assert "".join("".join(lines).split()) == "".join(harmless(text).split())


def test_wide_characters_are_counted_twice():
    lines = snippet("数" * 200, [], Look(21, colour=False), lines=3, indent="")
    assert all(cells(line) <= 21 for line in lines)
    assert lines[0] == "数" * 10


# -------------------------------------------------------------------------------------------------------------- text


@given(st.text())
def test_harmless_text_has_no_control_characters_and_the_same_length(text):
    safe = harmless(text)
    assert len(safe) == len(text)
    assert not any((ord(c) < 32 and c not in "\t\n") or 127 <= ord(c) < 160 for c in safe)
    assert not set(safe) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u2028\u2029")
    safe.encode()


def test_an_escape_sequence_becomes_visible():
    assert one_line("\x1b[31mred\x07\n\tx") == "␛[31mred␇ x"


def test_joined_emoji_and_scripts_keep_their_joiners():
    assert harmless("👩‍💻 नमस्ते می‌خواهم") == "👩‍💻 नमस्ते می‌خواهم"


@given(st.text(max_size=50), st.integers(1, 20))
def test_clipped_text_fits(text, width):
    assert cells(clipped(one_line(text), width)) <= width
    assert cells(padded(clipped(one_line(text), width), width)) == width


def test_who_said_it_in_words():
    assert speaker("user") == "you"
    assert speaker("tool_call", "Bash") == "Bash call"
    assert speaker("tool_result") == "tool result"
    assert speaker("something new") == "something new"


def test_what_an_encoding_lacks_becomes_a_question_mark():
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    say("naïve 数 \ud800", stream=out)
    out.flush()
    assert raw.getvalue().startswith(b"na?ve ? ?")


# -------------------------------------------------------------------------------------------------------------- look


def test_colours_only_on_a_terminal_and_not_against_the_users_will():
    assert look_of(Terminal(), {"TERM": "xterm", "WT_SESSION": "1"}).colour
    assert not look_of(io.StringIO(), {"TERM": "xterm"}).colour
    assert not look_of(Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}).colour
    assert look_of(Terminal(), {"TERM": "xterm", "NO_COLOR": ""}).colour
    assert not look_of(Terminal(), {"TERM": "dumb"}).colour


@each_row(("columns", "width"), [("60", 60), ("5", 20), ("9999", 110), ("x", 100), ("", 100), ("²", 100)])
def test_the_width_of_a_pipe_comes_from_the_environment(columns, width):
    assert look_of(io.StringIO(), {"COLUMNS": columns}).width == width


@each_row(("number", "noun", "words"), [(1, "memory", "1 memory"), (2, "memory", "2 memories"), (3, "day", "3 days")])
def test_a_noun_has_its_plural(number: int, noun: str, words: str) -> None:
    assert count_words(number, noun) == words
