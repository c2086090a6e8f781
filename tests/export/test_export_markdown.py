"""Claims of the Markdown form: readable, linked, and no text breaks out of its place or becomes active."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from crystal.cli.render import agent_title, harmless, speaker
from crystal.export.labels import Wording
from crystal.export.markdown import _free_name, _head, _turn
from crystal.sessions.reading import SessionSummary, ShownTurn
from tests.support.exports import SESSION, exported, kept_sessions, remember, remember_samples

WORDING = Wording(speaker, agent_title, harmless)
MARKDOWN = MarkdownIt("commonmark")
PARTS = ["```", "~~~", "````js", "<script>", "</script>", "</details>", "<!--", "-->", "![x](http://e)", "![[x]]", "> ",
         "- ", "1. ", "  ", "    ", "\n", "\n\n", "\r", "\t", "x", "# h", "---", "===", "`", "[a]: b", "\\", "&lt;",
         "<![CDATA[", "<?", "|", "\0", "\x1b[31m", "\u2028", "<img src=x>", "<http://e>"]  # fmt: skip
hostile = st.lists(st.sampled_from(PARTS) | st.text(max_size=3), max_size=25).map("".join)


def session(title: str = "t", **fields: Any) -> SessionSummary:
    facts = {"id": "s", "project": None, "cwd": None, "branch": None, "agent": "a", "harness": "pi", "device": "d"}
    return SessionSummary(**{**facts, "title": title, "started_at": 0, "last_at": 0, "turns": 1, **fields})


def turn(text: str, role: str = "user", tool: str | None = None, subagent: str | None = None) -> list[str]:
    return list(_turn(ShownTurn(1, "u", 0, role, text, 0, tool, subagent=subagent), "pi", WORDING))


def tokens(lines: list[str]) -> list[Any]:
    return MARKDOWN.parse("\n".join(lines))


def every(found: list[Any]) -> Iterator[Any]:
    for token in found:
        yield token
        yield from every(token.children or [])


@given(hostile, hostile)
def test_no_text_leaves_its_quotation_or_its_fence(text: str, tool: str) -> None:
    found = tokens([*turn(text, subagent=tool), *turn(text, "tool_result", tool), "end"])
    top = [token.type for token in found if token.level == 0 and token.nesting >= 0]
    assert top == ["heading_open", "blockquote_open", "html_block", "fence", "html_block", "paragraph_open"]
    kinds = [token.type for token in every(found)]
    assert kinds.count("html_block") == 2
    assert not {"html_inline", "image"} & set(kinds)


@given(hostile)
def test_what_is_fenced_is_the_whole_text(text: str) -> None:
    [block] = [token for token in tokens(turn(text, "tool_result")) if token.type == "fence"]
    assert block.content == harmless(text.replace("\r\n", "\n").replace("\r", "\n")) + "\n"


@given(hostile)
def test_no_title_leaves_its_heading_or_the_front_matter(title: str) -> None:
    lines = list(_head(session(title, project=title, branch=title), WORDING))
    assert lines.count("---") == 2
    assert all(re.fullmatch(r'[a-z]+: ("([^"\\]|\\.)*"|\d+)', line) for line in lines[1 : lines.index("---", 1)])
    found = tokens([*lines[lines.index("---", 1) + 1 :], "end"])
    assert [token.type for token in found if token.level == 0 and token.nesting >= 0] == [
        "heading_open",
        "paragraph_open",
    ]
    assert all(
        token.type
        in ("heading_open", "inline", "text", "heading_close", "text_special", "paragraph_open", "paragraph_close")
        for token in every(found)
    )


@given(
    st.lists(
        st.text(max_size=80) | st.sampled_from(["con", "../../x", "a/b:c", ".", "nul.txt"]), min_size=2, max_size=8
    )
)
def test_every_system_takes_the_names_and_none_is_taken_twice(titles: list[str]) -> None:
    taken: set[str] = set()
    names = [_free_name(session(title, id=title), taken) for title in titles]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"1970-01-01(-[a-z0-9]+)*\.md", name) and len(name) < 100 for name in names)


def test_code_keeps_its_language_and_its_text() -> None:
    lines = turn("look:\n```python\na < b\n```\nso a < b")
    assert "> ```python\n> a < b\n> ```" in "\n".join(lines)
    assert "> so a &lt; b" in lines


def test_each_session_has_a_file_that_the_index_links_to(home: Path, tmp_path: Path) -> None:
    remember_samples(home, ["pi"])
    done = exported(tmp_path / "out", "markdown")
    files = {path.name for path in (tmp_path / "out").iterdir()}
    links = re.findall(r"\]\(([^)]+)\)", (tmp_path / "out" / "index.md").read_text("utf-8"))
    assert {"index.md", *links} == files
    assert len(links) == kept_sessions()
    assert f"{kept_sessions()} sessions" in done.out


def test_speakers_have_their_agents_names(home: Path, tmp_path: Path) -> None:
    remember(home, ["Which port?", "It is 4711."])
    exported(tmp_path / "out", "markdown")
    [path] = [path for path in (tmp_path / "out").iterdir() if path.name != "index.md"]
    text = path.read_text("utf-8")
    assert "### you · 2026" in text
    assert "### Claude · 2026" in text
    assert f'id: "{SESSION}"' in text
    assert "> It is 4711." in text
