"""Find lasting statements in single sentences, with the rules of ``rules.tsv``. Pure.

A rule has a pattern, the kind of statement, and a confidence. Before any rule, gates leave out a sentence that is true
only for now, that refers to something not named, or that sets a task.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Literal, cast, get_args

from crystal.model.capture import Category
from crystal.model.named_tuple import NamedTuple

Kind = Literal["preference", "correction", "convention", "decision", "command", "cause", "fact"]

CATEGORY: dict[Kind, Category] = {
    "preference": "preference", "correction": "fact", "convention": "fact", "decision": "event", "command": "skill",
    "cause": "fact", "fact": "fact",
}  # fmt: skip

MIN_WORDS = 3
_PART = re.compile(r"<<(\w+)>>")


class Rule(NamedTuple):
    """A pattern; ``confidence`` is the share of matching sentences that are lasting statements, from 0 to 1."""

    kind: Kind
    confidence: float
    pattern: re.Pattern[str]


class Statement(NamedTuple):
    """Statement of a sentence; ``is_personal`` is True if it is about the user or the assistant, not a project."""

    kind: Kind
    text: str
    confidence: float
    is_personal: bool = False


@cache
def read_rules() -> tuple[tuple[Rule, ...], Mapping[str, re.Pattern[str]]]:
    """Return the rules in their order, and the gates by name."""
    parts: dict[str, str] = {}
    gates: dict[str, list[str]] = {}
    rules: list[Rule] = []
    for line in files("crystal.reflect").joinpath("rules.tsv").read_text("utf-8").splitlines():
        if line.startswith("#") or not line:
            continue
        kind, name, pattern = line.split("\t")
        whole = _PART.sub(lambda found: parts[found[1]], pattern)
        if kind == "part":
            parts[name] = whole
        elif kind == "gate":
            gates.setdefault(name, []).append(whole)
        else:
            assert kind in get_args(Kind), kind
            rules.append(Rule(cast("Kind", kind), float(name), re.compile(whole, re.IGNORECASE)))
    return tuple(rules), {name: re.compile("|".join(rows), re.IGNORECASE) for name, rows in gates.items()}


def lasting_part(sentence: str) -> str | None:
    """Return a sentence without words such as "please" before it; None if it asks, is too short, or ``is_passing``."""
    _, gates = read_rules()
    plain = gates["LEAD"].sub("", sentence).strip()
    is_wish = gates["POLITE_QUESTION"].match(plain) is not None
    is_none = (plain.endswith("?") and not is_wish) or len(plain.split()) < MIN_WORDS or is_passing(plain)
    return None if is_none else plain[0].upper() + plain[1:]


def find_statement(sentence: str) -> Statement | None:
    """Return the lasting statement of a sentence, even if the sentence then asks something; None if it makes none."""
    first = read_rules()[1]["STATES"].match(sentence)
    return _find(lasting_part(sentence)) or (_find(lasting_part(first[1])) if first else None)


def _find(plain: str | None) -> Statement | None:
    rules, gates = read_rules()
    rule = None if plain is None else next((one for one in rules if one.pattern.search(plain)), None)
    if plain is None or rule is None or (rule.kind not in ("cause", "correction") and gates["POINTING"].match(plain)):
        return None
    is_personal = gates["PERSONAL"].search(plain) is not None and rule.kind in ("preference", "convention", "fact")
    return Statement(rule.kind, plain, rule.confidence, is_personal)


def is_passing(sentence: str) -> bool:
    """Return True if a sentence is true only for now, is uncertain or a saying, sets a task, or is private."""
    _, gates = read_rules()
    return any(gates[name].search(sentence) for name in ("TASK", "MOMENTARY", "UNSURE", "SAYING", "PRIVATE"))
