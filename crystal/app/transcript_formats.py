"""Check that the readers still know the formats of the agents' files, by the records of the newest files."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from crystal.config.harnesses import HARNESSES
from crystal.store import Store
from crystal.store.capture.record_counts import (
    SAID,
    CountedRecords,
    counted_records,
    drop_unknown,
    has_role,
    newest_roles,
)
from crystal.transcript.reader import reader_of
from crystal.transcript.record_kinds import NOT_JSON, is_known

WINDOW = 500
"""Minimum number of newest records that are checked; files are counted as a whole."""
MANY = 200
"""Number of records without a turn from which on the format counts as changed."""
NEWEST_TURNS = 300
"""Newest turns of an agent that are checked for parts that are missing."""
MANY_WITHOUT = 50
"""Number of calls without any result, or of prompts without any answer, from which on the format counts as changed."""
_FOLLOWS = {"tool_call": ("tool_result", "calls of tools has a result"), "user": ("assistant", "prompts has an answer")}
MIN_UNKNOWN = 3
CHANGED_PERCENT = 5.0
SHOWN_KINDS = 3
UPDATE = "update crystal, which then reads them again by itself"


@dataclass(slots=True)
class FormatState:
    """Counts of the records that the reader of one agent saw.

    Attributes:
        records, said: Of the newest files: how many records there are, and how many of them gave turns.
        unknown: Of the newest files: the records of kinds that this version does not know, by kind.
        path: The newest file with one of them.
        damaged: Lines of all files that are not JSON.
        damaged_path: The newest file with one of them.
        known_now: Kinds that were unknown when records of them were captured, with the number of these.
        missing: What the newest turns lack that older ones have, in words.
    """

    records: int = 0
    said: int = 0
    unknown: Counter[str] = field(default_factory=Counter)
    path: str | None = None
    damaged: int = 0
    damaged_path: str | None = None
    known_now: Counter[str] = field(default_factory=Counter)
    missing: list[str] = field(default_factory=list)

    @property
    def percent(self) -> float:
        """Return the share of unknown records in the newest files, 0 to 100."""
        return 100 * self.unknown.total() / self.records if self.records else 0.0

    @property
    def kinds(self) -> list[str]:
        """Return the unknown kinds, the most frequent first."""
        return [kind for kind, _ in self.unknown.most_common()]

    @property
    def has_changed(self) -> bool:
        """Return whether the agent seems to write another format than the reader knows."""
        is_unknown = self.unknown.total() >= MIN_UNKNOWN and self.percent >= CHANGED_PERCENT
        return is_unknown or (self.records >= MANY and not self.said)


def format_states(store: Store) -> dict[str, FormatState]:
    """Return the state of each agent's format, by harness."""
    found = defaultdict[str, FormatState](FormatState)
    for one in counted_records(store, WINDOW):
        if one.harness in HARNESSES:
            _add(found[one.harness], one)
    for harness, roles in newest_roles(store, NEWEST_TURNS).items():
        if harness in found and not HARNESSES[harness].is_export:
            found[harness].missing += _missing(store, harness, roles)
    return found


def _missing(store: Store, harness: str, roles: Counter[str]) -> Iterator[str]:
    """Name what the newest turns lack that older ones have: their roles are counted."""
    for role, (next_role, words) in _FOLLOWS.items():
        if roles[role] >= MANY_WITHOUT and not roles[next_role] and has_role(store, harness, next_role):
            yield f"none of the {roles[role]:,} newest {words}"


def _add(state: FormatState, one: CountedRecords) -> None:
    if one.is_unknown and one.kind == NOT_JSON:
        state.damaged += one.number
        state.damaged_path = state.damaged_path or one.path
    elif one.is_unknown and is_known(reader_of(one.harness), one.kind):
        state.known_now[one.kind] += one.number
    elif one.is_unknown and one.is_newest:
        state.unknown[one.kind] += one.number
        state.path = state.path or one.path
    if one.is_newest:
        state.records += one.number
        state.said += 0 if one.is_unknown or one.kind != SAID else one.number


def describe_formats(
    formats: Mapping[str, FormatState],
) -> Iterator[tuple[Literal["warning", "note"], str, str | None]]:
    """Yield what is to be said of the agents' formats, each with its next step."""
    for name, state in formats.items():
        title = HARNESSES[name].title
        if state.unknown and state.has_changed:
            words = f"{state.percent:.0f} % of {title}'s newest records are of unknown kinds"
            words += f" ({describe_kinds(state.kinds)}), last in {state.path}; the archive keeps them"
            yield "warning", words, UPDATE
        elif state.has_changed:
            words = f"none of {title}'s {state.records:,} newest records has words that crystal can read"
            yield "warning", f"{words}; the archive keeps them", UPDATE
        for words in state.missing:
            yield (
                "warning",
                f"{title}: {words} that crystal can read, as earlier ones had; the archive keeps them",
                UPDATE,
            )
        if state.known_now:
            words = f"crystal can read {state.known_now.total():,} records of {title} now that were of unknown kinds"
            yield "note", words, "crystal verify --repair"
        if state.damaged:
            lines = "1 line" if state.damaged == 1 else f"{state.damaged:,} lines"
            words = f"{lines} of {title} cannot be parsed, last in {state.damaged_path}; the archive keeps them"
            yield "note", words, None


def describe_kinds(kinds: list[str]) -> str:
    """Return the first kinds in words."""
    more = f" and {len(kinds) - SHOWN_KINDS} more" if len(kinds) > SHOWN_KINDS else ""
    return ", ".join(kinds[:SHOWN_KINDS]) + more


def count_as_known(store: Store) -> None:
    """Forget what was unknown once: the archive was read again since, with readers that know it."""
    for harness, state in format_states(store).items():
        if state.known_now:
            with store.transaction():
                drop_unknown(store, harness, state.known_now)
