"""Write the prepared contexts for the hook, and read its marks of the sessions that received one.

``<data_dir>/context`` contains ``rules.json``, ``default.json`` and a file for each folder; all can be rebuilt at any
time. ``<data_dir>/told`` contains an empty file for each session and source, so that the hook does not send a context
twice; until the worker has read it, it has the ids of the sent items.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from crystal.config.paths import make_private_dir, refused, write_derived
from crystal.context.choosing import SessionContext
from crystal.hook.assist import PACKET, PACKETS, SUFFIX
from crystal.hook.session_start import ASSIST_STATE, NOT_COUNTED, TOLD_SOURCES, context_file
from crystal.store.sessions.contexts import ASSIST, Injection

DEFAULT = "default.json"
RULES = "rules.json"
KEPT_MS = 90 * 86_400_000
"""Time for which a mark is kept. Clients delete transcripts after 30 days."""

STATE_MS = 86_400_000
"""Time after which the facts that a session got are certainly in the store."""
MAX_MARK_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Rules:
    """Conditions under which the hook sends nothing.

    Attributes:
        config: The settings file.
        stamp: Its state when these rules were written; see ``crystal.hook.session_start.stamp_of``.
        variables: Values of environment variables that override settings.
        private_sessions: Prefixes of private session ids.
        private_folders: Prefixes of folders without a prepared context.
        off: Sessions with capture switched off.
        moments: The moments at which assist gives facts.
        assist_tokens: Token budget of a session for these facts; a string, because the hook parses no numbers.
        is_for_all: Whether agents other than Claude Code may get what it gets.
    """

    config: str
    stamp: str
    variables: Mapping[str, str]
    private_sessions: tuple[str, ...] = ()
    private_folders: tuple[str, ...] = ()
    off: tuple[str, ...] = ()
    moments: tuple[str, ...] = ()
    assist_tokens: str = "0"
    is_for_all: bool = True


@dataclass(frozen=True, slots=True)
class PreparedContext:
    """The prepared context of a folder; ``cwd`` is None for all folders without their own."""

    cwd: str | None
    told: SessionContext


def write_contexts(data_dir: Path, rules: Rules, ready: Iterable[PreparedContext]) -> None:
    """Replace the prepared contexts. Unchanged files are not written again.

    Files of facts are deleted if the rules changed: a new setting may hide their content.

    Raises:
        UsageError, UnavailableError: The system refuses.
    """
    folder = data_dir / "context"
    make_private_dir(folder)
    files = {DEFAULT if one.cwd is None else context_file(one.cwd): _content(one) for one in ready}
    try:
        is_as_before = _has(folder / RULES, _encoded(asdict(rules)))
        for path in folder.iterdir():
            is_told = rules.moments if path.suffix == SUFFIX else path.suffix == PACKET and PACKETS & {*rules.moments}
            if path.name not in files and path.name != RULES and not (is_told and is_as_before):
                path.unlink(missing_ok=True)
        for name, content in files.items():
            _write(folder / name, content)
        _write(folder / RULES, _encoded(asdict(rules)))
    except OSError as error:
        raise refused(error, folder) from error


def clear_contexts(data_dir: Path) -> None:
    """Delete all prepared contexts. The marks stay.

    Raises:
        UsageError, UnavailableError: The system refuses.
    """
    try:
        shutil.rmtree(data_dir / "context")
    except FileNotFoundError:
        pass
    except OSError as error:
        raise refused(error, data_dir / "context") from error


def read_marks(data_dir: Path, now: int) -> list[tuple[Path, Injection | None]]:
    """Return the marks left by the hook since the last call; call ``empty_mark`` for each once it is recorded.

    A malformed mark has no injection. Old, recorded marks are deleted.
    """
    folder = data_dir / "told"
    found: list[tuple[Path, Injection | None]] = []
    with contextlib.suppress(OSError):
        for path in sorted(folder.iterdir()):
            seen = path.lstat()
            age = now - seen.st_mtime_ns // 1_000_000
            if path.suffix == ASSIST_STATE and age < KEPT_MS:
                found += [(path, _read_state(path))] if age < STATE_MS else []
            elif seen.st_size and path.suffix != ASSIST_STATE:
                found.append((path, _read_mark(path)))
            elif age > KEPT_MS:
                path.unlink(missing_ok=True)
    return found


def empty_mark(path: Path) -> None:
    """Empty a mark that is recorded in the store: its name still prevents a second delivery.

    The facts of assist stay, because their ids prevent a second delivery.
    """
    if path.suffix != ASSIST_STATE:
        with contextlib.suppress(OSError):
            os.truncate(path, 0)


def _read_state(path: Path) -> Injection | None:
    """Return the facts that assist gave to a session so far."""
    try:
        rows = [row for row in map(str.split, path.read_text("ascii").splitlines()) if row[3] != NOT_COUNTED]
        times, tokens = [int(row[0]) for row in rows], sum(int(row[3]) for row in rows)
        chosen, why = tuple(row[2] for row in rows), dict(Counter(row[1] for row in rows))
    except (OSError, ValueError, LookupError):
        return None
    return Injection(times[0], path.stem, ASSIST, len(rows), chosen, 0, tokens, why) if rows else None


def _read_mark(path: Path) -> Injection | None:
    session, _, source = path.name.rpartition(".")
    try:
        with path.open("rb") as file:
            at, _, rest = file.read(MAX_MARK_BYTES).decode("ascii").partition(" ")
        fields: Any = json.loads(rest)
        numbers = [int(fields[name]) for name in ("candidates", "omitted", "tokens")]
        chosen = tuple(str(one) for one in fields["chosen"])
        moment = int(at)
        why = {str(reason): int(number) for reason, number in fields.get("why", {}).items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    if not session or source not in TOLD_SOURCES or not all(0 <= number < 1 << 53 for number in (moment, *numbers)):
        return None
    return Injection(moment, session, source, numbers[0], chosen, numbers[1], numbers[2], why)


def _content(ready: PreparedContext) -> bytes:
    told = ready.told
    names = {"candidates": len(told.choices), "chosen": told.chosen, "omitted": told.omitted, "tokens": told.tokens}
    names["why"] = told.reasons
    facts = {"facts": " ".join(told.facts)} if told.facts else {}
    return _encoded({"cwd": ready.cwd or "", "body": told.body, "told": json.dumps(names), **facts})


def _encoded(value: object) -> bytes:
    return json.dumps(value).encode("ascii") + b"\n"


def _write(path: Path, content: bytes) -> None:
    """Replace a file unless it has this content already."""
    if not _has(path, content):
        write_derived(path, content)


def _has(path: Path, content: bytes) -> bool:
    with contextlib.suppress(OSError):
        return path.read_bytes() == content
    return False
