"""Write docs/reference/cli.md from the command line itself, so that the page cannot drift from it.

Run it after a change of a command; a test compares the page with what this makes.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import typer

from crystal.cli.app import COMMANDS, app, load_command

PAGE = Path(__file__).with_name("reference") / "cli.md"

HEAD = """<!-- Made by docs/generate_cli.py from crystal/cli/. Change those, not this page. -->

# The command line

`crystal` and `python -m crystal` are the same.
Results go to standard output; notes, warnings, progress and errors go to standard error, as `crystal: note: ...`, `crystal: warning: ...`, `crystal: error: ...` and `crystal: hint: ...`.
A progress bar is shown on a terminal only, and `NO_COLOR` is respected.
With `--json`, where the line of its usage names it, a command prints one JSON object; [its keys](json.md) only grow.

## Exit codes

| code | meaning |
|---|---|
| 0 | done; a search that finds nothing is done, too |
| 1 | it failed, a check found something, or nothing has the name or id that was given |
| 2 | an option or a value cannot be used |
| 3 | something must be set up first: no memory yet (for a command that only reads it), no key, an extension is missing |
| 4 | not reachable or not writable just now, such as a busy store or a full disk: try again later |
| 5 | refused by the other side |
| 6 | stored data is damaged, or the store is another program's |
| 130 | interrupted with Ctrl-C |

Below, a command has only what codes mean for it alone; [errors](errors.md) tells which error has which code.
A bug ends with a Python traceback and code 1.

"""  # noqa: E501 - one sentence per line in Markdown

MORE: dict[str, str] = {
    "init": "See [your first hour](../tutorial/first-hour.md); what it writes is in [the hook's page](hook.md#6-claude-codes-settings) and in [the layout](layout.md).",  # noqa: E501
    "search": "See [how search works](../explanation/search.md) and [its JSON](json.md#crystal-search).",
    "web": "See [looking at it in the browser](../how-to/page.md).",
    "tui": "See [searching and reading in the terminal](../how-to/terminal.md).",
    "access": "See [ask the memory from anywhere](../how-to/ask-from-anywhere.md).",
    "statusline": "See [a status line](../how-to/use-from-an-agent.md#a-status-line).",
    "show": "See [its JSON](json.md#crystal-show).",
    "sessions": "See [its JSON](json.md#crystal-sessions).",
    "changed": "See [which session wrote it](../how-to/see-who-wrote-it.md) and [its JSON](json.md#crystal-changed).",
    "blame": "See [which session wrote it](../how-to/see-who-wrote-it.md) and [its JSON](json.md#crystal-blame).",
    "how": "See [how it is done here](../how-to/see-who-wrote-it.md#how-is-it-done-here) and [its JSON](json.md#crystal-how).",  # noqa: E501
    "fix": "See [what cured an error](../how-to/see-who-wrote-it.md#what-cured-this-error) and [its JSON](json.md#crystal-fix).",  # noqa: E501
    "about": "See [the history of a thing](../how-to/see-who-wrote-it.md#what-happened-to-this) and [its JSON](json.md#crystal-about).",  # noqa: E501
    "agents": "See [its JSON](json.md#crystal-agents).",
    "projects": "See [projects](../how-to/projects.md) and [its JSON](json.md#crystal-projects).",
    "sources": "See [searching your files](../how-to/search-your-files.md) and [its JSON](json.md#crystal-sources).",
    "vault": "See [memories as files in the vault](../how-to/obsidian-vault.md#keep-memories-as-files) and [its JSON](json.md#crystal-vault).",  # noqa: E501
    "files": "See [memories in AGENTS.md and CLAUDE.md](../how-to/write-memories-into-agents-md.md) and [its JSON](json.md#crystal-files).",  # noqa: E501
    "mcp": "See [what it offers](mcp.md) and [how clients are connected](../how-to/clients.md).",
    "remember": "See [remembering](../how-to/remember.md) and [its JSON](json.md#crystal-remember-and-crystal-get).",
    "memories": "See [remembering](../how-to/remember.md) and [its JSON](json.md#crystal-memories).",
    "get": "See [remembering](../how-to/remember.md) and [its JSON](json.md#crystal-remember-and-crystal-get).",
    "forget": "See [forgetting something](../how-to/forget.md) and [its JSON](json.md#crystal-forget).",
    "reflect": "See [learning from sessions](../how-to/learn-from-sessions.md), [its JSON](json.md#crystal-reflect).",
    "usage": "See [learning from sessions](../how-to/learn-from-sessions.md) and [its JSON](json.md#crystal-usage).",
    "context": "See [starting with context](../how-to/start-with-context.md) and [its JSON](json.md#crystal-context).",
    "assist": "See [assist](../explanation/assist.md) and [its JSON](json.md#crystal-assist-replay).",
    "status": "See [its JSON](json.md#crystal-status).",
    "doctor": "See [its JSON](json.md#crystal-doctor).",
    "sync": "See [sweeping on a timer](../how-to/timer.md) and [its JSON](json.md#crystal-sync-crystal-backfill-and-crystal-import).",  # noqa: E501
    "watch": "See [watching](../how-to/agents.md#capture-as-soon-as-an-agent-writes).",
    "import": "See [importing an export](../how-to/agents.md#import-an-export) and [its JSON](json.md#crystal-sync-crystal-backfill-and-crystal-import).",  # noqa: E501
    "migrate": "See [taking over another memory](../how-to/migrate.md) and [its JSON](json.md#crystal-migrate).",
    "backfill": "See [importing the past](../how-to/import-the-past.md) and [its JSON](json.md#crystal-sync-crystal-backfill-and-crystal-import).",  # noqa: E501
    "verify": "See [proving that nothing is missing](../how-to/prove-nothing-is-missing.md) and [its JSON](json.md#crystal-verify).",  # noqa: E501
    "secrets": "See [finding exposed secrets](../how-to/find-exposed-secrets.md) and [its JSON](json.md#crystal-secrets).",  # noqa: E501
    "handoff": "See [going on in another agent](../how-to/continue-in-another-agent.md) and [its JSON](json.md#crystal-handoff).",  # noqa: E501
    "restore": "See [restoring a session](../how-to/restore-a-session.md) and [its JSON](json.md#crystal-restore).",
    "models": "See [choosing a model](../how-to/choose-a-model.md), [what they are worth](../explanation/models.md) and [its JSON](json.md#crystal-models).",  # noqa: E501
    "config": "See [every setting](configuration.md) and [its JSON](json.md#crystal-config).",
    "relay": "See [its JSON](json.md#crystal-relay-status) and [where keys are kept](keys.md).",
    "devices": "See [its JSON](json.md#crystal-devices).",
    "promote": "See [where keys are kept](keys.md).",
    "demote": "See [where keys are kept](keys.md).",
    "completion": "See [completion in your shell](../how-to/shell-completion.md).",
    "uninstall": "See [uninstalling](../how-to/uninstall.md).",
}
"""Where the reader goes on from each command: a command without a place in the documentation stops the generator."""

EXITS: dict[str, str] = {
    "init": "2 also when a settings file cannot be understood: it stays as it is, and other agents are set up",
    "access": "1 when there is no such project or access",
    "web": "4 also when the port is taken",
    "tui": "2 also without a terminal, 3 when textual is not installed",
    "show": "1 when nothing has that id or place",
    "fix": "2 also when no error is given",
    "blame": "1 when there is no such file, 2 also when it is no text or has no such line",
    "projects": "1 when there is no such project or folder",
    "sources": "1 when there is no such source or folder, 2 also when a folder cannot be added, 3 when watchfiles is not installed (`watch`), 4 also when a folder is not there or another process watches",  # noqa: E501
    "vault": "1 when a conflict is open or a file could not be remembered, 2 also when files were deleted and nobody can be asked, 4 also when the folder or all of its files are gone",  # noqa: E501
    "files": "1 when a conflict is open, a line cannot be remembered, or no file has memories yet, 2 also when a file is no UTF-8 text, is private or its block is damaged, and when nobody can be asked",  # noqa: E501
    "mcp": "128 and the number of the signal that ended it; with `--http` 3 when nobody has a token, 4 when the port is taken; what a tool meets is an answer, not an exit code",  # noqa: E501
    "remember": "2 also when nothing of the text may be kept, or it is too long",
    "memories": "1 when there is no such memory, 2 also when an id is the beginning of several",
    "get": "1 when nothing has that key or id",
    "forget": "1 when nothing was found or has that name, 6 when `--prove` found something",
    "status": "1 when turns are NOT kept",
    "doctor": "1 when a check fails",
    "watch": "0 also when it is ended by Ctrl-C, 4 also when another one runs or the system cannot watch so many folders; it also needs the package watchfiles",  # noqa: E501
    "sync": "130 also when you stop it while vectors are made: the rest follows, 3 when nothing here can run a timer; a transcript that cannot be read is a warning",  # noqa: E501
    "backfill": "1 when there is no such file or folder; a transcript that cannot be read is a warning",
    "migrate": "1 when the store is not here or has another form, 3 also when LanceDB is not installed",
    "verify": "1 when bytes are not captured yet, 4 when the store is busy, 6 when something is damaged",
    "secrets": "1 when there are secrets, or no such file or folder, 4 when there are none but a transcript or an archive could not be read",  # noqa: E501
    "handoff": "1 when nothing has that id or place, 2 also when the folder is gone, 3 also when the program that must import the session is not installed",  # noqa: E501
    "restore": "1 when the session is unknown, 2 also when its file is still there",
    "models": "1 when you answer no or there is no such model, 2 also when it is in use, 3 when it is not installed or a package or a key is missing, 4 when the hub cannot be reached, 5 when the hub refuses, 6 when what came, or what is installed, is damaged",  # noqa: E501
    "config": "3 when a place that should hold a key fails",
    "relay": "1 when something waits (`status`), 3 when this machine has no relay, no key, or another role than the command needs, 4 when the relay does not answer, 5 when a pairing failed, the relay refuses, or a stream needs you (`status`, `poll`), 6 when a device's blob is damaged (`status`, `poll`)",  # noqa: E501
    "devices": "1 when no device has that name",
    "promote": "3 when a key or a token is missing, 5 when the relay refuses",
    "demote": "3 when a key or a token is missing, 5 when the relay refuses",
    "uninstall": "1 when you answer no, 2 also when a settings file cannot be understood",
}
"""What exit codes mean for one command alone: the table at the beginning of the page has the rest."""

VALUES = {"assist": "on|off|ask", "limit": "N", "since": "TIME", "project": "FOLDER", "role": "ROLE"}
"""What stands for the value of an option that names nothing itself (Typer's own words differ between its versions)."""


def render() -> str:
    """The whole page."""
    root = typer.main.get_command(app)
    parts = [
        HEAD.rstrip("\n"),
        "## crystal",
        "    crystal [OPTIONS] COMMAND [ARGS]...",
        _prose(root.help),
        _parameters(root),
        "Commands: " + ", ".join(f"[`{name}`](#crystal-{name})" for name in COMMANDS) + ".",
        "What to do with `--on` and `--off` is in [keeping something private](../how-to/keep-something-private.md).",
    ]
    for name in COMMANDS:
        exits = f"Exit codes: {EXITS[name]}." if name in EXITS else ""
        more = "\n".join(part for part in (exits, MORE.get(name, "")) if part)
        parts += _command(f"crystal {name}", load_command(name), "##", more)
    return "\n\n".join(part for part in parts if part) + "\n"


def _command(name: str, command: Any, heading: str, more: str) -> list[str]:
    usage = f"    {name} {_usage(command)}"
    parts = [f"{heading} {name}", usage, _prose(command.help), _parameters(command), more]
    for each in getattr(command, "commands", {}).values():
        parts += _command(f"{name} {each.name}", each, heading + "#", "")
    return parts


def _usage(command: Any) -> str:
    words = ["[OPTIONS]", *["[--json]" for one in command.params if _is_json(one)]]
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            shown = (parameter.metavar or parameter.name.upper()).rstrip(".")
            shown += "..." if parameter.nargs == -1 else ""
            words.append(shown if parameter.required else f"[{shown}]")
    if getattr(command, "commands", None):
        words.append("[COMMAND]")
    return " ".join(words)


def _prose(text: str | None) -> str:
    """A help text as Markdown: its lines joined, then one sentence a line."""
    paragraphs = [" ".join(part.split()) for part in (text or "").split("\n\n")]
    return "\n\n".join(re.sub(r"(?<=[a-z%)][.!?]) (?=[A-Z])", "\n", one) for one in paragraphs).replace(
        "`crystal sync`", "[`crystal sync`](#crystal-sync)"
    )


def _parameters(command: Any) -> str:
    rows = []
    for one in command.params:
        if _is_json(one):
            continue
        if one.param_type_name == "argument":
            name = f"`{(one.metavar or one.name.upper()).rstrip('.')}`"
        else:
            value = "" if one.is_flag else f" {_value(one)}"
            name = ", ".join(f"`{option}{value}`" for option in sorted(one.opts, key=len))
            name += "".join(f" / `{option}`" for option in one.secondary_opts)
        rows.append(f"| {name} | {_cell(one.help)}{_default(one)} |")
    return "\n".join(["| option or argument | meaning |", "|---|---|", *rows]) if rows else ""


def _is_json(one: Any) -> bool:
    """Whether it is the option that nearly every command has: it is in the line of the usage."""
    return "--json" in one.opts and one.help == "Print one JSON object."


def _value(option: Any) -> str:
    return str(option.metavar or VALUES[option.name])


def _default(one: Any) -> str:
    shown = one.default if one.show_default else None
    return f" Default: {shown}." if shown not in (None, False, True, ()) and not callable(shown) and shown != [] else ""


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
