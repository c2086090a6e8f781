"""Remember the hits of the last search in each terminal, which ``crystal show 2`` and ``crystal show @2`` open.

The file contains names of hits and no text.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from crystal.config.paths import write_derived
from crystal.errors import NotFoundError, UsageError

FILE = "last-search.json"
MAX_TERMINALS = 16
MAX_HITS = 1000


def remember_hits(data_dir: Path, names: Sequence[str]) -> None:
    """Store the names of the hits that this terminal shows, in order; none if the search found nothing.

    Raises:
        OSError: They cannot be stored. Places then are those of an earlier search.
    """
    kept = {terminal: hits for terminal, hits in _read(data_dir).items() if terminal != _terminal()}
    kept = dict(list(kept.items())[1 - MAX_TERMINALS :]) | {_terminal(): list(names[:MAX_HITS])}
    write_derived(data_dir / FILE, json.dumps(kept).encode())


def named_by_place(data_dir: Path, wanted: str, *, by_person: bool = False) -> str:
    """Return the name of the hit at a place of the last search; return any other text unchanged.

    ``@2`` is always a place, up to three digits are one after a search in this terminal. Otherwise they are a hit's
    number or the beginning of a session's id, as in scripts; with ``by_person``, one or two digits are a place.

    Raises:
        NotFoundError: It is a place, and the last search had fewer hits, or none was made in this terminal.
        UsageError: What follows the ``@`` is no number.
    """
    wanted = wanted.strip()
    word = wanted.removeprefix("@")
    is_place = word != wanted
    if is_place and not _is_number(word, 19):
        raise UsageError(f"{wanted!r} is not a hit", hint="the second hit of the last search: crystal show @2")
    if not _is_number(word, 19 if is_place else 4):
        return wanted
    found = _read(data_dir).get(_terminal())
    if found and 1 <= int(word) <= len(found):
        return found[int(word) - 1]
    if is_place or (found is not None and len(word) < 4) or (by_person and len(word) < 3):
        raise _no_such_place(wanted, word, found)
    return wanted


def _is_number(word: str, digits: int) -> bool:
    return word.isascii() and word.isdecimal() and len(word) <= digits


def _no_such_place(wanted: str, word: str, found: Sequence[str] | None) -> NotFoundError:
    """Return the error for a place that the hits of the last search do not have; None: nothing was searched."""
    reason, hint = "no search in this terminal has found anything yet", 'search first: crystal search "..."'
    at, last = wanted.removesuffix(word), len(found or ())
    if found is not None:
        reason = f"the last search here had {last or 'no'} hit{'s' * (last != 1)}"
    if last:
        hint = f"hits are {at}1 to {at}{last}; try: crystal show {at}{last}"
    by_number = "" if at or not int(word) else f"; by its number in the memory: crystal show h{word}"
    return NotFoundError(f"there is no hit {wanted}: {reason}", hint=hint + by_number)


def named_to_delete(data_dir: Path, wanted: str) -> str:
    """Return the name of a hit as ``named_by_place``, but never guess which one a bare number means.

    Raises:
        UsageError: It may be a place of the last search, or a hit's number.
    """
    number = wanted.strip()
    if _is_number(number, 3) and _terminal() in _read(data_dir):
        words = f"{number} may be a place in the last search, or a hit's number"
        raise UsageError(words, hint=f"the place: crystal forget @{number}; the number: crystal forget h{number}")
    return named_by_place(data_dir, wanted)


def _terminal() -> str:
    """Return the id of this terminal: its session, which all commands of one shell share."""
    return str(os.getsid(0) if hasattr(os, "getsid") else os.getppid())


def _read(data_dir: Path) -> dict[str, list[str]]:
    try:
        found = json.loads((data_dir / FILE).read_bytes())
    except (OSError, ValueError):
        return {}
    items = found.items() if isinstance(found, dict) else ()
    return {terminal: hits for terminal, hits in items if isinstance(hits, list)}
