"""Parse the values of options, without the package that parses the command line."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from crystal.errors import UsageError

if TYPE_CHECKING:
    from crystal.app.context import Machine


def time_span(now: int, since: str | None, before: str | None) -> tuple[int | None, int | None]:
    """Return the times for ``--since`` and ``--before``."""
    from crystal.timewords.parse import parse_when

    start = None if since is None else parse_when(since, now=now, name="--since")
    end = None if before is None else parse_when(before, now=now, name="--before")
    if start is not None and end is not None and start >= end:
        raise UsageError(f"--since {since} is not before --before {before}", hint="swap them")
    return start, end


def whole_number(text: str, name: str) -> int:
    """Return the number given with an option."""
    try:
        return int(text)
    except ValueError as error:
        raise UsageError(f"{name} is {text!r}, which is not a whole number", hint=f"try: {name} 10") from error


def project_value(machine: Machine, text: str | None) -> str | None:
    """Return the value of ``--project``: a name, or a folder as an absolute path."""
    from crystal.app.memory_queries import is_folder_word
    from crystal.app.projects import known_folder

    if text is None or not is_folder_word(text):
        return text
    absolute = os.path.abspath(os.path.expanduser(text))  # noqa: PTH100, PTH111 (links stay: transcripts may name them)
    return known_folder(machine.stores, absolute)


def unknown_project(machine: Machine, project: str | None) -> tuple[str, ...]:
    """Return a note if crystal knows no project with this name, which may be mistyped."""
    from crystal.app.memory_queries import is_folder_word
    from crystal.model.recall import Filters
    from crystal.store.search.scope import project_ids, scope_of

    if not project or is_folder_word(project) or any(project_ids(store, project) for store in machine.stores):
        return ()
    return scope_of(machine.store, Filters(project=project)).notes
