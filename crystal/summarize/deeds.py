"""Collect the actions of a session from its tool calls: files touched and commands run.

A tool call's text is ``Name: main argument`` and then one ``key: value`` a line, see ``crystal.transcript.content``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from crystal.store.sessions.sessions import SaidTurn
from crystal.summarize.markdown import Deeds, FileTouched
from crystal.summarize.wording import cut, one_line

COMMAND_CHARACTERS = 160
PATH_CHARACTERS = 400

_FILE_TOOLS = {
    **dict.fromkeys(("read", "notebookread", "read_file", "read_text_file"), "read"),
    **dict.fromkeys(("write", "write_file", "create_file", "create"), "written"),
    **dict.fromkeys(("edit", "multiedit", "notebookedit", "edit_file", "replace", "str_replace"), "edited"),
}
_SHELLS = frozenset({
    "bash", "powershell", "shell", "exec_command", "local_shell", "shell_command", "run_shell_command", "execute",
    "execute_bash", "run_commands", "run_terminal_cmd",
})  # fmt: skip
_MORE_ARGUMENTS = re.compile(
    r"\n(?:description|timeout|run_in_background|dangerouslyDisableSandbox|sandbox|is_background|workdir|yield_time_ms"
    r"|max_output_tokens|summary|riskLevel): "
)


def deeds_of(calls: Iterable[SaidTurn], *, below: str | None) -> Deeds:
    """Collect the actions of tool calls.

    Args:
        calls: The calls, in order; the beginning of each text is enough.
        below: A folder; paths inside it are shown relative to it.
    """
    files: dict[str, set[str]] = {}
    commands: dict[str, None] = {}
    for call in calls:
        name = (call.tool or "").rpartition("__")[2].lower()
        argument = call.text.removeprefix(f"{call.tool}: ")
        if argument == call.text or not argument.strip():
            continue
        if name in _FILE_TOOLS:
            path = _relative(cut(one_line(argument.split("\n", 1)[0]), PATH_CHARACTERS), below)
            files.setdefault(path, set()).add(_FILE_TOOLS[name])
        elif name in _SHELLS:
            commands.setdefault(_command(argument), None)
    return Deeds(
        tuple(FileTouched(path, tuple(sorted(how))) for path, how in files.items() if path),
        tuple(command for command in commands if command),
    )


def _command(argument: str) -> str:
    """Return the first line of a command, with a mark if there are more."""
    end = _MORE_ARGUMENTS.search(argument)
    lines = [line for line in argument[: end.start() if end else None].splitlines() if line.strip()]
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
