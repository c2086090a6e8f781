"""Replay which facts past sessions would have been told, and whether they were used. Pure.

At each moment only facts count that were true before it and come from another session. What is told counts as used if
afterwards user or agent name or run something of it that is new: a name (a file, an identifier, a path) that neither
the session before that moment nor the call itself has, or two such words that at most one in ten sessions has.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from crystal.assist.facts import Known
from crystal.hook.assist import PACKETS, worth_telling
from crystal.hook.matching import facts_for_edit, facts_for_failure

MAX_RARE = 3
"""A word that so few sessions have is no common one, however few sessions there are."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment at which something could have been told.

    Attributes:
        kind: One of those in ``crystal.hook.assist.MOMENTS``.
        at: When, ms.
        session: In which session.
        given: A tool's arguments, a command's output, or the facts of the session's own packet.
        before: All that the agent knows then; None: what its session said until then.
        after: What the agent says later; None: what its session does.
    """

    kind: str
    at: int
    session: str
    given: Any
    before: str | None = None
    after: str | None = None


MomentFacts = tuple[Moment, list[dict[str, str]]]


@dataclass(slots=True)
class ReplayTally:
    """Counts of the moments of one kind, and of the facts told at them.

    Attributes:
        moments: How many there were.
        used: At how many of these it was used.
        by_chance: At how many of these what another moment was told would have counted as used.
        tokens: How long it was, together.
        told: What was told, with whether it was used.
    """

    moments: int = 0
    used: int = 0
    by_chance: int = 0
    tokens: int = 0
    told: list[tuple[Moment, str, bool]] = field(default_factory=list)

    @property
    def with_fact(self) -> int:
        """Return the number of moments with a fact."""
        return len(self.told)

    @property
    def unused_share(self) -> float:
        """Return the share of all moments with a fact that was not used."""
        return (self.with_fact - self.used) / self.moments if self.moments else 0.0


def facts_at(known: Known, moment: int) -> Callable[..., dict[str, str] | None]:
    """Return how the hook would find facts at a moment."""

    def find(*parts: str) -> dict[str, str] | None:
        fact = known.fact(parts, moment)
        return None if fact is None else fact.told()

    return find


def replay_moments(moments: Iterable[Moment], history: Known, budget: int) -> list[MomentFacts]:
    """Return what each moment is told, none of it twice in a session; ``moments`` are in the order of time."""
    left: dict[str, int] = defaultdict(lambda: budget)
    told: set[tuple[str, str]] = set()
    found = []
    for moment in moments:
        now = list[dict[str, str]]()
        for fact in _known(moment, facts_at(history, moment.at)):
            seen, tokens = (moment.session, fact["id"]), int(fact["tokens"])
            if fact["session"] != moment.session and seen not in told and tokens <= left[moment.session]:
                told.add(seen)
                left[moment.session] -= tokens
                now.append(fact)
        found.append((moment, now))
    return found


def _known(moment: Moment, find: Callable[..., dict[str, str] | None]) -> list[dict[str, str]]:
    if moment.kind in PACKETS:
        return worth_telling(moment.kind, moment.given)
    return facts_for_edit(moment.given, "", find) if moment.kind == "edit" else facts_for_failure(moment.given, find)


def common_words(sessions: Sequence[Collection[str]]) -> set[str]:
    """Return the words that more than one in ten sessions has, and more than ``MAX_RARE``."""
    counts = Counter(word for words in sessions for word in words)
    return {word for word, number in counts.items() if number > max(MAX_RARE, len(sessions) / 10)}
