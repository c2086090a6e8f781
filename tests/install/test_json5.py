"""Claims of install/json5: JSON5 is read as it means, and OpenClaw's file in it is edited without changing the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crystal.install.json5 import as_json
from crystal.install.jsontext import JsonSyntaxError
from crystal.install.live import json_entries
from crystal.install.live.json_entries import Entry
from tests.install.test_live import files_in, install, remove
from tests.support.examples import examples
from tests.support.table import each_row

ENTRIES = [
    Entry(("plugins", "load", "paths"), "/f/crystal-plugin"),
    Entry(("plugins", "entries"), {"enabled": True, "hooks": {}}, "crystal"),
]
BLANKS = st.text(" \t\n", max_size=2) | st.sampled_from(["/* , } */", '// it\'s "mine"\n', "\ufeff", "\v\u00a0"])
NAMES = st.sampled_from(
    ["plugins", "load", "paths", "entries", "a", "$b_1", "\u00e4", "it's", 'say "x"', "", "a b", "//"]
)
TEXTS = NAMES | st.text(max_size=4)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
PLUGINS = st.fixed_dictionaries(
    {}, optional={"load": st.fixed_dictionaries({}, optional={"paths": st.lists(TEXTS, max_size=2)}),
                  "entries": st.dictionaries(NAMES, VALUES, max_size=2)},
)  # fmt: skip


def written(draw: st.DrawFn, value: Any) -> str:
    """Return a value as JSON5, each of its freedoms used at random."""
    gap = draw(BLANKS)
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
        if draw(st.booleans()):
            text = "'" + text[1:-1].replace('\\"', '"').replace("'", draw(st.sampled_from(["\\'", "\\x27"]))) + "'"
        return gap + text.replace("a", draw(st.sampled_from(["a", "\\\na", "\\x61"])))
    if not isinstance(value, dict | list):
        return gap + json.dumps(value)
    if isinstance(value, list):
        parts = [written(draw, item) for item in value]
    else:
        parts = [f"{_key(draw, key)}{draw(BLANKS)}:{written(draw, item)}" for key, item in value.items()]
    end = (draw(st.sampled_from(["", ","])) if parts else "") + draw(BLANKS)
    inside = gap + f"{draw(BLANKS)},".join(parts) + draw(BLANKS) + end
    return f"[{inside}]" if isinstance(value, list) else f"{{{inside}}}"


def _key(draw: st.DrawFn, key: str) -> str:
    plain = key.replace("$", "").isidentifier() and draw(st.booleans())
    return f"{draw(BLANKS)}{key}" if plain else written(draw, key)


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, Any]:
    """A document in JSON5, and what it means."""
    value = {**draw(st.dictionaries(NAMES, VALUES, max_size=2)), "plugins": draw(PLUGINS)}
    if draw(st.booleans()):
        del value["plugins"]
    return written(draw, value) + draw(BLANKS), value


@pytest.mark.slow
@examples(100)
@given(documents())
@example(("{plugins: {load: {paths: ['/mine',],},}, // mine\n}", {"plugins": {"load": {"paths": ["/mine"]}}}))
def test_what_is_added_to_json5_comes_out_again(document: tuple[str, Any]) -> None:
    text, value = document
    assert json.loads(as_json(text).text) == value
    kept = json_entries.containers(text, ENTRIES)
    after = json_entries.added(text, ENTRIES, kept)
    assert len(json_entries.ours(after)) == len(ENTRIES)
    assert json_entries.others(json.loads(as_json(after).text)) == json_entries.others(value)
    assert json_entries.added(after, ENTRIES, kept) == after
    assert json_entries.removed(after, kept) == text


@each_row(
    ("text", "value"),
    [
        ("[+1, .5, 5., 0xFF, -Infinity, NaN, 1e3]", ["+1", ".5", "5.", "0xFF", "-Infinity", "NaN", 1e3]),
        (r"""['\v\0\'\"\q', "it's"]""", ["\v\0'\"q", "it's"]),
        ("{'a' /**/ : 1, true: 2,}", {"a": 1, "true": 2}),
    ],
)
def test_each_freedom_of_json5_is_read(text: str, value: Any) -> None:
    assert json.loads(as_json(text).text) == value


@each_row(
    ("text", "at"),
    [("{a: 'x', b: }", 12), ("{'a': 1 'b': 2}", 8), ("{a: b}", 4), ("['\n']", 1), ("[,]", 1), ("{abc: 1, /* ", 9)],
)
def test_what_is_wrong_is_named_where_it_is(text: str, at: int) -> None:
    with pytest.raises(JsonSyntaxError) as error:
        as_json(text)
    assert error.value.position == at


MINE = "{\n  // mine\n  gateway: { port: 0x10, },\n  plugins: {entries: {'mine': {enabled: true}}},\n}\n"


def test_a_file_of_openclaw_in_json5_is_edited_and_restored_to_the_byte(home: Path) -> None:
    path = home / ".openclaw" / "openclaw.json"
    path.parent.mkdir()
    path.write_text(MINE)
    before = files_in(home)
    assert install("openclaw", home) == []
    assert path.read_text().startswith(MINE[:40])
    assert {*json.loads(as_json(path.read_text()).text)["plugins"]["entries"]} == {"mine", "crystal"}
    assert remove(home) == []
    assert files_in(home) == before


def test_json5_is_refused_where_the_agent_does_not_read_it(home: Path) -> None:
    path = home / ".gemini" / "settings.json"
    path.parent.mkdir()
    path.write_text(MINE)
    [problem] = install("gemini-cli", home)
    assert problem == f"{path}: line 3, column 3: expecting property name enclosed in double quotes"
    assert path.read_text() == MINE
