"""Find what the turns of one session teach: statements, accepted proposals, commands that succeeded. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice

from crystal.model.capture import Project
from crystal.model.named_tuple import NamedTuple
from crystal.reflect.own_words import own_sentences
from crystal.reflect.statement_patterns import Kind, Statement, find_statement, is_passing, lasting_part
from crystal.store.memories.learned import MAX_STATEMENTS, ReadTurn
from crystal.work.outcomes import is_failed

MIN_RUNS = 3
"""Sessions in which a command must have succeeded."""
MAX_REPLY = 120
MAX_COMMAND = 120


@dataclass(frozen=True, slots=True)
class Lesson:
    """Something learned: ``number`` counts those of a line's part. ``is_run``: a command that succeeded once."""

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


_AGREES = re.compile(
    r"^(?:yes|yeah|yep|right|ok(?:ay)?|agreed|exactly|sounds good|perfect|great|good)\b.*\b(?:agreed?|do"
    r" that|do it like that|do it that way|let'?s do|always)\b|^agreed\b",
    re.IGNORECASE,
)
_REFUSES = re.compile(
    r"\b(?:no|not|don'?t|but|except|instead|never|however|rather|without|later|wait)\b", re.IGNORECASE
)
_WORKED = re.compile(
    r"\b(?:that was it|works now|that (?:fixed|solved) it|that did it|it works|fixed now|problem solved)\b",
    re.IGNORECASE,
)
_PROPOSAL = re.compile(
    r"^(?:i (?:propose|suggest|recommend)|i'?d (?:recommend|suggest|keep|use)|i would (?:recommend"
    r"|suggest)|proposal:|we should|we could|let'?s|should i (?:always )?use)\b",
    re.IGNORECASE,
)
_REASONED = re.compile(r"\b(?:because|since|so that|so each|as it|instead of|rather than|only its)\b", re.IGNORECASE)
_CAUSED = re.compile(
    r"\b(?:fail(?:s|ed)?|caused|because|was not set|missing|error|crash\w*)\b.*\b(?:with .+ (?:they|it)"
    r" pass|fixe[sd] it|solve[sd] it|fixe[sd]|solve[sd]|passes|they pass)\b",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_RUNNER = re.compile(
    r"(?:npm (?:test|run [\w:-]+)|pnpm (?:test|run [\w:-]+|[\w:-]+)|yarn [\w:-]+|bun (?:test|run [\w:-]+)"
    r"|just [\w-]+|make [\w-]+|task [\w:-]+|mise run [\w:-]+"
    r"|(?:uv run |poetry run |\.venv/bin/)?(?:pytest|mypy|tox|nox|ruff check|ruff format)|python3? -m"
    r" (?:pytest|unittest|build)|cargo (?:test|build|clippy|fmt|bench|check|nextest)|go (?:test|build|vet"
    r"|generate)"
    r"|golangci-lint run|gradle \w+|\./gradlew \w+|mvn \w+|dotnet (?:test|build)|bundle exec \w+"
    r"|bin/[\w-]+|rake [\w:]+|mix \w+|composer \w+|deno task \w+"
    r"|docker compose (?:up|build)|tox|nox|ctest|swift (?:test|build)|flutter (?:test|build)|bazel (?:test"
    r"|build))\b[ \w./:=@,-]*",
)
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

    What the rules find is counted for itself, so that its memory has the same id, chosen by a model or not.
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
    """Return what the turns after the cursor teach.

    Args:
        turns: A session's turns in order; those up to the cursor are only context.
        after: The cursor: id of the last turn that was read before.
        chosen: What the user's own sentences state.
    """
    own: dict[int, list[tuple[int, Statement]]] = {}
    for candidate, statement in chosen:
        own.setdefault(candidate.turn.id, []).append((candidate.number, statement))
    lessons: list[Lesson] = []
    for at, turn in enumerate(turns):
        if turn.id > after:
            found = sorted(own.get(turn.id, ())) or enumerate(_answered(turns, at))
            for number, one in found:
                line = (turn.uuid, turn.part, number, turn.at, turn.project)
                lessons.append(
                    Lesson(one.kind, one.text, one.confidence, one.is_personal, *line, turn.role == "tool_result")
                )
    return lessons


def _answered(turns: Sequence[ReadTurn], at: int) -> Iterator[Statement]:
    """Yield what the user accepted with a turn, or the command that succeeded."""
    turn = turns[at]
    if turn.role == "user":
        yield from _accepted(turn.text, _said_before(turns, at))
    elif turn.role == "tool_result" and not is_failed(turn.text):
        call = next((one for one in reversed(turns[:at]) if one.role in ("tool_call", "user")), None)
        command = None if call is None or call.role != "tool_call" else project_command(call.text)
        if command is not None:
            yield Statement("command", f"`{command}` works here", 0.85)


def _said_before(turns: Sequence[ReadTurn], at: int) -> str:
    """Return what the assistant said last, directly before the user's answer."""
    for one in reversed(turns[:at]):
        if one.role == "assistant":
            return one.text
        if one.role == "user":
            break
    return ""


def _accepted(reply: str, said: str) -> Iterator[Statement]:
    """Yield what the assistant said and the user accepted in plain words."""
    if not said or len(reply) > MAX_REPLY or is_passing(reply) or "?" in reply or _REFUSES.search(reply):
        return
    sentences = [one.strip() for one in _SENTENCE.split(said) if one.strip()]
    kind: Kind = "cause"
    found: list[str] = []
    if _AGREES.search(reply):
        proposals = list(filter(_PROPOSAL.match, sentences))
        if len(proposals) == 1 and _REASONED.search(said):
            kind, found = "decision", proposals
    elif _WORKED.search(reply):
        found = list(filter(_CAUSED.search, (said.strip(), *sentences)))
    if found and _is_plain(found[-1]):
        yield Statement(kind, found[-1], 0.85)


def _is_plain(text: str) -> bool:
    return len(text) <= 240 and "\n" not in text and not is_passing(text) and "http" not in text


def project_command(call: str) -> str | None:
    """Return the command of a call if it is one of a build, test, lint or release tool, without shell signs."""
    command = _SHELL_ARGUMENTS.split(call.partition(": ")[2], maxsplit=1)[0].strip()
    return command if len(command) <= MAX_COMMAND and _RUNNER.fullmatch(command) else None
