"""Show each setting and where its value comes from; change which folders are private."""

from __future__ import annotations

from crystal.app.context import Machine, this_home
from crystal.app.session_context import settings_changed
from crystal.config.edit import below_home, set_value
from crystal.config.kinds import shown
from crystal.config.table import SETTINGS, Config
from crystal.errors import UsageError
from crystal.model.named_tuple import NamedTuple
from crystal.web.responses import Page, Redirect, RequestValues

PRIVATE = "private.projects"


class SettingRow(NamedTuple):
    """A setting as it is shown."""

    key: str
    value: str
    origin: str
    meaning: str


def show(machine: Machine, params: RequestValues) -> Page:  # noqa: ARG001 - the interface's
    """Show every setting."""
    config = machine.config
    groups: dict[str, list[SettingRow]] = {}
    for key in config.keys:
        groups.setdefault(key.rpartition(".")[0], []).append(_row(config, key))
    values = {
        "groups": groups,
        "private": config.private_projects,
        "file": below_home(str(config.places.config_file), this_home()),
    }  # fmt: skip
    return Page("settings.html", "Settings", values)


def add_private(machine: Machine, params: RequestValues) -> Redirect:
    """Make a folder private: its conversations are no longer captured."""
    pattern = params.text("pattern")
    if pattern is None:
        raise UsageError("no folder is named", hint="give a folder, such as ~/private or **/secret/**")
    return _set_private(machine, [*machine.config.private_projects, pattern])


def remove_private(machine: Machine, params: RequestValues) -> Redirect:
    """Remove a private folder from the setting: its conversations are captured again."""
    return _set_private(machine, [one for one in machine.config.private_projects if one != params.text("pattern")])


def _set_private(machine: Machine, patterns: list[str]) -> Redirect:
    origin = machine.config.origin(PRIVATE)
    if origin.startswith("environment"):
        raise UsageError(f"{PRIVATE} comes from the {origin}, which wins over the file", hint="change it there")
    set_value(machine.places.config_file, PRIVATE, list(dict.fromkeys(patterns)), this_home())
    settings_changed(PRIVATE)
    return Redirect("/settings#private")


def _row(config: Config, key: str) -> SettingRow:
    setting, origin = SETTINGS.get(key), config.origin(key).replace(str(config.places.config_file), "")
    return SettingRow(key, shown(config.value(key)), origin.strip(), "" if setting is None else setting.meaning)
