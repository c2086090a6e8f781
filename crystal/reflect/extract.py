"""Extract lessons from the turns of one session: statements, accepted proposals, commands that succeeded. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice

from crystal.model.capture import Project
from crystal.model.named_tuple import NamedTuple
from crystal.reflect.own_words import own_sentences
from crystal.reflect.statement_patterns import Kind, Statement, find_statement, is_passing, lasting_part, read_rules
from crystal.store.memories.learned import COMMAND_WORKS, MAX_STATEMENTS, ReadTurn
from crystal.work.call_results import PairedTurn, pair
from crystal.work.outcomes import is_failed

MIN_RUNS = 3
"""Minimum number of sessions in which a command must have succeeded."""
MAX_REPLY = 120
MAX_COMMAND = 120


@dataclass(frozen=True, slots=True)
class Lesson:
    """Something learned. ``number`` is unique in a part of a line; ``is_run`` is True for a command that succeeded."""

    kind: Kind
    text: str
    confidence: float
    is_personal: bool
    line: str
    part: int
    number: int
    at: int
    project: Project | None = None
    is_run: bool = False


_TOOLS = [
    re.compile(rf"\b(?:{names})\b")
    for names in (
        "npm|pnpm|yarn|bun", "pip|uv|poetry|conda", "make|just|task", "jest|vitest|mocha", "black|ruff|flake8",
        "eslint|biome|prettier", "docker|podman", "mypy|pyright", "unittest|pytest",
    )
]  # fmt: skip
"""Groups of tools; a project uses one tool of each group."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_SHELL_ARGUMENTS = re.compile(r"\n[a-zA-Z_]\w*: ")


class LessonCandidate(NamedTuple):
    """A sentence of the user's own that may be learned; ``found`` is what the rules say, None if they find nothing."""

    turn: ReadTurn
    number: int
    text: str
    found: Statement | None


Chosen = tuple[LessonCandidate, Statement]


def chosen_by_rules(own: Sequence[LessonCandidate]) -> list[Chosen]:
    """Return the sentences that the rules find."""
    return [(one, one.found) for one in own if one.found]


def candidates(turns: Sequence[ReadTurn], after: int) -> list[LessonCandidate]:
    """Return the user's sentences after the cursor that may be learned; gates have left out the others.

    Sentences that the rules find have their own numbers, so that a memory's id does not depend on who chose it.
    """
    every: list[LessonCandidate] = []
    for turn in turns:
        if turn.role != "user" or turn.id <= after:
            continue
        numbers = count()
        for at, sentence in enumerate(islice(own_sentences(turn.text), MAX_STATEMENTS)):
            found = find_statement(sentence)
            text = found.text if found else lasting_part(sentence)
            if text is not None:
                every.append(LessonCandidate(turn, next(numbers) if found else MAX_STATEMENTS + at, text, found))
    return every


def extract(turns: Sequence[ReadTurn], after: int, chosen: Sequence[Chosen]) -> list[Lesson]:
    """Return the lessons of the turns after the cursor.

    Args:
        turns: A session's turns in order; those up to the cursor are only context.
        after: The cursor: id of the last turn that was read before.
        chosen: The chosen sentences of the user, with their statements.
    """
    own: dict[int, list[tuple[int, Statement]]] = {}
    for candidate, statement in chosen:
        own.setdefault(candidate.turn.id, []).append((candidate.number, statement))
    calls = _calls_of(turns)
    lessons: list[Lesson] = []
    for at, turn in enumerate(turns):
        if turn.id > after:
            found = sorted(own.get(turn.id, ())) or enumerate(_answered(turns, at, calls))
            for number, one in found:
                line = (turn.uuid, turn.part, number, turn.at, turn.project)
                lessons.append(
                    Lesson(one.kind, one.text, one.confidence, one.is_personal, *line, turn.role == "tool_result")
                )
    return lessons


def _calls_of(turns: Sequence[ReadTurn]) -> dict[int, str]:
    """Return the calls of tools by the turns of their results."""
    said = {turn.id: turn.text for turn in turns}
    pairs = pair(PairedTurn(turn.id, (0, None), turn.role, turn.tool, turn.message_id) for turn in turns)
    return {one.result: said[one.call] for one in pairs if one.result is not None}


def _answered(turns: Sequence[ReadTurn], at: int, calls: Mapping[int, str]) -> Iterator[Statement]:
    """Yield the statements that a turn accepts or corrects, or the command that succeeded."""
    turn = turns[at]
    if turn.role == "user":
        said = _said_before(turns, at)
        yield from (*_accepted(turn.text, said), *_corrected(turn.text, said))
    elif turn.role == "tool_result" and not is_failed(turn.text):
        command = project_command(calls.get(turn.id, ""))
        if command is not None:
            yield Statement("command", f"`{command}{COMMAND_WORKS}", 0.85)


def _said_before(turns: Sequence[ReadTurn], at: int) -> str:
    """Return the assistant's last message before the user's answer; empty if the user spoke since."""
    for one in reversed(turns[:at]):
        if one.role == "assistant":
            return one.text
        if one.role == "user":
            break
    return ""


def _accepted(reply: str, said: str) -> Iterator[Statement]:
    """Yield the statement of the assistant that the user accepted in plain words.

    A lasting statement must be the assistant's whole message, otherwise the answer may refer to something else.
    """
    gates = read_rules()[1]
    if not said or len(reply) > MAX_REPLY or is_passing(reply) or "?" in reply or gates["REFUSES"].search(reply):
        return
    found = _agreed(reply, said.strip())
    if found and _is_plain(found[-1][1]):
        yield Statement(*found[-1], 0.85)


def _agreed(reply: str, said: str) -> list[tuple[Kind, str]]:
    """Return what a reply agrees to or, if it says that something worked, the cause."""
    gates = read_rules()[1]
    sentences = [one.strip() for one in _SENTENCE.split(said) if one.strip()]
    stated = gates["ASKED"].sub(".", said)
    if gates["AGREES"].search(reply) or (stated != said and gates["CONFIRMS"].match(reply)):
        return _proposed(said, sentences) or _stated(stated)
    if not gates["WORKED"].search(reply):
        return []
    return [("cause", one) for one in (said, *sentences) if gates["CAUSED"].search(one)]


def _proposed(said: str, sentences: Sequence[str]) -> list[tuple[Kind, str]]:
    """Return the assistant's proposal, if it made one only and gave a reason."""
    gates = read_rules()[1]
    proposals = list(filter(gates["PROPOSAL"].match, sentences))
    return [("decision", proposals[0])] if len(proposals) == 1 and gates["REASONED"].search(said) else []


def _stated(stated: str) -> list[tuple[Kind, str]]:
    """Return the lasting statement that the whole text makes, unless it is about a person."""
    rule = find_statement(stated) if list(own_sentences(stated)) == [stated] else None
    return [] if rule is None or rule.is_personal else [(rule.kind, rule.text)]


def _corrected(reply: str, said: str) -> Iterator[Statement]:
    """Yield the tool that the user names in place of one of its kind that the assistant named."""
    plain = lasting_part(reply)
    is_plain = plain is not None and read_rules()[1]["INSTEAD"].match(plain) is not None
    if plain is not None and is_plain and any(kind.search(said) and kind.search(plain) for kind in _TOOLS):
        yield Statement("correction", plain, 0.85)


def _is_plain(text: str) -> bool:
    return len(text) <= 240 and "\n" not in text and not is_passing(text) and "http" not in text


def project_command(call: str) -> str | None:
    """Return the command of a call if it is one of a build, test, lint or release tool, without shell signs."""
    command = _SHELL_ARGUMENTS.split(call.partition(": ")[2], maxsplit=1)[0].strip()
    return command if len(command) <= MAX_COMMAND and read_rules()[1]["RUNNER"].fullmatch(command) else None
