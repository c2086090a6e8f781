"""Run ``crystal search`` without typer, whose import takes an eighth of its time, if its arguments are plain."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, NoReturn

VALUES = {
    **{f"--{name.replace('_', '-')}": name for name in (
        "limit since before project session role agent device branch source as_of recency fusion".split()
    )},
    "-n": "limit",
}  # fmt: skip
"""Options with a value, each with the name of its parameter."""
FLAGS = {"--all": "everything", "--deep": "deep", "--explain": "explain", "--json": "as_json"}
"""Options without a value, likewise."""


def run_plainly(given: Sequence[str]) -> bool:
    """Run a search and return True; return False if typer must read its arguments."""
    found = arguments_of(given)
    if found is None:
        return False
    try:
        from crystal.cli.fenced_output import is_for_agent, run_fenced
        from crystal.cli.run_search import run_search

        run = partial(run_search, **found)
        run_fenced(run) if is_for_agent("search", given) else run()
        sys.stdout.flush()
    except BaseException as error:  # noqa: BLE001 - it is raised again, where every command's errors become messages
        from crystal.cli.app import finish, flushed

        finish(partial(flushed, partial(_raise, error)))
    return True


def arguments_of(given: Sequence[str]) -> dict[str, Any] | None:
    """Return the arguments of a search by name; None for help, for errors, and where options are joined or unknown."""
    found: dict[str, Any] = {"query": []}
    waiting = iter(given)
    for text in waiting:
        name, _, joined = text.partition("=")
        if not text.startswith("-"):
            found["query"].append(text)
        elif text in FLAGS:
            found[FLAGS[text]] = True
        elif name in VALUES and (name == text or name.startswith("--")):
            found[VALUES[name]] = value = next(waiting, "-") if name == text else joined
            if value.startswith("-"):
                return None
        else:
            return None
    return None if any("\ud800" <= char <= "\udfff" for char in "".join(given)) else found


def _raise(error: BaseException) -> NoReturn:
    raise error
