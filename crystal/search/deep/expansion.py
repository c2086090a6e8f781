"""Other wordings of a question, and a sentence that its answer might be."""

from __future__ import annotations

import re

from crystal.search.deep.answers import body_of, json_of, strings_in
from crystal.search.deep.fence import fenced
from crystal.timewords.parse import iso

MAX_VARIANTS = 4
EXPANSION_TOKENS = 300

_QUESTION, _VARIANT = 1_000, 240
_TASK = """\
Now it is {now}. Below is a question to a search over conversations between a person and a coding agent, or between
people. Write what else to search for: two other wordings of the question, one line of keywords (synonyms, other forms
of its words, no filler), and one sentence that could stand in a conversation as the answer. Use the language of the
question. Keep names, paths and identifiers exactly as they are, and invent none.

Answer with one JSON array of four strings and nothing else.
"""
_MARKER = re.compile(r"^\s*(?:[-*•]|\(?[0-9]{1,2}[.):])\s+")
_TAG = re.compile(r"<[^<>]{0,200}>")
_UNUSABLE = re.compile('["\u201c\u201d\u201e\u00ab\u00bb`\x00-\x1f\x7f-\x9f\ud800-\udfff]+')
_LITERAL = re.compile(r'"([^"\\\n]{3,300})"')


def expansion_prompt(question: str, now: int) -> str:
    """Return the prompt that asks for other wordings; ``now`` in ms, for questions that hold times."""
    return fenced(_TASK.format(now=(iso(now) or "")[:16]), "question", question[:_QUESTION])


def variants_in(answer: str, question: str) -> tuple[str, ...]:
    """Return up to four wordings in an answer: the strings of JSON, or lines with or without list marks.

    Each is one bounded line without quotation marks, which a search would take for a phrase that an answer must have.
    """
    body = body_of(answer)
    value = json_of(body)
    if value is not None:
        lines = strings_in(value)
    elif body[:1] in ("[", "{") or body == "null":  # JSON that was cut off, or that says nothing
        lines = _LITERAL.findall(body)
    else:
        lines = [line for line in body.splitlines() if not line.rstrip().endswith(":")]
    known = {_key(question)}
    found: list[str] = []
    for line in lines[:200]:
        words = _clean(line)
        if words and _key(words) not in known:
            known.add(_key(words))
            found.append(words)
    return tuple(found[:MAX_VARIANTS])


def _clean(line: str) -> str:
    words = _UNUSABLE.sub(" ", _TAG.sub(" ", _MARKER.sub("", line[: 4 * _VARIANT], count=1)))
    words = " ".join(words.split())
    if len(words) > _VARIANT:
        words = words[:_VARIANT].rpartition(" ")[0] or words[:_VARIANT]
    return words if sum(map(str.isalnum, words)) >= 2 else ""


def _key(words: str) -> str:
    return " ".join(words.casefold().split()).rstrip("?!. ")
