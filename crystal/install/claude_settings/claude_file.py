"""Read a settings file of Claude Code, plan a change, and write the file as a whole or not at all."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from crystal.config.paths import absolute, system_errors
from crystal.errors import CrystalError, DamagedError, UsageError
from crystal.hook import event as hook
from crystal.install.claude_settings import hooks
from crystal.install.file_change import BOM, FileChange, decoded, encoded, json_errors, read_whole, write_whole
from crystal.install.live import json_entries
from crystal.model.quick_dataclass import dataclass

MEND = "nothing was changed there; correct that place (Claude Code's /doctor shows it too), then run the command again"
WRITTEN_BY_HAND = "nothing was changed there; see docs/reference/hook.md for the entries to change by hand"


@dataclass(frozen=True, slots=True)
class SettingsPlan(FileChange):
    """A planned change to a settings file.

    Attributes:
        backup: What happens to the backup: ``write`` the current bytes, ``drop`` it because it equals the new bytes,
            ``shelve`` one left from a deleted file, or ``keep`` it.
    """

    backup: Literal["write", "drop", "shelve", "keep"] = "keep"


@dataclass(frozen=True, slots=True)
class SettingsFacts:
    """The facts of a settings file that matter to capture.

    Attributes:
        path: The settings file.
        exists: True if the file exists.
        commands: The commands of our entries by event.
        hooks_disabled: ``disableAllHooks`` if set: if True the client runs no hooks at all.
        cleanup_days: ``cleanupPeriodDays`` if set: number of days after which the client deletes transcripts (30 by
            default). 0 is invalid and disables the whole file, including hooks.
        problem: Why the file cannot be parsed, or None.
        plugins: Each plugin of crystal in the file, and whether it is enabled: a plugin has its own hooks.
        managed_hooks_only: ``allowManagedHooksOnly``, which applies in managed settings.
    """

    path: Path
    exists: bool
    commands: Mapping[str, list[str]] = field(default_factory=dict)
    hooks_disabled: bool | None = None
    cleanup_days: Any = None
    problem: CrystalError | None = None
    plugins: Mapping[str, bool] = field(default_factory=dict)
    managed_hooks_only: bool = False

    @property
    def plugin(self) -> bool:
        """Return whether a plugin of crystal is enabled."""
        return any(self.plugins.values())


def hook_words(python: Path, hook_file: Path, locations: Mapping[str, str]) -> list[str]:
    """Return the hook's program and arguments.

    All paths are absolute, because the client's PATH and current folder are unknown. The client stores the command in
    every transcript, so it must contain only paths.

    Args:
        python: The interpreter of the environment in which crystal is installed; the link in a venv, not its target.
        hook_file: ``crystal/hook/main.py`` of that installation.
        locations: The result of ``locations_to_bake``.
    """
    baked = [word for name, value in locations.items() for word in ("--env", f"{name}={value}")]
    return [str(python), "-I", "-S", str(hook_file), *baked]


def hook_line(words: Sequence[str], *, windows: bool = False) -> str:
    """Return the hook's words as one line, quoted for the shell that the client uses.

    The line succeeds even if crystal is deleted: without the script Python would exit with 2, which tells several
    agents to continue the turn.

    Args:
        words: The program and its arguments.
        windows: Use forward slashes: the shell there (Git Bash) removes backslashes. Untested.
    """
    line = shlex.join(word.replace("\\", "/") if windows else word for word in words)
    return line if windows else f"{line} || true"


def locations_to_bake(env: Mapping[str, str], home: Path) -> dict[str, str]:
    """Return absolute paths of the folders set in this environment, which the client's environment may lack."""
    return {name: str(absolute(env[name], home, name=name)) for name in hook.BAKED if env.get(name, "").strip()}


def plan_install(settings: Path, command: str, moments: Collection[str] = ()) -> SettingsPlan:
    """Plan to give each event one entry that runs ``command``. If all are present, the plan changes nothing.

    ``moments`` are the moments at which assist gives facts.

    Raises:
        UsageError: The file is not valid JSON for the client, or ``hooks`` has a wrong type; with line, column and
            next step.
        UnavailableError: The system refuses to read it.
    """
    target, before = read_whole(settings)
    mark, text = decoded(settings, before or b"", MEND)
    with json_errors(settings, text, MEND):
        after = hooks.installed(text, command, moments, _text_before(settings)[1])
        _prove(settings, text, after, {event: [command] for event in hooks.wanted(moments)})
    if before is None:
        return SettingsPlan(settings, target, None, encoded(settings, after), "shelve")
    data = mark + encoded(settings, after)
    return SettingsPlan(settings, target, before, data, "keep" if hooks.ours(text) else "write")


def plan_uninstall(settings: Path) -> SettingsPlan:
    """Plan to remove all our entries, of any version.

    Raises:
        UsageError: The file is not JSON, and mentions us.
        UnavailableError: The system refuses to read it.
    """
    target, before = read_whole(settings)
    if before is None or b"crystal" not in before:
        return SettingsPlan(settings, target, before, before)
    mark, text = decoded(settings, before, MEND)
    backup, original = _text_before(settings)
    with json_errors(settings, text, MEND):
        left = hooks.removed(text, original)
        _prove(settings, text, left, {})
    if not hooks.ours(text):
        return SettingsPlan(settings, target, before, before)
    if left == hooks.EMPTY and (backup is None or not backup.removeprefix(BOM).strip()):
        return SettingsPlan(settings, target, before, backup, "drop")  # there was no file, or an empty one
    after = mark + encoded(settings, left)
    return SettingsPlan(settings, target, before, after, "drop" if after == backup else "keep")


def apply(plan: SettingsPlan) -> None:
    """Apply a planned change. After a crash the file has the old or the new bytes, and the backup exists.

    Raises:
        UnavailableError: The file was changed since the plan was made, or the system refuses. It is left unchanged.
    """
    if not plan.changed:
        return
    with system_errors(plan.path):
        plan.check_unchanged()
        backup = backup_path(plan.path)
        if plan.backup == "write" and plan.before is not None:
            write_whole(backup, plan.before, like=plan.target)
        elif plan.backup == "shelve" and backup.exists():
            backup.replace(backup.with_name(backup.name + "-old"))
        plan.write()
        if plan.backup == "drop":
            backup.unlink(missing_ok=True)


def read_facts(settings: Path) -> SettingsFacts:
    """Read the facts that matter to capture. Never raises a ``CrystalError``: a broken file is reported as a fact."""
    try:
        _, data = read_whole(settings)
        if data is None or not data.removeprefix(BOM).strip():
            return SettingsFacts(settings, exists=data is not None)
        _, text = decoded(settings, data, MEND)
        with json_errors(settings, text, MEND):
            document = hooks.checked(text).value
    except CrystalError as error:
        return SettingsFacts(settings, exists=True, problem=error)
    disabled = document.get("disableAllHooks")
    if disabled is not None and not isinstance(disabled, bool):
        problem = UsageError(f'{settings}: "disableAllHooks" should be true or false', hint=MEND)
        return SettingsFacts(settings, exists=True, problem=problem)
    return SettingsFacts(
        settings,
        exists=True,
        commands=hooks.ours(text),
        hooks_disabled=disabled,
        cleanup_days=document.get("cleanupPeriodDays"),
        plugins=_plugins(document),
        managed_hooks_only=document.get("allowManagedHooksOnly") is True,
    )


def _plugins(document: Mapping[str, Any]) -> dict[str, bool]:
    """Return the plugins named crystal, from any marketplace, and whether each is enabled."""
    plugins = document.get("enabledPlugins")
    named = plugins.items() if isinstance(plugins, dict) else ()
    return {name: on is True for name, on in named if name.split("@")[0] == "crystal"}


def backup_path(settings: Path) -> Path:
    """Return the path of the backup: next to the name that the client uses, not its link target."""
    return settings.with_name(settings.name + ".crystal-backup")


def _text_before(settings: Path) -> tuple[bytes | None, str | None]:
    """Return the document before our first entry, as bytes and as text, if it is known."""
    with contextlib.suppress(OSError):
        backup = backup_path(settings).read_bytes()
        return backup, decoded(settings, backup, MEND)[1]
    return None, None


def _prove(settings: Path, before: str, after: str, wanted: Mapping[str, list[str]]) -> None:
    """Check that the document has exactly our entries as wanted, and nothing else has changed."""
    old = json.loads(before) if before.strip() else {}
    rest = [json.dumps(json_entries.others(document)) for document in (old, json.loads(after))]
    if hooks.ours(after) != wanted or rest[0] != rest[1]:
        problem = f"{settings}: crystal's hooks cannot be changed without changing others"
        raise DamagedError(problem, hint=WRITTEN_BY_HAND)
