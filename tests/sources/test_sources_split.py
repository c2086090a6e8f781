"""Where files are split, and that nothing of them is lost."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.sources import code
from crystal.sources.split import file_chunks, sections
from tests.support.table import each_row

LINES = st.sampled_from(
    ["# A", "## B", "###### C #", "Title\n=====", "Sub\n---", "```", "~~~", "    code", "word", "", "- item", "ü",
     "def f(x):", "class A:", "    def g(self):", "        return 1", "@dec", "async def h(): pass", "}", "func F() {",
     "export const f = () => 1", "// note", "impl X for Y {", "x" * 900]
)  # fmt: skip
TEXTS = st.lists(LINES, max_size=30).map("\n".join) | st.text(max_size=200)
PATHS = st.sampled_from(["a.md", "a.py", "a.ts", "a.go", "a.rs", "a.c", "a.cpp", "a.java", "a.tsx", "a.txt", "noext"])


@given(PATHS, TEXTS)
def test_sections_follow_each_other_and_every_word_is_in_a_chunk_at_its_line(path: str, text: str) -> None:
    found = sections(path, text)
    assert "".join(text[one.start : one.end] for one in found) == text
    assert all(one.start <= one.end and "\n" not in one.title for one in found)
    lines = text.split("\n")
    covered: set[int] = set()
    for chunk in file_chunks(path, text):
        assert 1 <= chunk.first_line <= chunk.last_line <= len(lines)
        covered.update(range(chunk.first_line, chunk.last_line + 1))
        inside = "\n".join(lines[chunk.first_line - 1 : chunk.last_line])
        assert chunk.text in inside
        assert chunk.text.strip()
    assert all(number in covered for number, line in enumerate(lines, 1) if re.search(r"\w", line))


def titles(path: str, text: str) -> list[tuple[str, int, int]]:
    return [(chunk.title, chunk.first_line, chunk.last_line) for chunk in file_chunks(path, text)]


def test_markdown_is_split_at_headings_with_the_path_of_headings_as_title() -> None:
    text = "intro\n\n# Guide\n\n## Install\n\npip\n\n```sh\n# no heading\n```\n\n### Linux\n\napt\n\n## Use\n\nrun\n\nEnd\n===\nbye\n"
    assert titles("a.md", text) == [
        ("", 1, 1),
        ("Guide > Install", 3, 11),
        ("Guide > Install > Linux", 13, 15),
        ("Guide > Use", 17, 19),
        ("End", 21, 23),
    ]


def need_grammar(path: str) -> None:
    pytest.importorskip("tree_sitter")
    pytest.importorskip(code.GRAMMARS[path.rpartition(".")[2]].package)


def test_code_is_split_at_functions_and_large_classes_at_methods() -> None:
    need_grammar("a.py")
    body = "\n".join(f"        x{number} = {number}" for number in range(60))
    text = f'"""Doc."""\n\nimport os\n\n\n# About f\n@cache\ndef f():\n    pass\n\n\nclass A:\n    y = 1\n\n    def g(self):\n{body}\n\n    def h(self):\n{body}\n'
    assert titles("a.py", text) == [("", 1, 3), ("f", 6, 9), ("A", 12, 13), ("A.g", 15, 75), ("A.h", 77, 137)]


@each_row(
    ("path", "text", "names"),
    [
        ("a.ts", "const K = 1\nexport const f = () => 1\nclass A { m() {} }\ninterface I {}\n", ["", "f", "A", "I"]),
        ("a.go", "package x\n\nfunc (t *T) F() {}\n\ntype T struct {}\n", ["", "F", "T"]),
        ("a.rs", "use x;\nimpl Foo for Bar { fn x() {} }\nfn main() {}\n", ["", "Bar", "main"]),
        ("a.c", "#include <x>\nstatic int *foo(int a) { return 0; }\n", ["", "foo"]),
        ("a.cpp", "int A::foo() {}\ntemplate<class T> class X {};\n", ["foo", "X"]),
        ("a.java", "class A { void b() {} }\n", ["A"]),
    ],
)
def test_names_of_definitions(path: str, text: str, names: list[str]) -> None:
    need_grammar(path)
    assert [title for title, *_ in titles(path, text)] == names


def test_without_a_grammar_code_is_split_at_paragraphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "_parser", lambda _: None)
    assert titles("a.py", "def f():\n    pass\n") == [("", 1, 2)]


def test_a_chunk_keeps_the_indent_of_its_first_line() -> None:
    assert [chunk.text for chunk in file_chunks("a.txt", "\n\n    indented\n\n")] == ["    indented"]
