"""Read what the hooks of other agents say as Claude Code says it. Imported by their hooks alone."""

from itertools import pairwise

HARNESS = "crystal_harness"
_SAME = {
    "session_id": ("session_id", "sessionId", "thread-id", "conversation_id", "taskId"),
    "transcript_path": ("transcript_path", "transcriptPath"),
    "cwd": ("cwd",),
    "last_assistant_message": ("last_assistant_message", "last-assistant-message"),
}


def translate(said: "dict[str, object]", arguments: "list[str]") -> "dict[str, object]":
    """Return the fields that a note needs, under Claude Code's names, and the harness from the arguments.

    ``--harness NAME`` says who runs the hook, ``--event NAME`` why, for agents that do not say it. Agents hand their
    environment to each other, so only an argument can tell them apart.
    """
    options = dict(pairwise(arguments))
    context = said.get("sessionContext")
    told = {**said, **({"session_id": context.get("rootSessionId")} if isinstance(context, dict) else {})}
    fields: dict[str, object] = {
        name: next((told[other] for other in others if told.get(other)), None) for name, others in _SAME.items()
    }
    fields["agent_transcript_path"] = told.get("agent_transcript_path")
    fields["hook_event_name"] = options.get("--event") or told.get("hook_event_name")
    fields[HARNESS] = options.get("--harness")
    return fields
