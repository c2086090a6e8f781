"""What a call did, from its text: edits with their lines, commands."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from crystal.transcript.parts import call_text
from crystal.work.calls import ToolCall, calls_of, command_key
from tests.support.table import each_row

lines = st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=12), max_size=6)


def is_plain(text: list[str]) -> bool:
    """A line of the text that looks like an argument is taken for one."""
    return not any(line.partition(":")[0].isidentifier() for line in text)


@given(lines.filter(is_plain), lines.filter(is_plain))
def test_an_edit_is_what_it_adds_and_removes(old: list[str], new: list[str]) -> None:
    arguments = {"file_path": "/code/shop/a.go", "old_string": "\n".join(old), "new_string": "\n".join(new)}
    (call,) = calls_of("Edit", call_text("Edit", arguments))
    before, after = (Counter("\n".join(one).splitlines()) for one in (old, new))
    assert call[:3] == (True, "/code/shop/a.go", "a.go")
    assert (Counter(call.added), Counter(call.removed)) == (after - before, before - after)


PATCH = "*** Begin Patch\n*** Update File: src/a.py\n@@\n same\n-old\n+new\n*** Add File: b.py\n+all\n*** End Patch\n"
EDITS = [
    ("write", "Write", {"file_path": "/a/b.py", "content": "one\ntwo"}, [("/a/b.py", ("one", "two"), ())]),
    ("a text with a path in it", "Write", {"file_path": "/b.yml", "content": "x:\npath: y\nz"},
     [("/b.yml", ("x:", "path: y", "z"), ())]),
    ("several in one", "MultiEdit", {"file_path": "a", "edits": [{"old_string": "1", "new_string": "2"},
     {"old_string": "3", "new_string": "4"}]}, [("a", ("2", "4"), ("1", "3"))]),
    ("OpenCode", "edit", {"filePath": "/a.ts", "oldString": "p", "newString": "q"}, [("/a.ts", ("q",), ("p",))]),
    ("Gemini CLI", "write_file", {"content": "q", "file_path": "/a.ts"}, [("/a.ts", ("q",), ())]),
    ("Pi", "edit", {"path": "a.ts", "edits": [{"oldText": "p", "newText": "q"}]}, [("a.ts", ("q",), ("p",))]),
    ("Cline", "editor", {"path": "/a.ts", "old_text": "p", "new_text": "q"}, [("/a.ts", ("q",), ("p",))]),
    ("Kiro", "fs_write", {"path": "a.py", "text": "one\ntext: two"}, [("a.py", ("one", "text: two"), ())]),
    ("Goose", "developer__text_editor", {"command": "str_replace", "path": "a.py", "old_str": "p", "new_str": "q"},
     [("a.py", ("q",), ("p",))]),
    ("Goose reads", "developer__text_editor", {"command": "view", "path": "a.py"}, []),
    ("Codex", "apply_patch", {"input": PATCH}, [("src/a.py", ("new",), ("old",)), ("b.py", ("all",), ())]),
    ("Codex in a shell", "shell", {"command": f"apply_patch <<'EOF'\n{PATCH}EOF"},
     [("src/a.py", ("new",), ("old",)), ("b.py", ("all",), ())]),
    ("Codex moves a file", "apply_patch", {"input": PATCH.replace("\n@@", "\n*** Move to: lib/a b.py\n@@")},
     [("mv src/a.py 'lib/a b.py'", (), ()), ("lib/a b.py", ("new",), ("old",)), ("b.py", ("all",), ())]),
    ("a read", "Read", {"file_path": "/a"}, []),
    ("no path", "Edit", {"old_string": "a"}, []),
]  # fmt: skip


@each_row(("tool", "arguments", "expected"), [row[1:] for row in EDITS])
def test_each_agents_edits_are_read(
    tool: str, arguments: dict[str, object], expected: list[tuple[object, ...]]
) -> None:
    found = calls_of(tool, call_text(tool, arguments))
    assert [(call.what, call.added, call.removed) for call in found] == expected


def test_a_command_is_one_line_without_its_description() -> None:
    text = call_text("Bash", {"command": "cd /code/shop &&\n  make  test 2>&1 | tail -30", "description": "Run tests"})
    assert calls_of("Bash", text) == [
        ToolCall(False, "cd /code/shop && make test 2>&1 | tail -30", "make test", about="Run tests")
    ]


@each_row(
    ("tool", "arguments"),
    [
        ("run_commands", {"commands": ["make test"]}),
        ("exec", {"command": "make test"}),
        ("terminal", {"command": "make test", "cd": "shop"}),
        ("run_in_terminal", {"command": "make test", "explanation": "Runs the tests"}),
        ("run_terminal_command_v2", {"command": "make test"}),
    ],
)
def test_each_agents_commands_are_read(tool: str, arguments: dict[str, object]) -> None:
    assert [call.what for call in calls_of(tool, call_text(tool, arguments))] == ["make test"]


@each_row(
    ("line", "key"),
    [
        ("make test 2>&1", "make test"),
        ("cd 'a b' && make test | head -n 5", "make test"),
        ("make test 2>/dev/null; echo $?", "make test"),
        ("cd a", "cd a"),
        ("grep -c tail x", "grep -c tail x"),
    ],
)
def test_the_same_command_is_known_again(line: str, key: str) -> None:
    assert command_key(line) == key


@given(st.text(), st.sampled_from(["Bash", "Edit", "Write", "apply_patch", "mcp__x__edit_file", "Read", None]))
def test_any_text_is_read(text: str, tool: str | None) -> None:
    for call in calls_of(tool, text):
        assert call.what
        assert "\n" not in call.what
