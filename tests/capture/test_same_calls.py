"""Claims of ingest/same_calls.py: each call of an export is one call of the agent, or none."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.ingest.same_calls import match_calls
from crystal.model.capture import Turn
from crystal.store.sessions.conversations import SaidTurn
from tests.support.examples import examples

WORDS = st.sampled_from(["git", "push", "status", "-s", "&&", "/home/dev/shop/a.py", "/home/dev/b/a.py", "x\ny"])
COMMANDS = st.lists(WORDS, min_size=1, max_size=4).map(" ".join)
RESULTS = st.sampled_from(["", "\n\n```text\ngit push\n```", "\n\n```text\nok\n```"])


def shown(command: str, result: str, form: int) -> str:
    """Return a call as exports write it."""
    quote = f"```bash\n{command}\n```" if "\n" in command or form == 1 else f"`{command}`"
    return f"Bash\n{json.dumps({'command': command})}" if form == 2 else f"Says something.\n{quote}{result}"


def call(command: str) -> SaidTurn:
    return SaidTurn(f"line of {command}", "tool_call", "Bash", f"Bash: {command}\ndescription: says something")


def exported_call(text: str, tool: str = "Bash") -> Turn:
    return Turn("", 0, "tool_call", text, 0, tool=tool)


@examples(200)
@given(st.lists(COMMANDS, max_size=6), st.lists(st.tuples(COMMANDS, RESULTS, st.integers(0, 2)), max_size=8), st.data())
def test_a_call_of_an_export_is_one_with_the_same_call_of_the_agent_or_stays(
    own: list[str], others: list[tuple[str, str, int]], data: st.DataObject
) -> None:
    also = [(one, data.draw(RESULTS), data.draw(st.integers(0, 2))) for one in data.draw(st.permutations(own))]
    exported = data.draw(st.permutations(also + others))
    matched = match_calls([exported_call(shown(*one)) for one in exported], [call(one) for one in own])
    for place, line in matched.items():
        assert line == call(exported[place][0]).uuid
    assert sorted(matched.values()) == sorted(call(one).uuid for one in own)


@pytest.mark.parametrize(
    ("text", "main"),
    [
        ("`./shop/a.py`", "/home/dev/shop/a.py"),
        ("cat `b.py a.py`", "/home/dev/shop/b.py /home/dev/shop/a.py"),
        ("Runs it.\n`echo `date` now`", "echo `date` now"),
        ("`make all-the-thi...`", "make all-the-things of the shop"),
        ("reads a.py", "/home/dev/shop/a.py"),
        ("pattern zircon in the shop", "zircon"),
    ],
)
def test_an_export_may_shorten_a_call_or_put_it_in_other_words(text: str, main: str) -> None:
    own = [call("/home/dev/other/c.py"), call("date"), call(main)]
    assert match_calls([exported_call(text)], own) == {0: call(main).uuid}


@pytest.mark.parametrize("text", ["a b c d e", "```text\na b c d e\n```", "x\n\n```text\na b\n\nc d e\n```"])
def test_an_export_that_quotes_nothing_but_a_result_has_the_words_of_the_call(text: str) -> None:
    assert match_calls([exported_call(text)], [call("a b c d")]) == {0: call("a b c d").uuid}


def test_what_is_written_to_a_file_tells_the_call() -> None:
    content = "def port() -> int:\n    return 4711  # as the settings say"
    own = [
        SaidTurn(name, "tool_call", "Write", f"Write: /home/dev/shop/{name}.py\ncontent: {content}{name}")
        for name in "abc"
    ]
    shown = [exported_call(f"```python\n{content}{name}\n```\n\n```text\nok\n```", "Write") for name in "cb"]
    assert match_calls(shown, own) == {0: "c", 1: "b"}


@pytest.mark.parametrize(
    "text",
    [
        "`git push && git status`",
        "```bash\ngit status\ngit push\n```",
        "`git`",
        "`git log status`",
        "`git status -s`\n\n```text\ngit status\n```",
    ],
)
def test_a_call_that_only_an_export_has_is_no_other_one(text: str) -> None:
    assert match_calls([exported_call(text)], [call("git status")]) == {}
