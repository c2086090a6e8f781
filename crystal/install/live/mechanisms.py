"""Define each agent's hook mechanism: the file in which crystal's hook is named, and the content of its entry.

An agent that is not in the table has no such mechanism for its user (one for a single project does not count): the
sweep reads its conversations. Sources: the programs themselves, run with these entries (tests/e2e); for Cursor and Kiro
only their makers' documentation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from crystal.config.harness import Place
from crystal.install.claude_settings.claude_file import hook_line
from crystal.install.live.json_entries import Entry
from crystal.model.named_tuple import NamedTuple

PLUGINS = Path(__file__).parent / "plugins"
WRITTEN = "Written by crystal init"
"""A phrase in each of our files that does not name the hook."""
OWN_NAME = "crystal.json"
HOOKS_NAME = "hooks.json"
SETTINGS_NAME = "settings.json"
COMMAND_PLACE = "const COMMAND = [];"
SERVER_PLACE = "const SERVER = {};"
MOMENTS_PLACE = "const MOMENTS = [];"


class HookCommand(NamedTuple):
    """The hook of this installation as one agent runs it, and the MCP server: ``command``, ``args``, ``env``.

    ``moments`` are the moments at which the agent gets context: ``start`` of a session, and those of assist.
    """

    words: tuple[str, ...]
    windows: bool = False
    server: Mapping[str, Any] = {}
    moments: Collection[str] = ()

    def line(self, event: str) -> str:
        """Return the command line for an event."""
        return hook_line([*self.words, "--event", event], windows=self.windows)


class SharedFile(NamedTuple):
    """A JSON file of the agent that others write too.

    Attributes:
        name: Its path in the agent's folder.
        entries: The entries to add.
        empty: The content without any entry.
        may_be_json5: True if the agent reads JSON5, False if it reads only JSON with comments.
    """

    name: str
    entries: tuple[Entry, ...]
    empty: str = "{}\n"
    may_be_json5: bool = False


class OwnFile(NamedTuple):
    """A file of ours: its path in the agent's folder, and its text."""

    name: str
    text: str
    executable: bool = False


Part = SharedFile | OwnFile


class Mechanism(NamedTuple):
    """One agent's mechanism.

    Attributes:
        title: The agent's name for people.
        place: Its folder for settings.
        parts: Returns the files for a command and that folder.
        next_step: What the user must do for it, or empty.
    """

    title: str
    place: Place
    parts: Callable[[HookCommand, Path], tuple[Part, ...]]
    next_step: str = ""


class HookEvent(NamedTuple):
    """One of an agent's events that runs the hook.

    Attributes:
        own: Its name in the agent.
        ours: Its name for the hook.
        timeout: In the agent's unit.
        matcher: The tools for which it runs.
        moment: The moment of ``HookCommand.moments`` that needs it; always needed if empty.
    """

    own: str
    ours: str
    timeout: int
    matcher: str = ""
    moment: str = ""


def _groups(name: str, *events: HookEvent) -> Callable[[HookCommand, Path], tuple[Part, ...]]:
    """Return a function that makes the file ``name`` with hooks for these events, in the format of Claude Code."""

    def parts(command: HookCommand, _: Path) -> tuple[Part, ...]:
        entries = []
        for one in _needed(command, events):
            hook = {"type": "command", "command": command.line(one.ours), "timeout": one.timeout}
            matcher = {"matcher": one.matcher} if one.matcher else {}
            entries.append(Entry(("hooks", one.own), {**matcher, "hooks": [hook]}))
        return (SharedFile(name, tuple(entries)),)

    return parts


def _needed(command: HookCommand, events: tuple[HookEvent, ...]) -> list[HookEvent]:
    return [one for one in events if not one.moment or one.moment in command.moments]


_codex = _groups(
    HOOKS_NAME,
    HookEvent("Stop", "Stop", 10),
    HookEvent("SubagentStop", "SubagentStop", 10),
    # Codex warns at every run about a longer timeout for these two.
    HookEvent("Interrupt", "Stop", 3),
    HookEvent("SessionEnd", "SessionEnd", 3),
    HookEvent("SessionStart", "SessionStart", 10, moment="start"),
    HookEvent("UserPromptSubmit", "UserPromptSubmit", 5, moment="prompt"),
    HookEvent("PreToolUse", "PreToolUse", 5, "Bash|apply_patch", "edit"),
    HookEvent("PostToolUse", "PostToolUseFailure", 5, "Bash", "failure"),
    HookEvent("SubagentStart", "SubagentStart", 5, moment="subagent"),
)
# Gemini, Qwen and Droid accept no context before an edit; they get it with the edit's result.
_gemini = _groups(
    SETTINGS_NAME,
    HookEvent("BeforeAgent", "BeforeAgent", 10_000),  # an unanswered prompt is removed later, so it is read now
    HookEvent("AfterAgent", "Stop", 10_000),
    HookEvent("SessionEnd", "SessionEnd", 5000),
    HookEvent("SessionStart", "SessionStart", 10_000, moment="start"),
    HookEvent("BeforeAgent", "UserPromptSubmit", 5000, moment="prompt"),
    HookEvent("AfterTool", "PreToolUse", 5000, "replace|write_file", "edit"),
    HookEvent("AfterTool", "PostToolUseFailure", 5000, "run_shell_command", "failure"),
)
_qwen = _groups(
    SETTINGS_NAME,
    HookEvent("Stop", "Stop", 10_000),
    HookEvent("SubagentStop", "SubagentStop", 10_000),
    HookEvent("SessionEnd", "SessionEnd", 5000),
    HookEvent("SessionStart", "SessionStart", 10_000, moment="start"),
    HookEvent("UserPromptSubmit", "UserPromptSubmit", 5000, moment="prompt"),
    HookEvent("PostToolUse", "PreToolUse", 5000, "edit|write_file", "edit"),
    HookEvent("PostToolUseFailure", "PostToolUseFailure", 5000, "run_shell_command", "failure"),
)
_droid = _groups(
    SETTINGS_NAME,
    HookEvent("Stop", "Stop", 10),
    HookEvent("SubagentStop", "SubagentStop", 10),
    HookEvent("SessionEnd", "SessionEnd", 5),
    HookEvent("SessionStart", "SessionStart", 10, moment="start"),
    HookEvent("PostToolUse", "PreToolUse", 5, "Edit|Create", "edit"),
)


def _cursor(command: HookCommand, _: Path) -> tuple[Part, ...]:
    events = (
        HookEvent("stop", "Stop", 0),
        HookEvent("sessionEnd", "SessionEnd", 0),
        HookEvent("sessionStart", "SessionStart", 0, "", "start"),
    )
    needed = _needed(command, events)
    entries = tuple(Entry(("hooks", one.own), {"command": command.line(one.ours)}) for one in needed)
    return (SharedFile(HOOKS_NAME, entries, '{\n  "version": 1\n}\n'),)


COPILOT_EVENTS = (
    HookEvent("agentStop", "Stop", 10),
    HookEvent("subagentStop", "Stop", 10),
    HookEvent("errorOccurred", "Stop", 10),
    HookEvent("sessionEnd", "SessionEnd", 10),
    HookEvent("sessionStart", "SessionStart", 10, moment="start"),
    HookEvent("userPromptSubmitted", "UserPromptSubmit", 5, moment="prompt"),
    HookEvent("preToolUse", "PreToolUse", 5, moment="edit"),
    HookEvent("postToolUse", "PostToolUseFailure", 5, moment="failure"),
)


def _copilot(command: HookCommand, _: Path) -> tuple[Part, ...]:
    shell = "powershell" if command.windows else "bash"
    hooks = {
        one.own: [{"type": "command", shell: command.line(one.ours), "timeoutSec": one.timeout}]
        for one in _needed(command, COPILOT_EVENTS)
    }
    return (OwnFile(f"hooks/{OWN_NAME}", _pretty({"version": 1, "hooks": hooks})),)


def _kiro(command: HookCommand, _: Path) -> tuple[Part, ...]:
    action = {"type": "command", "command": command.line("Stop")}
    hook = {"name": "crystal", "trigger": "Stop", "action": action, "timeout": 10}
    return (OwnFile(f"hooks/{OWN_NAME}", _pretty({"version": "v1", "hooks": [hook]})),)


def _goose(command: HookCommand, _: Path) -> tuple[Part, ...]:
    about = f"Tells crystal that a turn has ended. {WRITTEN}."
    hooks: dict[str, Any] = {
        event: [{"hooks": [{"type": "command", "command": command.line(event), "timeout": 10}]}]
        for event in ("Stop", "SessionEnd")
    }
    return (
        OwnFile("plugin.json", _pretty({"name": "crystal", "version": "1.0.0", "description": about})),
        OwnFile(f"hooks/{HOOKS_NAME}", _pretty({"hooks": hooks})),
    )


def _cline(command: HookCommand, folder: Path) -> tuple[Part, ...]:
    # Cline waits for the hook, and treats an answer that is not JSON as a failure.
    text = "#!/bin/sh\n# {}\n{}\necho '{{}}'\n"
    return tuple(
        OwnFile(_free_name(folder, f"hooks/{event}"), text.format(WRITTEN, command.line("Stop")), executable=True)
        for event in ("TaskComplete", "TaskError", "TaskCancel")
    )


def _free_name(folder: Path, name: str) -> str:
    """Return a name for our file that no file of the user has: Cline runs every file of an event, with any suffix."""
    try:
        return name if WRITTEN.encode() in (folder / name).read_bytes() else f"{name}.sh"
    except OSError:
        return name


def _opencode(command: HookCommand, _: Path) -> tuple[Part, ...]:
    return (OwnFile("plugin/crystal.js", _plugin("opencode.js", command)),)


def _pi(command: HookCommand, _: Path) -> tuple[Part, ...]:
    return (OwnFile("extensions/crystal.ts", _plugin("pi.ts", command)),)


def _openclaw(command: HookCommand, folder: Path) -> tuple[Part, ...]:
    files = ("index.js", "package.json", "openclaw.plugin.json")
    entry = {"enabled": True, "hooks": {"allowConversationAccess": True}}  # without this, agent_end is withheld
    return (
        *(OwnFile(f"crystal-plugin/{name}", _plugin(f"openclaw/{name}", command)) for name in files),
        SharedFile(
            "openclaw.json",
            (
                Entry(("plugins", "load", "paths"), str(folder / "crystal-plugin")),
                Entry(("plugins", "entries"), entry, "crystal"),
            ),
            may_be_json5=True,
        ),
    )


def _plugin(name: str, command: HookCommand) -> str:
    """Return a file of ``plugins`` with the commands inserted."""
    text = (PLUGINS / name).read_text("utf-8")
    text = text.replace(COMMAND_PLACE, f"const COMMAND = {json.dumps(list(command.words))};")
    text = text.replace(MOMENTS_PLACE, f"const MOMENTS = {json.dumps(sorted(command.moments))};")
    return text.replace(SERVER_PLACE, f"const SERVER = {json.dumps(command.server)};")


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _folder(home: str, variable: str | None = None, below: str = "") -> Place:
    return Place(home, ".", (), variable, below)


MECHANISMS: Mapping[str, Mechanism] = {
    "codex": Mechanism(
        "Codex",
        _folder(".codex", "CODEX_HOME"),
        _codex,
        "Codex runs a new hook only once you trust it: start codex, type /hooks and trust crystal's",
    ),
    "gemini-cli": Mechanism("Gemini CLI", _folder(".gemini", "GEMINI_CLI_HOME", ".gemini"), _gemini),
    "qwen-code": Mechanism("Qwen Code", _folder(".qwen", "QWEN_HOME"), _qwen),
    "copilot-cli": Mechanism("Copilot CLI", _folder(".copilot", "COPILOT_HOME"), _copilot),
    "droid": Mechanism("Droid", _folder(".factory", "FACTORY_HOME_OVERRIDE", ".factory"), _droid),
    "cursor": Mechanism("Cursor", _folder(".cursor"), _cursor),
    "kiro": Mechanism("Kiro", _folder(".kiro"), _kiro),
    "goose": Mechanism("Goose", _folder(".agents/plugins/crystal"), _goose),
    "cline": Mechanism("Cline", _folder(".cline", "CLINE_DIR"), _cline),
    "opencode": Mechanism(
        "OpenCode",
        _folder(".config/opencode", "XDG_CONFIG_HOME", "opencode"),
        _opencode,
        "OpenCode gets its package for plugins from npm at its next start, once; offline each start waits for npm",
    ),
    "openclaw": Mechanism("OpenClaw", _folder(".openclaw", "OPENCLAW_STATE_DIR"), _openclaw),
    "pi": Mechanism("Pi", _folder(".pi/agent", "PI_CODING_AGENT_DIR"), _pi),
}
"""The mechanisms by harness. Claude Code has its own package, ``claude_settings``."""

ONLY_BY_NAME = frozenset(("opencode",))
"""Set up only if a person names them: with any plugin, OpenCode waits for npm at each start offline."""
