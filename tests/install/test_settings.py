"""Claude Code's settings file: what crystal puts in comes out again, and nothing else is ever touched."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crystal.install import jsontext
from crystal.install.claude_settings import hooks as hooks_room
from crystal.install.claude_settings.hooks import TIMEOUTS
from crystal.install.live import json_entries
from tests.support.examples import examples
from tests.support.settings_entries import COMMAND, FOREIGN, OLDER, ours

pytestmark = pytest.mark.slow

# --- documents of every kind


SPACES = st.text(" \t\n\r", max_size=3)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
ENTRIES = st.fixed_dictionaries({"type": st.just("command"), "command": st.text(max_size=5)})
GROUPS = st.fixed_dictionaries({"hooks": st.lists(ENTRIES, max_size=2)}, optional={"matcher": st.text(max_size=3)})
EVENTS = st.sampled_from([*TIMEOUTS, "PreToolUse", "Notification"])
HOOKS = st.dictionaries(EVENTS, st.lists(GROUPS, max_size=2), max_size=4)
OTHERS = st.dictionaries(
    st.text(max_size=3).filter(lambda key: key != "hooks"), SCALARS | st.lists(SCALARS), max_size=3
)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """A settings document in some consistent or wild formatting."""
    before, after = draw(OTHERS), draw(OTHERS)
    between: dict[str, Any] = {"hooks": draw(HOOKS)} if draw(st.booleans()) else {}
    value = {**before, **between, **after}
    style = draw(st.sampled_from(["indent", "compact", "minified", "wild"]))
    if style == "wild":
        return draw(SPACES) + written_wildly(draw, value) + draw(SPACES)
    indent = draw(st.sampled_from(["  ", "    ", "\t", "", " "])) if style == "indent" else None
    separators = (",", ":") if style == "minified" else None
    text = json.dumps(value, indent=indent, separators=separators, ensure_ascii=draw(st.booleans()))
    try:
        text.encode()
    except UnicodeEncodeError:
        text = json.dumps(value, indent=indent, separators=separators)
    return text.replace("\n", draw(st.sampled_from(["\n", "\r\n"]))) + draw(st.sampled_from(["", "\n", "\r\n"]))


def written_wildly(draw: st.DrawFn, value: Any) -> str:
    def gap() -> str:
        return draw(SPACES)

    if isinstance(value, dict):
        parts = [
            f"{gap()}{json.dumps(key)}{gap()}:{gap()}{written_wildly(draw, item)}{gap()}" for key, item in value.items()
        ]
        return "{" + (",".join(parts) or gap()) + "}"
    if isinstance(value, list):
        return "[" + (",".join(f"{gap()}{written_wildly(draw, item)}{gap()}" for item in value) or gap()) + "]"
    return json.dumps(value)


@examples(60)
@given(documents(), st.sampled_from([(), ("edit",), ("edit", "failure")]))
@example("{}", ("edit", "failure"))
@example("{\n}", ("edit", "failure"))
@example("{\r}\n", ("edit", "failure"))
@example('{"hooks": {}}', ("edit", "failure"))
@example('{"hooks": {\n\n}}', ("edit", "failure"))
@example('{"hooks":{"Stop":[]}}', ("edit", "failure"))
@example('{\n"hooks": {"Stop": [ ]}\n}', ("edit", "failure"))
@example('{"a":1,"hooks":{"Stop":[{"hooks":[]}],"SessionEnd":[]}}', ("edit", "failure"))
@example("\n{\r\n}", ("edit", "failure"))
def test_what_is_put_in_comes_out_again_to_the_byte(text: str, moments: tuple[str, ...]) -> None:
    after = hooks_room.installed(text, COMMAND, moments)
    old, new = json.loads(text), json.loads(after)
    for event in hooks_room.wanted(moments):
        assert new["hooks"][event] == [*old.get("hooks", {}).get(event, []), ours(event)]
    assert [key for key in new if key != "hooks" or "hooks" in old] == list(old)
    assert {**new, "hooks": None} == {**old, "hooks": None}
    assert hooks_room.installed(after, COMMAND, moments) == after
    assert hooks_room.removed(after, text) == text
    assert hooks_room.installed(hooks_room.installed(text, OLDER, moments), COMMAND, moments) == after
    if not json.loads(text).get("hooks"):
        assert hooks_room.installed(after, COMMAND) == hooks_room.installed(text, COMMAND)  # switched off again


@examples(40)
@given(documents())
def test_every_character_that_was_there_stays_in_its_order(text: str) -> None:
    letters = iter(hooks_room.installed(text, COMMAND))
    assert all(letter in letters for letter in text)


@examples(40)
@given(documents(), EVENTS, st.booleans())
def test_what_was_added_meanwhile_stays(text: str, event: str, first: bool) -> None:
    after = hooks_room.installed(text, COMMAND)
    document = json.loads(after)
    groups = document["hooks"].setdefault(event, [])
    groups.insert(0 if first else len(groups), {"matcher": "*", "hooks": [FOREIGN]})
    edited = json.dumps(document, indent=2)
    after = hooks_room.removed(edited, text)
    assert hooks_room.ours(after) == {}
    left = json.loads(after)
    assert {"matcher": "*", "hooks": [FOREIGN]} in left["hooks"][event]
    assert json_entries.others(document) == json_entries.others(left)


@examples(40)
@given(documents())
def test_a_client_that_rewrites_the_file_hinders_nothing(text: str) -> None:
    rewritten = json.dumps(json.loads(hooks_room.installed(text, COMMAND)), indent=2, ensure_ascii=False)
    assert hooks_room.installed(rewritten, COMMAND) == rewritten
    assert json.loads(hooks_room.removed(rewritten, text)) == json.loads(text)


@given(documents())
def test_the_scanner_reads_what_json_reads(text: str) -> None:
    root = jsontext.parse(text)
    assert root.value == json.loads(text)
    for child in root.children:
        assert json.loads(text[child.node.start : child.node.end]) == child.node.value


@examples(300)
@given(st.text('{}[]",:\\ \n0123.eE+-truefalsnNaI/*#\x00\u2028', max_size=12))
@example("1.")
@example("-")
@example("01")
@example("1e5")
@example("[1,]")
@example('{"a":1,}')
@example("NaN")
@example('"\x01"')
def test_the_scanner_takes_no_more_and_no_less_than_json(text: str) -> None:
    def refuse(_: str) -> None:
        raise ValueError

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({key for key, _ in pairs}) < len(pairs):
            raise ValueError
        return dict(pairs)

    try:
        expected = json.loads(text, parse_constant=refuse, object_pairs_hook=unique)
    except ValueError:
        with pytest.raises(jsontext.JsonSyntaxError):
            jsontext.parse(text)
    else:
        assert jsontext.parse(text).value == expected
