"""Translate the hook input of other agents to Claude Code's format, and the answers back. Only they import it.

What each agent passes to its hooks, and which of its events accept an answer, was observed with the real programs
(tests/e2e/test_assist_agents.py); for Cursor it is from its maker's documentation.
"""

from itertools import pairwise, takewhile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Payload = dict[str, Any]

HARNESS = "crystal_harness"
OWN_EVENT = "crystal_event"
"""Field with the agent's own name of the event, which some agents expect in the answer."""
_SAME = {
    "session_id": ("session_id", "sessionId", "thread-id", "conversation_id", "taskId"),
    "transcript_path": ("transcript_path", "transcriptPath"),
    "cwd": ("cwd",),
    "prompt": ("prompt",),
    "last_assistant_message": ("last_assistant_message", "last-assistant-message"),
}
_SOURCES = {"new": "startup", "fork": "startup", None: "startup"}
_FLAT = {"copilot-cli": "additionalContext", "cursor": "additional_context"}
"""The agents whose answers have no inner object, with the name of the context in it."""
_STATUS = "Exit Code: ", "<shellId: "
"""Prefixes of the line with a command's exit code, in Gemini CLI and in Copilot CLI."""
_READERS = {"cat", "head", "tail", "less", "grep", "rg", "sed", "awk", "nl", "find", "ls", "git", "echo", "printf"}
"""Commands that print the output of another command or a file: an error in it is not theirs."""
MAX_END = 500
"""Number of characters at the end of an output that contain its exit code."""
_PATCH = "*** Begin Patch"
_NEXT_FILE = "*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** End Patch"


def translate(payload: "Payload", arguments: "list[str]") -> "Payload":
    """Return the fields that a note and assist need, with Claude Code's names, and the harness.

    ``--harness NAME`` names the program that runs the hook, ``--event NAME`` the event, for agents whose input lacks
    it. Agents pass their environment to each other, so only an argument can distinguish them.
    """
    options = dict(pairwise(arguments))
    context, folders = payload.get("sessionContext"), payload.get("workspace_roots")
    merged = {
        **({"cwd": folders[0]} if isinstance(folders, list) and folders else {}),
        **payload,
        **({"session_id": context.get("rootSessionId")} if isinstance(context, dict) else {}),
    }
    fields: Payload = {
        name: next((merged[other] for other in others if merged.get(other)), None) for name, others in _SAME.items()
    }
    fields["agent_transcript_path"] = merged.get("agent_transcript_path")
    event = fields["hook_event_name"] = options.get("--event") or merged.get("hook_event_name")
    fields[HARNESS], fields[OWN_EVENT] = options.get("--harness"), merged.get("hook_event_name")
    if event == "SessionStart":
        fields["source"] = _SOURCES.get(merged.get("source"), merged.get("source"))
    elif event == "SubagentStart":
        fields["agent_id"] = merged.get("agent_id")
    elif event == "PreToolUse":
        fields["tool_input"] = _edit(merged)
    elif event == "PostToolUseFailure":
        error = _error(merged, fields[HARNESS])
        fields |= {"error": error} if error else {"hook_event_name": "PostToolUse"}
    return fields


def shaped(answer: "dict[str, object]", payload: "Payload") -> "dict[str, object]":
    """Convert an answer for Claude Code to the agent's format."""
    output: Any = answer.get("hookSpecificOutput")
    flat = _FLAT.get(payload[HARNESS])
    if flat:
        return {flat: output["additionalContext"]} if output else {}
    named = (
        {"hookSpecificOutput": {**output, "hookEventName": payload[OWN_EVENT]}} if output and payload[OWN_EVENT] else {}
    )
    return {**answer, **named}


def _edit(merged: "Payload") -> "Payload":
    """Return what an edit replaces in a file, in the form of Claude Code's tools; empty for other tools."""
    given = merged.get("tool_input") or merged.get("toolArgs")
    if not isinstance(given, dict):
        return {}
    command = given.get("command") or given.get("input")
    if isinstance(command, str):
        return _patched(command) if _PATCH in command else {}
    edits = given.get("edits")
    found = [_replacing(one) for one in (edits if isinstance(edits, list) else [given]) if isinstance(one, dict)]
    is_edit = any(found) or any(name in given for name in ("content", "file_text"))
    path = given.get("file_path") or given.get("path") or given.get("filePath")
    return {"file_path": path, "edits": found} if is_edit else {}


def _replacing(given: "Payload") -> "Payload":
    """Return the text before and after an edit, as fields."""
    names = {
        "old_string": ("old_string", "old_str", "oldString", "oldText"),
        "new_string": ("new_string", "new_str", "newString", "newText"),
    }
    return {name: given[one] for name, others in names.items() for one in others if one in given}


def _patched(patch: str) -> "Payload":
    """Return what a patch in Codex's format replaces in the first file that it changes."""
    path, _, rest = patch.partition("\n*** Update File: ")[2].partition("\n")
    lines = [*takewhile(lambda line: not line.startswith(_NEXT_FILE), rest.splitlines())]
    old, new = ("\n".join(line[1:] for line in lines if line.startswith(sign)) for sign in "-+")
    return {"file_path": path.strip() or None, "old_string": old, "new_string": new}


def _error(merged: "Payload", harness: "str | None") -> str:
    """Return the output of a command that failed; empty if it did not, or if that is unknown."""
    error = merged.get("error")
    output = error or merged.get("tool_response") or merged.get("toolResult")
    if isinstance(output, dict):
        output = output.get("llmContent") or output.get("textResultForLlm")
    if not isinstance(output, str):
        return ""
    is_failure = error or (_is_run(merged.get("tool_input")) if harness == "codex" else _says_failure(output))
    return output if is_failure else ""


def _is_run(given: object) -> bool:
    """Return True if a command does more than read; Codex gives no exit code, so errors in the output count."""
    words = str(given.get("command")).split() if isinstance(given, dict) else []
    return bool(words) and words[0] not in _READERS


def _says_failure(output: str) -> bool:
    """Return True if the last status in an output is not 0."""
    ends = [line.rstrip(">").rpartition(" ")[2] for line in output[-MAX_END:].splitlines() if line.startswith(_STATUS)]
    return bool(ends) and ends[-1] != "0" and ends[-1].lstrip("-").isdigit()
