"""Collect the actions of a session from its tool calls: files touched and commands run.

A tool call's text is ``Name: main argument`` and then one ``key: value`` per line, see ``crystal.transcript.content``.
"""

from __future__ import annotations

from collections.abc import Iterable

from crystal.store.sessions.sessions import SummaryTurn
from crystal.summarize.markdown import Actions, FileTouched
from crystal.summarize.wording import cut, one_line
from crystal.work.calls import FILE_TOOLS, SHELLS, command_text, tool_name

COMMAND_CHARACTERS = 160
PATH_CHARACTERS = 400


def session_actions(calls: Iterable[SummaryTurn], *, below: str | None) -> Actions:
    """Collect the actions of tool calls.

    Args:
        calls: The calls, in order; the beginning of each text is enough.
        below: A folder; paths inside it are shown relative to it.
    """
    files: dict[str, set[str]] = {}
    commands: dict[str, None] = {}
    for call in calls:
        name = tool_name(call.tool)
        argument = call.text.removeprefix(f"{call.tool}: ")
        if argument == call.text or not argument.strip():
            continue
        if name in FILE_TOOLS:
            path = _relative(cut(one_line(argument.split("\n", 1)[0]), PATH_CHARACTERS), below)
            files.setdefault(path, set()).add(FILE_TOOLS[name])
        elif name in SHELLS:
            commands.setdefault(_command(argument), None)
    return Actions(
        tuple(FileTouched(path, tuple(sorted(how))) for path, how in files.items() if path),
        tuple(command for command in commands if command),
    )


def _command(argument: str) -> str:
    """Return the first line of a command, with an ellipsis if there are more lines."""
    lines = [line for line in command_text(argument).splitlines() if line.strip()]
    if not lines:
        return ""
    return cut(one_line(lines[0]) + (" …" if len(lines) > 1 else ""), COMMAND_CHARACTERS)


def _relative(path: str, below: str | None) -> str:
    if not below:
        return path
    folder = one_line(below).rstrip("/\\")
    for separator in ("/", "\\"):
        if folder and path.startswith(folder + separator):
            return path[len(folder) + 1 :] or path
    return path
