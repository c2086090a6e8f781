"""Every setting, resolved once, frozen, and remembering where it came from.

``load_config`` combines flag, environment, config.toml and default; ``Config`` holds the result; the table of keys is
``SETTINGS``. Importing this costs little: nothing but the standard library, and TOML's parser.
"""

from __future__ import annotations

from crystal.config.edit import set_value, set_values, unset_value
from crystal.config.kinds import shown
from crystal.config.load import load_config
from crystal.config.table import SETTINGS, Config, Setting, setting_for, unknown_variables

__all__ = [
    "SETTINGS",
    "Config",
    "Setting",
    "load_config",
    "set_value",
    "set_values",
    "setting_for",
    "shown",
    "unknown_variables",
    "unset_value",
]
