"""Read a tool call's text: which files it edits, with the lines it adds and removes, or which command it runs.

The text is ``Name: main argument`` and then one ``key: value`` a line, see ``crystal.transcript.parts``.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator

from crystal.model.named_tuple import NamedTuple
from crystal.text.lazy_pattern import lazy_pattern

FILE_TOOLS = {
    **dict.fromkeys(("read", "notebookread", "read_file", "read_text_file"), "read"),
    **dict.fromkeys(("write", "write_file", "create_file", "create", "write_to_file"), "written"),
    **dict.fromkeys((
        "edit", "multiedit", "notebookedit", "edit_file", "edit_file_v2", "replace", "str_replace", "strreplace",
        "search_replace", "replace_string_in_file", "editor", "text_editor", "fs_write", "str_replace_editor",
        "str_replace_based_edit_tool",
    ), "edited"),
}  # fmt: skip
PATCHES = frozenset({"apply_patch"})
SHELLS = frozenset({
    "bash", "powershell", "shell", "exec_command", "local_shell", "shell_command", "run_shell_command", "execute",
    "execute_bash", "run_commands", "run_terminal_cmd", "run_terminal_command", "run_terminal_command_v2",
    "run_in_terminal", "terminal", "exec", "execute_command", "run_command",
})  # fmt: skip
_FIRST_ARGUMENTS = lazy_pattern(
    r"^(?:path|file_path|filePath|absolute_path|notebook_path|target_file|commands?|content|instruction): ",
    re.MULTILINE,
)
_OLD_TEXT = lazy_pattern(r"\n(?:old_string|oldString|old_str|old_text|oldText): ")
MAX_COMMAND = 400
MAX_PATH = 400
MAX_ABOUT = 200

_MORE_ARGUMENTS = lazy_pattern(
    r"\n(?:description|timeout|run_in_background|dangerouslyDisableSandbox|sandbox|is_background|workdir|yield_time_ms"
    r"|max_output_tokens|summary|riskLevel|working_directory|type|cwd|cd|explanation|requires_approval"
    r"|__tool_use_purpose): "
)
_COMMANDS = lazy_pattern(r"(?:\A|\n)commands: ")
"""Cline's argument, once for each command."""
_ABOUT = lazy_pattern(r"\n(?:description|summary): ([^\n]+)")
_ARGUMENT = lazy_pattern(
    r"^(path|file_path|filePath|notebook_path|target_file|(?:old|new)(?:_string|String|_str|_text|Text)|content|contents"
    r"|new_source|file_text|replace_all|replaceAll|expected_replacements|cell_id|cell_type|edit_mode|instruction): ?",
    re.MULTILINE,
)
_PATHS = frozenset({"path", "file_path", "filePath", "notebook_path", "target_file"})
_OLD = frozenset({"old_string", "oldString", "old_str", "old_text", "oldText"})
_NEW = frozenset({
    "new_string", "newString", "new_str", "new_text", "newText", "content", "contents", "new_source", "file_text",
    "text",
})  # fmt: skip
_ONLY_TEXT = lazy_pattern(r"(?<=\n)(text): ")
"""The argument of Kiro and VS Code; other tools have files with such lines."""
_EDITORS = ("str_replace", "create", "insert", "write")
"""Names of the commands that edit, in editors with several commands; they are before the path."""
_PATCH = lazy_pattern(r"\*\*\* Begin Patch\n(.*?)(?:^\*\*\* End Patch|\Z)", re.MULTILINE | re.DOTALL)
_PATCHED = lazy_pattern(r"^\*\*\* (?:Update|Add) File: (.+)\n(?:\*\*\* Move to: (.+)\n)?", re.MULTILINE)

_MOVES = lazy_pattern(r"cd (?:\"[^\"\n]*\"|'[^'\n]*'|[^\s;&|]+)\s*(?:&&|;)\s*")
_TRIMMED = lazy_pattern(
    r"\s*(?:[0-9&]?>&[0-9]|2>/dev/null|\|\s*(?:tail|head)(?:\s+-\S+(?:\s+\d+)?)?|;\s*echo\b.*)\s*\Z"
)


class ToolCall(NamedTuple):
    """An edit of one file or a command.

    Attributes:
        is_edit: Whether it edits a file.
        what: The path of the file as the tool names it, or the command on one line.
        key: Equal for calls with the same file or command: the file's name, or the command without redirections.
        added: Lines that an edit adds.
        removed: Lines that it removes.
        about: The agent's description of a command.
    """

    is_edit: bool
    what: str
    key: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    about: str = ""


def is_work(tool: str | None) -> bool:
    """Return True if calls of a tool edit files or run commands."""
    name = tool_name(tool)
    return name in SHELLS or name in PATCHES or FILE_TOOLS.get(name, "read") != "read"


def tool_name(tool: str | None) -> str:
    """Return a tool's own name in small letters, without its server's."""
    return (tool or "").rpartition("__")[2].lower()


def calls_of(tool: str | None, text: str) -> list[ToolCall]:
    """Return the edits of a tool call, or its command; nothing for any other call."""
    if not is_work(tool):
        return []
    found = [call for patch in _PATCH.finditer(text) for call in _patched(patch[1])] if "*** Begin" in text else []
    if found:
        return found
    argument = text.removeprefix(f"{tool}: ").removeprefix(f"{tool}\n")
    if tool_name(tool) not in SHELLS:
        return list(_edited(argument))
    line = " ".join(" && ".join(commands_of(tool, text)).split())
    said = _ABOUT.search(argument) if "\n" in argument else None
    about = said[1][:MAX_ABOUT] if said else ""
    return [ToolCall(is_edit=False, what=line[:MAX_COMMAND], key=command_key(line), about=about)] if line else []


def commands_of(tool: str | None, text: str) -> list[str]:
    """Return the commands of a shell's call as they are, with their lines."""
    argument = text.removeprefix(f"{tool}: ").removeprefix(f"{tool}\n")
    return [*filter(None, _COMMANDS.split(command_text(argument)))]


def unread_arguments(tool: str | None, text: str) -> str | None:
    """Return a label for a call whose arguments are unknown here, or for an unknown tool with an editor's arguments.

    None for every call whose work is indexed, and for calls without arguments.
    """
    name = tool_name(tool)
    if name not in SHELLS and name not in PATCHES and name not in FILE_TOOLS:
        return f"{tool}-edits-files" if _OLD_TEXT.search(text) else None
    if "\n" not in text or text.startswith(f"{tool}: ") or "*** Begin" in text or _FIRST_ARGUMENTS.search(text):
        return None
    return f"{tool}-with-other-arguments"


def command_text(argument: str) -> str:
    """Return the command of a shell's call, without the call's other arguments."""
    end = _MORE_ARGUMENTS.search(argument) if "\n" in argument else None
    return argument[: end.start() if end else None]


def command_key(line: str) -> str:
    """Return a command without a leading ``cd``, and without redirections, ``| tail`` and the like at its end."""
    key = _MOVES.sub("", line, count=1) if line.startswith("cd ") else line
    while any(sign in key for sign in "|>;") and (shorter := _TRIMMED.sub("", key)) != key:
        key = shorter
    return key.strip()


def file_name(path: str) -> str:
    """Return the last part of a path with slashes or backslashes."""
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1]


def _edit(path: str, old: list[str], new: list[str]) -> ToolCall:
    added, removed = Counter(new), Counter(old)
    return ToolCall(
        True, path[:MAX_PATH], file_name(path), tuple((added - removed).elements()), tuple((removed - added).elements())
    )


def _edited(argument: str) -> Iterator[ToolCall]:
    """Yield the edit that arguments with old and new texts describe."""
    head, _, rest = argument.partition("\n")
    if head == "view":
        return
    path, values = _path_and_values(rest if head in _EDITORS else argument)
    if path and "\n" not in path:
        yield _edit(path, _lines_of(values, _OLD), _lines_of(values, _NEW))


def _path_and_values(argument: str) -> tuple[str, list[tuple[str, str]]]:
    """Return the path in a call's arguments, and each argument with its name."""
    marks = list(_ARGUMENT.finditer(argument)) or list(_ONLY_TEXT.finditer(argument))[:1]
    path = argument[: marks[0].start() if marks else None].strip()
    if path:  # what looks like a second path is a line of the text
        marks = [mark for mark in marks if mark[1] not in _PATHS]
    ends = [*(mark.start() - 1 for mark in marks[1:]), len(argument)]
    values = [(mark[1], argument[mark.end() : max(mark.end(), end)]) for mark, end in zip(marks, ends, strict=False)]
    paths = (value.strip() for name, value in values if name in _PATHS)
    return path or next(filter(None, paths), ""), values


def _lines_of(values: list[tuple[str, str]], names: frozenset[str]) -> list[str]:
    return [line for name, value in values if name in names for line in value.splitlines()]


def _patched(patch: str) -> Iterator[ToolCall]:
    """Yield the edits of a patch in the format of Codex's apply_patch, each after the move of its file, as ``mv``."""
    pieces = _PATCHED.split(patch)
    for path, moved_to, body in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
        lines = body.splitlines()
        old, new = ([line[1:] for line in lines if line.startswith(sign)] for sign in "-+")
        if moved_to:
            move = f"mv {shlex.quote(path.strip())} {shlex.quote(moved_to.strip())}"
            yield ToolCall(is_edit=False, what=move[:MAX_COMMAND], key=command_key(move))
        yield _edit((moved_to or path).strip(), old, new)
