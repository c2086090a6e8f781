"""Claude Code's settings file: crystal's hooks put in and taken out, and every other byte left as it is.

A change is planned first (``plan_install``, ``plan_uninstall``: nothing is written, ``plan.diff()`` shows it), then
applied (``apply``). A file that cannot be understood is refused with the place where reading stopped, and stays.

The backup beside the file (``settings.json.crystal-backup``) holds it as it was just before crystal's entries came
into it. It is written when there are none in the file, so that it never holds a change of ours, and it goes when
uninstalling has given exactly these bytes back.
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
