"""Sessions in which something was done: an error was cured by an edit, another one by a command."""

from __future__ import annotations

from pathlib import Path

from crystal.model.capture import Project
from crystal.store import Store
from crystal.store.capture.projects import project_row
from crystal.store.work.index import make_again
from crystal.transcript.parts import call_text
from tests.support.store_factory import add_turn

ERROR = "Exit code 1\n/a/shop/cart.py:{}: error: cannot add <i>str</i> to int in total"
ASKED = "\x1b[31m/home/me/cart.py:99: error: cannot add <i>str</i> to int in total\x1b[0m"
MISSING = "Exit code 1\nModuleNotFoundError: No module named 'yaml'"


def did(store: Store, session: str, at: int, tool: str, arguments: dict[str, str], said: str, folder: str) -> None:
    with store.transaction():
        project_row(store, Project(folder, folder, None, Path(folder).name))
    place = {"session": session, "project": folder, "tool": tool}
    call = call_text(tool, arguments)
    add_turn(store, call, ts=at, role="tool_call", message_id=f"m{session}{at}", uuid=f"{session}-{at}", **place)
    add_turn(store, said, ts=at + 1, role="tool_result", **place)


def cured(store: Store, session: str, at: int, folder: str = "/a/shop", new: str = "    return int(a) + b") -> None:
    """A session in which an error was cured by an edit, and one by a command."""
    run = {"command": "make test 2>&1 | tail"}
    edit = {"file_path": f"{folder}/cart.py", "old_string": "    return a + b", "new_string": new}
    steps = [("Bash", run, ERROR.format(at)), ("Edit", edit, "updated"), ("Bash", run, "3 passed"),
             ("Bash", {"command": "make docs"}, MISSING), ("Bash", {"command": "pip install pyyaml"}, "installed"),
             ("Bash", {"command": "make docs"}, "built")]  # fmt: skip
    for number, (tool, arguments, said) in enumerate(steps):
        did(store, session, at + 10 * number, tool, arguments, said, folder)
    make_again(store)
