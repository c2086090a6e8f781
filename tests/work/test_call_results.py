"""Which result is which call's: by order, and nothing where order does not tell."""

from __future__ import annotations

from crystal.work.call_results import Pair, PairedTurn, pair

THREAD = (1, None)


def turns(text: str, thread: tuple[int, str | None] = THREAD) -> list[PairedTurn]:
    """``C1`` is a command in message 1, ``E1`` an edit, ``a1`` an answer, ``c`` and ``e`` their results, ``u`` a user."""
    made = []
    for number, (kind, *message) in enumerate(text.split(), 1):
        tool = {"C": "Bash", "E": "Edit"}.get(kind.upper())
        role = {"u": "user", "a": "assistant"}.get(kind, "tool_call" if kind.isupper() else "tool_result")
        made.append(PairedTurn(number, thread, role, tool, "".join(message) or None))
    return made


def pairs(text: str) -> dict[int, int | str | None]:
    """The result of each call; ``ok``: it succeeded without a word; None: unknown."""
    return {one.call: "ok" if one.is_silent else one.result for one in pair(turns(text))}


def test_results_belong_to_calls_by_order() -> None:
    assert pairs("u C1 c C1 c E2 e") == {2: 3, 4: 5, 6: 7}
    assert pairs("C1 E1 C1 e c c a2") == {1: 5, 2: 4, 3: 6}


def test_a_call_without_a_result_succeeded_once_the_agent_goes_on() -> None:
    assert pairs("C1 a2") == {1: "ok"}
    assert pairs("C1") == {1: None}
    assert pairs("C1 u") == {1: None}, "it may have been interrupted"
    assert pairs("C a") == {1: "ok"}, "an agent whose messages have no number"


def test_nobody_knows_whose_result_it_is_where_one_is_missing() -> None:
    assert pairs("C1 C1 c a2") == {1: None, 2: None}
    assert pairs("C1 E1 e a2") == {1: "ok", 2: 3}


def test_threads_do_not_mix() -> None:
    inner = [one._replace(id=one.id + 10) for one in turns("C1 c", (1, "sub"))]
    outer = turns("C2 c")
    mixed = [outer[0], inner[0], outer[1], inner[1]]
    assert pair(mixed) == [Pair(1, 2, False, 2), Pair(11, 12, False, 12)]
