"""Combine the settings files of Claude Code that determine whether crystal's hook runs.

Measured with the client 2.1.329: the first file that sets a value wins, in the order managed, local, project, user. A
project's files are read from the folder in which the client was started, not from its parents.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from crystal.install.claude_settings.claude_file import SettingsFacts, read_facts
from crystal.model.quick_dataclass import dataclass

INSTALLED_PLUGINS = Path("plugins", "installed_plugins.json")
_MANAGED = {
    "darwin": "/Library/Application Support/ClaudeCode/managed-settings.json",
    "win32": r"C:\Program Files\ClaudeCode\managed-settings.json",
}
MANAGED_SETTINGS = Path(_MANAGED.get(sys.platform, "/etc/claude-code/managed-settings.json"))
TURN_EVENT = "Stop"


@dataclass(frozen=True, slots=True)
class SettingsLayers:
    """The files in effect in one folder, in order of precedence."""

    user: SettingsFacts
    above: tuple[SettingsFacts, ...]

    @property
    def files(self) -> tuple[SettingsFacts, ...]:
        """Return the files that the client uses; it ignores a whole file for one invalid value."""
        return tuple(each for each in (*self.above, self.user) if unused_because(each) is None)

    @property
    def disabled_by(self) -> Path | None:
        """Return the file that disables all hooks, or None."""
        decided = next((each for each in self.files if each.hooks_disabled is not None), None)
        return decided.path if decided is not None and decided.hooks_disabled else None

    @property
    def managed_only(self) -> Path | None:
        """Return the managed settings that allow only their own hooks, or None."""
        return next((each.path for each in self.above[:1] if each.managed_hooks_only), None)

    @property
    def plugins(self) -> tuple[str, ...]:
        """Return the ids of crystal's enabled plugins."""
        known: dict[str, bool] = {}
        for each in reversed(self.files):
            known.update(each.plugins)
        return tuple(name for name, on in known.items() if on)

    @property
    def commands(self) -> tuple[str, ...]:
        """Return the commands of crystal's hook at the end of a turn."""
        return tuple(dict.fromkeys(each for file in self.files for each in file.commands.get(TURN_EVENT, ())))


def read_layers(claude_dir: Path, cwd: str | None) -> SettingsLayers:
    """Read the settings for a client started in ``cwd``; if None, the settings that apply everywhere."""
    project = [] if cwd is None else [Path(cwd, ".claude", name) for name in ("settings.local.json", "settings.json")]
    user = claude_dir / "settings.json"
    above = [MANAGED_SETTINGS, *(path for path in project if path != user)]
    return SettingsLayers(read_facts(user), tuple(map(read_facts, above)))


def unused_because(facts: SettingsFacts) -> str | None:
    """Return why the client ignores a settings file, or None if it uses it."""
    if facts.problem is not None:
        return facts.problem.message
    if facts.cleanup_days == 0 and not isinstance(facts.cleanup_days, bool):
        return f"{facts.path}: cleanupPeriodDays 0 switches the whole file off"
    return None


def missing_programs(commands: Sequence[str]) -> list[Path]:
    """Return the interpreter and the script of each hook command that no longer exist."""
    gone = []
    for command in commands:
        try:
            words = shlex.split(command)
        except ValueError:
            words = []
        programs = [Path(word) for at, word in enumerate(words) if at == 0 or word.endswith(("hook.py", "main.py"))]
        gone += [path for path in programs if not os.path.exists(path)]  # noqa: PTH110 - never raises
    return gone


def missing_plugin(claude_dir: Path, plugin: str) -> list[Path]:
    """Return the folder of an enabled plugin if it was installed and is missing."""
    folders = [
        Path(each["installPath"]) for each in _installations(claude_dir).get(plugin, ()) if "installPath" in each
    ]
    return [] if any(folder.is_dir() for folder in folders) else folders[:1]


def plugin_removals(claude_dir: Path) -> list[str]:
    """Return the commands that remove crystal's plugin from the client; empty if it is not enabled."""
    on = [name for name, is_on in read_facts(claude_dir / "settings.json").plugins.items() if is_on]
    commands = [f"claude plugin uninstall {name}" for name in on]
    for name, installed in _installations(claude_dir).items():
        projects = [
            each["projectPath"] for each in installed if name.split("@")[0] == "crystal" and "projectPath" in each
        ]
        commands += [f"cd {shlex.quote(each)} && claude plugin uninstall {name} --scope project" for each in projects]
    return commands


def _installations(claude_dir: Path) -> dict[str, list[dict[str, str]]]:
    """Return the client's plugin installations by id; empty if malformed."""
    try:
        known = json.loads((claude_dir / INSTALLED_PLUGINS).read_bytes())["plugins"]
        return {name: [each for each in found if isinstance(each, dict)] for name, found in known.items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}
