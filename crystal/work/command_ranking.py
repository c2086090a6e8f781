"""Find the commands for a task, by their names and by the agents' descriptions of them."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from itertools import takewhile

from crystal.model.named_tuple import NamedTuple
from crystal.text.lazy_pattern import lazy_pattern

MIN_CERTAINTY = 0.4
"""Minimum certainty of an answer."""
SURE = 0.7
"""Certainty from which the first answer is right in 1.00 or 0.92 of the cases, by the two measures of ADR 47."""
_PRIOR, _LENGTH = 0.3, 0.3
"""Weights in the score: of the logarithm of the sessions that ran a command, and of each further step."""

_STOP = frozenset(
    "the a an to of in on for and or with run execute check if it is are be this that all any from by as at see show"
    " verify after before now do does using use into new its my our we you i me please can could let us not only just"
    " also what how again re".split()
)
_READING = frozenset(
    "ls cat grep rg find head tail sed awk wc echo pwd which tree stat file jq env printenv test sleep ps diff"
    " sort cd du less ag fd read true export for while do done if then fi".split()
)
"""Commands that only read or wait."""
_MOVING = frozenset("rm mv cp mkdir chmod touch kill".split())
"""Commands that only move, copy or delete files or end programs: they may cure an error, but do no task."""
_GIT_READING = frozenset(
    "log diff show status branch blame grep ls-files rev-parse config remote cat-file merge-base describe reflog"
    " worktree ls-tree for-each-ref rev-list notes stash".split()
)
_WITH_SUBCOMMANDS = frozenset(
    "mise npm pnpm yarn bun just make task cargo go git gh docker kubectl terraform uv poetry pip golangci-lint dotnet"
    " gradle mvn bundle rake mix composer deno fly heroku aws gcloud az helm ansible".split()
)
_INTERPRETERS = frozenset("sh bash zsh python python3 node ruby perl php deno bun tsx".split())
"""Programs whose first argument is the program that they run."""
_CLIENTS = frozenset("curl wget http https xh".split())
"""Programs whose work depends on the address that they get."""
_ADDRESS = lazy_pattern(r"https?://(?:[^\s/@]*@)?([^\s?#;|&'\"]+)")
_SHORT_FORMS = lazy_pattern(r"\b(p)ull[ -](r)equest|\b(m)erge[ -](r)equest", re.IGNORECASE)
_ENDINGS = lazy_pattern(r"(?:ations?|ings?|ers?|ed|es|s|e)$")
_WORD = lazy_pattern(r"[a-z0-9]+")
_HERE_DOCUMENT = lazy_pattern(r"<<-?\s*['\"]?\w+.*")
_QUOTED = lazy_pattern(r"\"[^\"]*\"|'[^']*'")
_NEXT = lazy_pattern(r"\s*(?:&&|\|\||;|\|)\s*")
_PIPE = lazy_pattern(r"(?<!\|)\|(?!\|)")
_SETTINGS = lazy_pattern(r"\s*(?:\w+=(?:\$\(\s*|\S*(?:\s+|\Z)))*")
"""Assignments before a program: ``CI=1``, ``out=$(``."""
_REDIRECTION = lazy_pattern(r"[0-9&]?[<>]")
_SUBCOMMAND = lazy_pattern(r"[a-z][\w:-]*")


class CommandRun(NamedTuple):
    """A command that succeeded."""

    turn: int
    session: int
    at: int
    line: str
    about: str


class RankedCommand(NamedTuple):
    """A command that answers the question: the sessions and runs in which it succeeded, and the certainty.

    ``run`` is its latest run in its usual form. ``score`` orders the commands, also those of several stores.
    """

    run: CommandRun
    sessions: int
    runs: int
    certainty: float
    score: float


def rank_commands(runs: Iterable[CommandRun], question: str) -> list[RankedCommand]:
    """Return the commands that do what a question asks for, best first, equally good ones newest first.

    If several sessions ran commands for the first word of the question, commands of only one session are left out,
    unless they were described in exactly the words of the question.
    """
    groups = _by_steps(runs)
    in_order = _words_in_order(question)
    known = [_known(done, group, set(in_order)) for done, group in groups.items()]
    weights = {word: _weight(word, known) for word in set(in_order)}
    action = next((word for word in in_order[:1] if any(one.has(word) for one in known)), None)
    able = known if action is None else [one for one in known if one.has(action)]
    if action is not None and any(one.sessions > 1 for one in able):
        known, able = _usual(known), _usual(able)
    alike = sum(one.alike for one in known)
    found = [_ranked(one, groups[one.done], weights, one.alike / (alike + 1)) for one in able]
    return sorted(filter(None, found), key=lambda one: (one.score, one.run.at), reverse=True)


class _Known(NamedTuple):
    """Statistics of a command.

    Attributes:
        done: Its steps.
        named: The words of its steps.
        told: For each word, the number of sessions whose agent described the command with it.
        sessions: The number of sessions that ran it.
        alike: The number of sessions that described it in exactly the words of the question.
    """

    done: tuple[str, ...]
    named: Collection[str]
    told: Counter[str]
    sessions: int
    alike: int

    def has(self, word: str) -> bool:
        return word in self.named or word in self.told


def _by_steps(runs: Iterable[CommandRun]) -> dict[tuple[str, ...], list[CommandRun]]:
    """Group runs by their steps; runs without any step are left out."""
    groups: dict[tuple[str, ...], list[CommandRun]] = defaultdict(list)
    for run in runs:
        if done := steps(run.line):
            groups[done].append(run)
    return groups


def _usual(known: Iterable[_Known]) -> list[_Known]:
    """Return the commands of several sessions, and those described in exactly the words of the question."""
    return [one for one in known if one.sessions > 1 or one.alike]


def _known(done: tuple[str, ...], group: Iterable[CommandRun], asked: set[str]) -> _Known:
    by_session: dict[int, set[str]] = defaultdict(set)
    alike = set[int]()
    for run in group:
        about = words(run.about)
        by_session[run.session] |= about
        if asked and about == asked:
            alike.add(run.session)
    named = {word for step in done for word in words(step)}
    told = Counter(word for said in by_session.values() for word in said)
    return _Known(done, named, told, len(by_session), len(alike))


def _weight(word: str, known: Sequence[_Known]) -> float:
    """Return the weight of a word of the question: higher if fewer commands have it."""
    return math.log(1 + len(known) / (1 + sum(one.has(word) for one in known)))


def _ranked(
    known: _Known, group: Sequence[CommandRun], weights: dict[str, float], share: float
) -> RankedCommand | None:
    """Return a command with its score, or None if it is too uncertain.

    ``share`` is its share of the sessions in which any command was described in exactly the words of the question.
    """
    fit = max(_fit(weights, known), share)
    if fit < MIN_CERTAINTY:
        return None
    score = fit * (1 + _PRIOR * math.log(known.sessions)) * (1 + share) / (1 + _LENGTH * (len(known.done) - 1))
    return RankedCommand(_usual_run(group), known.sessions, len(group), round(fit, 2), score)


def _usual_run(group: Sequence[CommandRun]) -> CommandRun:
    """Return the latest run of the form that most sessions used: ``make test`` rather than ``make test -k one``.

    ``2>&1 | tail`` and the like make no other form; a run without them is preferred.
    """
    forms: dict[str, list[CommandRun]] = defaultdict(list)
    for run in group:
        forms[_form(run.line)].append(run)
    form, runs = max(
        forms.items(), key=lambda one: (len({run.session for run in one[1]}), max((run.at, run.turn) for run in one[1]))
    )
    return max(runs, key=lambda run: (run.line == form, run.at, run.turn))


def _form(line: str) -> str:
    """Return a command line without what only shortens its output at the end."""
    first, *rest = _PIPE.split(line.replace("2>&1", ""))
    while rest and rest[-1].split()[:1] and rest[-1].split()[0] in _READING:
        rest.pop()
    return " ".join(" | ".join([first, *rest]).split())


def _fit(weights: dict[str, float], known: _Known) -> float:
    """Return the share of the question's words that a command matches, 0 to 1; rare words count more."""
    if not weights:
        return 0.0
    told, sessions = known.told, known.sessions
    share = {word: 1.0 if word in known.named else 0.9 * told[word] / (sessions + 1) for word in weights}
    return sum(weights[word] * share[word] for word in weights) / sum(weights.values())


def words(text: str) -> set[str]:
    """Return the words of a text that matter, without their endings; a pull request is a PR."""
    return set(_words_in_order(text))


def _words_in_order(text: str) -> list[str]:
    found = _WORD.findall(_SHORT_FORMS.sub(r"\1\2\3\4", text).lower())
    return [_stem(one) for one in found if len(one) > 1 and one not in _STOP]


@lru_cache(maxsize=1 << 14)
def _stem(word: str) -> str:
    return _ENDINGS.sub("", word) if len(word) >= 5 else word


def steps(line: str) -> tuple[str, ...]:
    """Return the programs that a command line runs, with subcommands, without ``_READING`` and ``_MOVING``."""
    return tuple(step for step in all_steps(line) if step not in _MOVING)


def all_steps(line: str) -> tuple[str, ...]:
    """Return the programs that a command line runs, with subcommands, without ``_READING``."""
    plain = _QUOTED.sub(_plain_quotation, _HERE_DOCUMENT.sub("", line))
    found = dict.fromkeys(map(_step, _NEXT.split(plain)))
    return tuple(step for step in found if step)


def _plain_quotation(quoted: re.Match[str]) -> str:
    """Return the replacement of a quotation: its address if it contains nothing else, otherwise ``Q``."""
    address = _ADDRESS.match(quoted[0], 1)
    return address[0] if address and " " not in quoted[0] else "Q"


def _step(part: str) -> str:
    """Return the program of a part of a command line with its subcommands; empty for ``_READING``."""
    path, *rest = _SETTINGS.sub("", part, count=1).split() or [""]
    name = path.rpartition("/")[2].rstrip(")")
    if name == "git":
        rest = rest[2:] if rest[:1] == ["-C"] else rest
        is_reading = not rest or rest[0] in _GIT_READING
    else:
        is_reading = name in _READING or not name[:1].isalpha()
    done = [*takewhile(_SUBCOMMAND.fullmatch, rest[:2] if name in _WITH_SUBCOMMANDS else ())]
    if name in _INTERPRETERS and not done:
        words = takewhile(lambda word: not _REDIRECTION.match(word), rest)
        done = [word.rpartition("/")[2] for word in words if not word.startswith("-")][:1]
    if name in _CLIENTS and (address := _ADDRESS.search(part)):
        done = [address[1].rstrip("/")]
    return "" if is_reading else " ".join([name, *done])
