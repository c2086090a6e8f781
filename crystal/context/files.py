"""Where contexts lie ready for the hook, and where it leaves a mark for each that it told.

``<data_dir>/context`` holds ``rules.json``, ``default.json`` and a file for each folder; all can be made again at any
time. ``<data_dir>/told`` holds an empty file for each session and source, which keeps the hook from telling it twice;
until the worker has read it, it holds what was told, by ids.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from crystal.config.paths import make_private_dir, refused, write_derived
from crystal.context.choosing import Told
from crystal.hook.session_start import TOLD_SOURCES, context_file
from crystal.store.sessions.contexts import Injection

DEFAULT = "default.json"
RULES = "rules.json"
KEPT_MS = 90 * 86_400_000
"""How long a session counts as told. Clients delete transcripts after 30 days."""

MOST_MARK_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Rules:
    """When the hook tells nothing.

    Attributes:
        config: The settings file.
        stamp: How it was when this was made; see ``crystal.hook.session_start.stamp_of``.
        variables: Environment variables that say the same as settings, as they were.
        private_sessions: Beginnings of session ids.
        private_folders: Beginnings of folders for which nothing lies ready.
        off: Sessions for which capture is off.
    """

    config: str
    stamp: str
    variables: Mapping[str, str]
    private_sessions: tuple[str, ...] = ()
    private_folders: tuple[str, ...] = ()
    off: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ready:
    """What lies ready for a folder; ``cwd`` is None for all folders that have nothing of their own."""

    cwd: str | None
    told: Told


def write_contexts(data_dir: Path, rules: Rules, ready: Iterable[Ready]) -> None:
    """Put contexts in the place of those that lie there. What stays the same is not written again.

    Raises:
        UsageProblem, Unavailable: The system refuses.
    """
    folder = data_dir / "context"
    make_private_dir(folder)
    files = {DEFAULT if one.cwd is None else context_file(one.cwd): _content(one) for one in ready}
    try:
        for path in folder.iterdir():
            if path.name not in files and path.name != RULES:
                path.unlink(missing_ok=True)
        for name, content in files.items():
            _write(folder / name, content)
        _write(folder / RULES, _encoded(asdict(rules)))
    except OSError as error:
        raise refused(error, folder) from error


def clear_contexts(data_dir: Path) -> None:
    """Remove everything that lies ready. What was told stays known.

    Raises:
        UsageProblem, Unavailable: The system refuses.
    """
    try:
        shutil.rmtree(data_dir / "context")
    except FileNotFoundError:
        pass
    except OSError as error:
        raise refused(error, data_dir / "context") from error


def take_told(data_dir: Path, now: int) -> list[tuple[Path, Injection | None]]:
    """The marks that the hook left since the last time; ``settle_told`` each once it is noted.

    A mark that cannot be understood has no injection. Marks that are old and noted are removed.
    """
    folder = data_dir / "told"
    found: list[tuple[Path, Injection | None]] = []
    with contextlib.suppress(OSError):
        for path in sorted(folder.iterdir()):
            seen = path.lstat()
            if seen.st_size:
                found.append((path, _read_mark(path)))
            elif now - seen.st_mtime_ns // 1_000_000 > KEPT_MS:
                path.unlink(missing_ok=True)
    return found


def settle_told(path: Path) -> None:
    """Empty a mark that is noted in the store: its name goes on keeping the hook from telling it twice."""
    with contextlib.suppress(OSError):
        os.truncate(path, 0)


def _read_mark(path: Path) -> Injection | None:
    session, _, source = path.name.rpartition(".")
    try:
        with path.open("rb") as file:
            at, _, rest = file.read(MOST_MARK_BYTES).decode("ascii").partition(" ")
        fields: Any = json.loads(rest)
        numbers = [int(fields[name]) for name in ("candidates", "omitted", "tokens")]
        chosen = tuple(str(one) for one in fields["chosen"])
        moment = int(at)
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    if not session or source not in TOLD_SOURCES or not all(0 <= number < 1 << 53 for number in (moment, *numbers)):
        return None
    return Injection(moment, session, source, numbers[0], chosen, numbers[1], numbers[2])


def _content(ready: Ready) -> bytes:
    told = ready.told
    names = {
        "candidates": len(told.choices),
        "chosen": list(told.chosen),
        "omitted": told.omitted,
        "tokens": told.tokens,
    }
    return _encoded({"cwd": ready.cwd or "", "body": told.body, "told": json.dumps(names)})


def _encoded(value: object) -> bytes:
    return json.dumps(value).encode("ascii") + b"\n"


def _write(path: Path, content: bytes) -> None:
    """Replace a file unless it has this content already."""
    with contextlib.suppress(OSError):
        if path.read_bytes() == content:
            return
    write_derived(path, content)
