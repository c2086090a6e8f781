"""Plan what live capture needs in an agent's files, show it, and apply it; remove it to the byte.

If one file cannot be used, the plan names it and leaves it unchanged; the others are changed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from crystal.config.paths import home_of
from crystal.errors import CrystalError, DamagedError, UnavailableError, UsageError
from crystal.install import jsontext
from crystal.install.file_change import FileChange, decoded, encoded, json_errors, noted, read_whole
from crystal.install.json5 import as_json
from crystal.install.live import json_entries
from crystal.install.live.mechanisms import MECHANISMS, WRITTEN, HookCommand, OwnFile, Part, SharedFile
from crystal.install.undo import LIVE, Undo, made_of_nothing, missing_folders, read_record, remove_empty, write_record

MEND = "nothing was changed there; correct that place, then run the command again"
MODE = 0o700
EMPTIES = ("{}", '{"version":1}')
"""Contents of a file that we created, once our entries and white space are removed."""
_SCRIPT = r"crystal[/\\]+hook[/\\]+main\.py"
SCRIPT = re.compile(rf"""'([^']*{_SCRIPT})'|"([^"']*{_SCRIPT})"|([^\s"']*{_SCRIPT})""")
"""The hook's path in any of our files, as the shell or JSON quotes it."""


@dataclass(frozen=True, slots=True)
class LiveChange(FileChange):
    """A planned change to one file of an agent.

    Attributes:
        made: The record to write once it is applied, None after a removal.
        is_own: True if the whole file is ours.
        folders: The folders to remove if they become empty, outermost first.
        executable: True if the file is a program.
    """

    made: Undo | None = None
    is_own: bool = False
    folders: tuple[str, ...] = ()
    executable: bool = False

    @property
    def changed(self) -> bool:
        """Return whether the plan changes the file."""
        is_to_mark = self.executable and self.before is not None and not self.target.stat().st_mode & stat.S_IXUSR
        return self.before != self.after or is_to_mark

    def write(self) -> None:
        """Apply the change: see ``FileChange``."""
        FileChange.write(self)
        if self.executable and self.after is not None:
            self.target.chmod(MODE)


@dataclass(frozen=True, slots=True)
class LivePlan:
    """Planned changes for one agent. ``problems`` are the errors of files that cannot be used and stay unchanged."""

    name: str
    folder: Path
    command: HookCommand
    changes: tuple[LiveChange, ...]
    problems: tuple[CrystalError, ...] = ()

    @property
    def changed(self) -> bool:
        """Return whether the plan changes a file."""
        return any(change.changed for change in self.changes)

    @property
    def has_more(self) -> bool:
        """Return whether the plan makes a file longer."""
        return any(len(change.after or b"") > len(change.before or b"") for change in self.changes)


def folder_of(name: str, env: Mapping[str, str], home: Path) -> Path:
    """Return the folder of an agent's settings, as set in the agent's own environment variable or by default."""
    return home_of(MECHANISMS[name].place, env, home)


def plan_install(name: str, folder: Path, command: HookCommand, record: Mapping[str, Undo]) -> LivePlan:
    """Plan to have exactly our entries and files in an agent's folder; change nothing if they are correct."""
    changes, problems = [], list[CrystalError]()
    for part in MECHANISMS[name].parts(command, folder):
        with noted(problems):
            change = _plan_part(folder / part.name, part, record.get(str(folder / part.name)))
            if change.changed:
                _refuse_read_only(change.path, change.target, change.before)
            changes.append(change)
    return LivePlan(name, folder, command, tuple(changes), tuple(problems))


def apply(plan: LivePlan, ldm_home: Path) -> LivePlan:
    """Plan again and apply, because a change for a client may have altered the same files. Return what was done.

    Raises:
        UnavailableError: Another process is changing a file, or the system refuses.
    """
    record, clients = read_record(ldm_home, LIVE), read_record(ldm_home)
    created = {one.path: one for one in clients.values() if one.what == "file"}  # crystal's server alone is in these
    plan = plan_install(plan.name, plan.folder, plan.command, record)
    for change in plan.changes:
        path = str(change.path)
        if change.made is not None and path not in record:
            record[path] = created.get(path, change.made)
            write_record(ldm_home, record, LIVE)  # before the change: a record without a change is harmless
        change.apply()
    return plan


def plan_removal(env: Mapping[str, str], home: Path, ldm_home: Path) -> tuple[list[LiveChange], list[CrystalError]]:
    """Plan to remove our entries and files from all agents, also from earlier places of moved folders.

    Raises:
        UnavailableError: The record cannot be read.
    """
    record = read_record(ldm_home, LIVE)
    known = {path: is_own for name in MECHANISMS for path, is_own in _files_of(name, env, home)}
    known |= {Path(path): made.what == "own" for path, made in record.items()}
    changes, problems = list[LiveChange](), list[CrystalError]()
    for path, is_own in known.items():
        with noted(problems):
            change = _plan_removal(path, record.get(str(path)), is_own=is_own)
            changes += [change] if change.changed or str(path) in record else []
    return changes, problems


def apply_removal(changes: list[LiveChange] | tuple[LiveChange, ...], ldm_home: Path) -> None:
    """Remove our entries and files from the present content of the files.

    Raises:
        UnavailableError: Another process is changing a file, or the system refuses.
    """
    record = read_record(ldm_home, LIVE)
    for change in changes:
        _plan_removal(change.path, record.get(str(change.path)), is_own=change.is_own).apply()
        if record.pop(str(change.path), None) is not None:
            write_record(ldm_home, record, LIVE)
    for change in changes:  # last, because one folder may have had several files
        remove_empty(change.folders)


def is_live(name: str, env: Mapping[str, str], home: Path) -> bool | None:
    """Return whether an agent's files run the hook after every turn; None if the agent has no such mechanism."""
    if name not in MECHANISMS:
        return None
    return all(_has_ours(path, is_own=is_own) for path, is_own in _files_of(name, env, home))


def missing_scripts(name: str, env: Mapping[str, str], home: Path) -> list[str]:
    """Return the hooks in an agent's files whose script no longer exists."""
    files = [path for path, _ in _files_of(name, env, home)]
    texts = [_text_of(path) for path in files]
    scripts = dict.fromkeys("".join(found) for text in texts for found in SCRIPT.findall(text))
    return [script for script in scripts if not os.path.exists(script)]  # noqa: PTH110 - never raises


# -- one file


def _plan_part(path: Path, part: Part, made: Undo | None) -> LiveChange:
    target, before = read_whole(path)
    if isinstance(part, OwnFile):
        if before is not None and not _is_own(before):
            raise UsageError(f"{path} is not crystal's and stays", hint="move it away, then run the command again")
        made = made or Undo(str(path), "own", None, missing_folders(target))
        return LiveChange(path, target, before, part.text.encode(), made, True, executable=part.executable)
    mark, text = decoded(path, before or b"", MEND)
    with json_errors(path, text, MEND):
        after = _text_with(path, text, part, made)
        made = made or _made(path, target, None if before is None else text, part)
    return LiveChange(path, target, before, mark + encoded(path, after), made)


def _text_with(path: Path, text: str, part: SharedFile, made: Undo | None) -> str:
    document = text if text.strip() else part.empty
    if not part.may_be_json5:
        jsontext.parse(jsontext.blank_comments(document))
    kept = made.kept if made else _containers(document, part)
    after = json_entries.added(document, part.entries, kept)
    _check_others(path, document, after)
    return after


def _made(path: Path, target: Path, text: str | None, part: SharedFile) -> Undo:
    made = made_of_nothing(path, target, text)
    return made or Undo(str(path), "entry", kept=_containers(text or "", part))


def _containers(text: str, part: SharedFile) -> tuple[str, ...]:
    """Return the existing containers, which stay; empty if our entries are there, whose creator is then unknown."""
    return () if json_entries.ours(text) else json_entries.containers(text, part.entries)


def _plan_removal(path: Path, made: Undo | None, *, is_own: bool) -> LiveChange:
    target, before = read_whole(path)
    unchanged = LiveChange(path, target, before, before, None, is_own, made.folders if made else ())
    if before is None or not (_is_own(before) or json_entries.PLUGIN_FOLDER.encode() in before):
        return unchanged
    if is_own:
        return replace(unchanged, after=None) if _is_own(before) else unchanged
    mark, text = decoded(path, before, MEND)
    with json_errors(path, text, MEND):
        left = json_entries.removed(text, made.kept if made else ())
        _check_others(path, text, left)
    if left == text:
        return unchanged
    _refuse_read_only(path, target, before)
    after: bytes | None = mark + encoded(path, left)
    if made and made.what == "file" and "".join(left.split()) in EMPTIES:
        after = made.content(mark)
    return replace(unchanged, after=after)


def _check_others(path: Path, before: str, after: str) -> None:
    """Check that only our entries differ, independently of how the change was made."""
    old, new = (json_entries.others(json.loads(as_json(text).text)) for text in (before, after))
    if json.dumps(old) != json.dumps(new):
        raise DamagedError(f"{path}: crystal's entries cannot be changed without changing others", hint=MEND)


def _refuse_read_only(path: Path, target: Path, before: bytes | None) -> None:
    """Refuse a write-protected file, although it could be replaced."""
    if before is not None and not target.stat().st_mode & 0o222:
        hint = f"allow it: chmod u+w {shlex.quote(str(path))}, then run the command again"
        raise UnavailableError(f"{path} is read-only and stays as it is", hint=hint)


def _files_of(name: str, env: Mapping[str, str], home: Path) -> list[tuple[Path, bool]]:
    """Return an agent's files, each with whether the whole file is ours."""
    folder = folder_of(name, env, home)
    parts = MECHANISMS[name].parts(HookCommand(()), folder)
    return [(folder / part.name, isinstance(part, OwnFile)) for part in parts]


def _is_own(data: bytes) -> bool:
    """Return whether we wrote the whole file. A user's script may run our hook too."""
    text = data.decode("utf-8", "replace")
    return WRITTEN in text or (not text.startswith("#!") and json_entries.OURS.search(text) is not None)


def _has_ours(path: Path, *, is_own: bool) -> bool:
    text = _text_of(path)
    if is_own or not text.strip():
        return bool(text) and _is_own(text.encode())
    with contextlib.suppress(jsontext.JsonSyntaxError, RecursionError):
        return bool(json_entries.ours(text))
    return False


def _text_of(path: Path) -> str:
    try:
        return (read_whole(path)[1] or b"").decode("utf-8", "replace")
    except CrystalError:
        return ""
