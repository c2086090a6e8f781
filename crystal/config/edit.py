"""Change one value of the settings file and keep its comments, order and layout.

tomlkit makes the edit. Every result is parsed again and refused if anything but this key has changed.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crystal.config.kinds import FOLDERS
from crystal.config.load import checked, parse_text
from crystal.config.paths import alone_in, make_private_dir, write_private
from crystal.config.settings_file import parse, parse_fragment, read_text
from crystal.config.table import setting_for
from crystal.errors import UsageError

FIRST_LINE = "# Settings of crystal. All keys, their values and where these come from: crystal config\n"

Tables = dict[str, Any]


def set_value(config_file: Path, key: str, value: object, home: Path | None = None) -> Any:
    """Write one setting into the settings file, and create the file if needed. Return the checked value.

    Text is converted as in an environment variable: ``"20"`` sets a number. Patterns of folders below ``home`` are
    written with ``~``, so that they stay valid if the home folder moves.

    Raises:
        UsageError: There is no such key, the value is not allowed, or the file is not TOML. Nothing changed.
        UnavailableError: The system refuses to write. Nothing changed.
    """
    return set_values(config_file, {key: value}, home)[key]


def set_values(config_file: Path, values: Mapping[str, object], home: Path | None = None) -> dict[str, Any]:
    """Write several settings, all or none; None removes one. Otherwise as ``set_value``."""
    good = {key: None if value is None else _checked(key, value) for key, value in values.items()}
    if home is not None:
        for key, patterns in good.items():
            if patterns and setting_for(key).kind is FOLDERS:
                good[key] = [below_home(pattern, home) for pattern in patterns]
    make_private_dir(config_file.parent)
    with alone_in(config_file.parent):
        before = after = read_text(config_file)
        for key, value in good.items():
            start = "" if value is None else FIRST_LINE
            after = with_value(after or start, key, value, config_file)
        _write(config_file, before, after)
    return good


def unset_value(config_file: Path, key: str) -> bool:
    """Remove one key from the settings file, even if it is no setting. Return whether the file had it.

    Raises:
        UsageError: It is neither in the file nor a setting, or the file is not TOML. Nothing changed.
        UnavailableError: The system refuses to write. Nothing changed.
    """
    if config_file.exists():
        with alone_in(config_file.parent):
            before = read_text(config_file)
            after = with_value(before, key, None, config_file)
            _write(config_file, before, after)
        if after != before:
            return True
    setting_for(key)
    return False


def with_value(text: str, key: str, value: Any, path: Path) -> str:
    """Return the text of a settings file with a key set, or removed if None; ``path`` is for messages."""
    *tables, name = key.split(".")
    wanted = parse(text, path)
    inner: Any = wanted
    for table in tables:
        inner = inner.setdefault(table, {}) if isinstance(inner, dict) else None
    after = None
    if value is not None and isinstance(inner, dict):
        inner[name] = value
        after = set_in(text, tuple(tables), name, value)
    elif value is None:
        if not isinstance(inner, dict) or name not in inner:
            return text
        del inner[name]
        after = unset_in(text, tuple(tables), name)
    got = None if after is None else parse_fragment(after)
    if after is None or got is None or _filled(got) != _filled(wanted):
        raise UsageError(f"{path}: {key} cannot be changed without rewriting the file", hint="change it with an editor")
    return after


def set_in(text: str, tables: tuple[str, ...], name: str, value: Any) -> str | None:
    """Return a TOML text with one key of a table set, in its present position or at the end of that table.

    Other tables, comments and white space stay. None if the text would have to be rewritten for it.
    """
    import tomlkit  # noqa: PLC0415 - 48 ms, only for those who change a file
    from tomlkit.items import Table  # noqa: PLC0415 - the same

    newline = "\r\n" if "\r\n" in text else "\n"
    new = tomlkit.item(value, _parent=tomlkit.inline_table()) if isinstance(value, dict) else tomlkit.item(value)
    try:
        document = inner = tomlkit.parse(text)
        for table in tables:
            if table not in inner:
                end = "" if text.endswith("\n") or not text else newline
                line = f"{tomlkit.key(name).as_string()} = {new.as_string()}"
                return f"{text}{end}{newline}[{'.'.join(tables)}]{newline}{line}{newline}"
            inner = inner[table]
        if isinstance(inner.get(name), Table):
            return None
        if name in inner:
            inner[name] = new
        else:
            new.trivia.trail = newline
            _add_last(inner, name, new)
        return tomlkit.dumps(document)
    except (tomlkit.exceptions.TOMLKitError, AttributeError, TypeError, LookupError):
        return None


def _add_last(table: Any, name: str, item: Any) -> None:
    """Add a key at the end of its table; comments after that belong to the next table."""
    import tomlkit  # noqa: PLC0415 - as above
    from tomlkit.items import AoT, Comment, Table, Whitespace  # noqa: PLC0415

    if not isinstance(table, Table) and hasattr(table, "body"):
        at = next((n for n, (_, one) in enumerate(table.body) if isinstance(one, AoT | Table)), None)
        if at is not None:  # before the first table and the comments that belong to it
            while at and isinstance(table.body[at - 1][1], Comment):
                at -= 1
            if at > 1 and isinstance(table.body[at - 1][1], Whitespace) and table.body[at - 2][0] is not None:
                at -= 1  # after the last key; the blank line stays before the table
            else:
                item.trivia.trail *= 2
            table._insert_at(at, tomlkit.key(name), item)  # noqa: SLF001 - the library has no public way
            return
    body: list[Any] = table.value.body if isinstance(table, Table) else []
    tail: list[Any] = []
    while body and body[-1][0] is None:
        tail.insert(0, body.pop())
    item.trivia.indent = body[-1][1].trivia.indent if body else ""
    table.add(name, item)
    body.extend(tail)


def unset_in(text: str, tables: tuple[str, ...], name: str) -> str | None:
    """Return a TOML text without one key of a table; None if the whole text would have to be rewritten."""
    import tomlkit  # noqa: PLC0415 - as above

    try:
        document: Any = tomlkit.parse(text)
        del functools.reduce(operator.getitem, tables, document)[name]
        return tomlkit.dumps(document)
    except (tomlkit.exceptions.TOMLKitError, AttributeError, TypeError, LookupError):
        return None


def _checked(key: str, value: object) -> Any:
    """Return the value to write for a setting."""
    setting = setting_for(key)
    if setting.only_environment:
        hint = f"set the variable {setting.variables[-1].variable}"
        raise UsageError(f"{key} cannot be set in a file, because the hook reads none", hint=hint)
    good = parse_text(setting, value, "") if isinstance(value, str) else checked(setting, value, "")
    return list(good) if isinstance(good, tuple) else good


def below_home(pattern: str, home: Path) -> str:
    """Replace the home folder in a pattern of folders by ``~``."""
    inside = pattern.removeprefix(f"{home}/")
    return pattern if inside == pattern else f"~/{inside}"


def _write(path: Path, before: str, after: str) -> None:
    if after != before:
        write_private(path, after.encode())


def _filled(tables: Tables) -> Tables:
    """Return tables without empty ones, which have no effect."""
    found = {name: _filled(value) if isinstance(value, dict) else value for name, value in tables.items()}
    return {name: value for name, value in found.items() if value != {}}
