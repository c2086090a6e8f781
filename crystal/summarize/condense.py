"""Shorten a long conversation to what a model needs: both ends, and samples of the middle. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from crystal.store.sessions.sessions import SaidTurn

ROLES = ("user", "assistant", "summary", "subagent", "tool_call", "tool_result")
CHARACTERS = {"user": 1500, "assistant": 1200, "summary": 1500, "subagent": 300, "tool_call": 200, "tool_result": 200}
"""Maximum characters of one turn, by role."""

_NAMES = {"tool_call": "tool", "tool_result": "result"}
_HEAD_SHARE, _TAIL_SHARE = 0.25, 0.45


def estimated_tokens(text: str) -> int:
    """Estimate the tokens of a text, erring high: four ASCII characters per token, one of any other."""
    ascii_characters = len(text.encode("ascii", "ignore"))
    return -(-ascii_characters // 4) + len(text) - ascii_characters


def condense(said: Sequence[SaidTurn], *, tokens: int) -> str:
    """Render a conversation in at most about ``tokens`` tokens, saying where turns are left out.

    The beginning gets a quarter, the end nearly half; the rest is spread evenly over the middle, user turns first. All
    lines of a turn but the first are indented, so no text can look like another turn.
    """
    shown = [_rendered(turn) for turn in said]
    sizes = [estimated_tokens(text) + 8 for text in shown]
    kept = set(range(len(said))) if sum(sizes) <= tokens else _chosen(said, sizes, tokens)
    lines: list[str] = []
    missing = 0
    for index, text in enumerate(shown):
        if index not in kept:
            missing += 1
            continue
        lines += [_gap(missing)] if missing else []
        missing = 0
        lines.append(text)
    lines += [_gap(missing)] if missing else []
    return "\n".join(lines)


def _rendered(turn: SaidTurn) -> str:
    limit = CHARACTERS.get(turn.role, 200)
    text = turn.text[:limit] + (" […]" if len(turn.text) > limit or turn.length > len(turn.text) else "")
    return f"{_NAMES.get(turn.role, turn.role)}: " + "\n  ".join(text.splitlines())


def _gap(count: int) -> str:
    return f"[{count} turns left out]"


def _chosen(said: Sequence[SaidTurn], sizes: Sequence[int], tokens: int) -> set[int]:
    kept: set[int] = set()
    left = tokens - _take(range(len(said)), sizes, int(tokens * _HEAD_SHARE), kept)
    left -= _take(range(len(said) - 1, -1, -1), sizes, int(tokens * _TAIL_SHARE), kept)
    middle = [index for index in range(len(said)) if index not in kept]
    for roles in (("user", "summary"), ("assistant",), ("subagent", "tool_call", "tool_result")):
        spread = _spread([index for index in middle if said[index].role in roles])
        for index in spread:
            if sizes[index] <= left:
                left -= sizes[index]
                kept.add(index)
    return kept


def _take(indexes: Iterable[int], sizes: Sequence[int], budget: int, kept: set[int]) -> int:
    """Take turns in order until the budget is spent. Return the tokens spent."""
    spent = 0
    for index in indexes:
        if index in kept or spent + sizes[index] > budget:
            break
        kept.add(index)
        spent += sizes[index]
    return spent


def _spread(items: list[int]) -> list[int]:
    """Reorder items so that every prefix is spread evenly (bit reversal)."""
    width = max(1, (len(items) - 1).bit_length())
    return [items[at] for at in sorted(range(len(items)), key=lambda at: int(f"{at:0{width}b}"[::-1], 2))]
