"""Add crystal's hooks to Claude Code's settings file, and remove them, without changing any other byte.

A change is planned first (``plan_install``, ``plan_uninstall``: nothing is written, ``plan.diff()`` shows it), then
applied (``apply``). A file that cannot be parsed is refused with the position of the error, and is not changed.

The backup next to the file (``settings.json.crystal-backup``) holds its content before crystal's entries were added. It
is written only if there are none in the file, so that it never holds a change of ours. It is deleted when uninstalling
has restored exactly these bytes.
"""

from crystal.install.claude_settings.file import (
    SettingsFacts,
    SettingsPlan,
    apply,
    backup_path,
    hook_command,
    install,
    locations_to_bake,
    plan_install,
    plan_uninstall,
    read_facts,
    uninstall,
)
from crystal.install.claude_settings.hooks import TIMEOUTS
from crystal.install.claude_settings.layers import (
    MANAGED_SETTINGS,
    SettingsLayers,
    missing_plugin,
    missing_programs,
    plugin_removals,
    read_layers,
    unused_because,
)

__all__ = [
    "MANAGED_SETTINGS",
    "TIMEOUTS",
    "SettingsFacts",
    "SettingsLayers",
    "SettingsPlan",
    "apply",
    "backup_path",
    "hook_command",
    "install",
    "locations_to_bake",
    "missing_plugin",
    "missing_programs",
    "plan_install",
    "plan_uninstall",
    "plugin_removals",
    "read_facts",
    "read_layers",
    "uninstall",
    "unused_because",
]
