"""Define the command line: parse, call one function, print. Errors become messages and exit codes here.

A table maps each command to its file; only the file of the requested command is imported, so that the program
starts quickly.
"""

from __future__ import annotations

import difflib
import errno
import functools
import importlib
import os
import re
import sys
from collections.abc import Callable
from keyword import iskeyword
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from crystal.cli.options import flag, option
from crystal.config.packages import answer, broken_package
from crystal.errors import CrystalError, UnavailableError, UsageError

GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "Start here": {
        "init": ("init", "Set crystal up on this machine."),
        "search": ("search", "Find what was said."),
        "show": ("sessions", "Read a session, or a hit with the turns around it."),
        "remember": ("memories", "Remember a fact, a preference, an event, an opinion or a skill."),
        "forget": ("forget", "Delete messages, sessions, projects or memories for good."),
        "status": ("status", "Show whether capture works, what is stored, what waits."),
    },
    "Find and read": {
        "sessions": ("sessions", "List sessions, newest first."),
        "changed": ("work", "List the files that agents edited."),
        "blame": ("work", "Show which session wrote lines of a file, and why."),
        "how": ("work", "Show the commands that did something here."),
        "fix": ("work", "Show what cured an error here before."),
        "about": ("work", "Show the history of a file, a symbol, an error or a branch."),
        "assist": ("assist", "Count facts for the agent in past sessions, and how many it used."),
        "projects": ("projects", "List projects; rename, join, split or mark them."),
        "memories": ("memories", "List memories; edit, hide or restore them, show former versions."),
        "vault": ("vault", "Keep memories as Markdown files that you can edit."),
        "files": ("files", "Write memories into AGENTS.md, CLAUDE.md and the like."),
        "get": ("memories", "Print a memory by its key or its id."),
        "sources": ("sources", "Search your own files too."),
        "reflect": ("reflect", "Learn from what was said since the last time."),
        "usage": ("usage", "Show what was learned and told, and what it cost."),
        "web": ("web", "Show the memory as a page in the browser."),
        "tui": ("tui", "Search and read in the terminal, with the keyboard."),
        "context": ("context", "Show the context that a new session here would get."),
        "statusline": ("status", "Print a line for Claude Code's status line."),
    },
    "Bring in and take out": {
        "backfill": ("capture", "Import past sessions, newest first."),
        "import": ("capture", "Import exports of ChatGPT, Claude.ai, SpecStory or crystal."),
        "migrate": ("migrate", "Take over what other memory programs have stored."),
        "export": ("export", "Write sessions as JSON Lines, Markdown, or one HTML page."),
        "handoff": ("handoff", "Go on with a session in another agent."),
        "restore": ("verify", "Write a deleted session back for claude --resume."),
    },
    "Agents": {
        "agents": ("agents", "List the agents found here, and how much of each is captured."),
        "mcp": ("mcp", "Serve the memory to an agent (MCP)."),
        "access": ("access", "Manage tokens for this memory over HTTP."),
        "watch": ("watch", "Capture what agents without a hook write, at once."),
        "sync": ("capture", "Capture what the hooks missed, then make vectors and summaries."),
    },
    "Check and set up": {
        "doctor": ("status", "Check the installation and say how to fix it."),
        "verify": ("verify", "Prove that no byte is missing; repair what is damaged."),
        "secrets": ("secrets", "Find passwords and keys in the agents' transcripts."),
        "config": ("config", "Show or change the settings."),
        "recall": ("recall", "Test how well search finds messages of your memory."),
        "models": ("models", "Choose the model that turns text into vectors; install one."),
        "completion": ("completion", "Print a script that completes commands in your shell."),
        "uninstall": ("uninstall", "Remove what init added."),
    },
    "Several machines": {
        "relay": ("relay", "Share one memory among machines: pair, send, fetch, check."),
        "devices": ("devices", "List the machines of this home; rename, revoke, rotate."),
        "promote": ("roles", "Make this machine the home of the others."),
        "demote": ("roles", "Hand home over to a device, or leave home."),
    },
}
"""Every command, in the order of the help page: its file in this folder, and a one-line description."""

COMMANDS = {name: row for group in GROUPS.values() for name, row in group.items()}

COMPLETE_VARIABLE = "_CRYSTAL_COMPLETE"
"""Set by a shell that asks for completions; see ``crystal completion``."""

UNWRITABLE = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""Errors of writing to standard output. They have no file name; an error with one is reported by the
package that opened the file."""


class LazyCommands(TyperGroup):
    """The commands by name, each imported when it is requested."""

    # Typer includes a copy of click or uses the real one, depending on its version, so the types here are loose.

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 (click's signature)
        """Return all names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 (click's signature)
        """Return the command's own definition, from its file."""
        return load_command(cmd_name) if cmd_name in COMMANDS else None

    def invoke(self, ctx: Any) -> Any:
        """Run a command and flush its output."""
        return flushed(lambda: self._invoke(ctx))

    def _invoke(self, ctx: Any) -> Any:
        """Run a command; fence its output if an agent reads recalled text."""
        from crystal.cli.fenced_output import is_for_agent, run_fenced

        arguments = [*getattr(ctx, "_protected_args", ()), *ctx.args]
        if is_for_agent(arguments[0] if arguments else None, arguments):
            return run_fenced(lambda: super(LazyCommands, self).invoke(ctx))
        return super().invoke(ctx)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 (click's signature)
        """Write the overview from the table, without importing any command."""
        widest = max(map(len, COMMANDS))
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), words) for name, (_, words) in group.items()])


@functools.cache
def load_command(name: str) -> Any:
    """Import one command: the function with its name, or ``commands`` of the file with its name."""
    file = COMMANDS[name][0]
    module = importlib.import_module(f"crystal.cli.{file}")
    group = typer.Typer(add_completion=False, rich_markup_mode=None)
    group.callback()(lambda: None)
    if file == name and hasattr(module, "commands"):
        group.add_typer(module.commands, name=name)
    else:
        group.command(name)(getattr(module, f"{name}_" if iskeyword(name) else name))
    commands: dict[str, Any] = getattr(typer.main.get_command(group), "commands", {})
    return commands[name]


class TypedText:
    """Parse flags that are off and ASCII texts without pydantic, whose import takes a fifth of a search's time."""

    def __init__(self, kind: Any, make: Callable[[Any], Any]) -> None:
        self._make = functools.partial(make, kind)
        self._is_text = kind.annotation in (str, list[str]) and kind.parameter_info.parser is None

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return a text, a list of texts, or None; leave other values and errors to typer."""
        is_list = param.multiple or param.nargs == -1
        texts = value if is_list else [value]
        if value is None or (self._is_text and all(isinstance(text, str) and text.isascii() for text in texts)):
            return value if not is_list else () if value is None else list(value)
        return self._make().coerce(value, param=param, ctx=ctx)


@functools.cache
def read_plainly() -> None:
    """Make typer parse plain texts without pydantic; do nothing if this version of typer has no such function."""
    core: Any = typer.core
    make = getattr(core, "build_runtime_param", None)
    if make is not None:
        core.build_runtime_param = lambda kind: TypedText(kind, make)


app = typer.Typer(
    name="crystal",
    cls=LazyCommands,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def root(
    ctx: typer.Context,
    on: Annotated[bool, flag("Resume capture.", "--on")] = False,
    off: Annotated[bool, flag("Pause capture: nothing is captured until --on.", "--off")] = False,
    status: Annotated[bool, flag("Say whether capture is on.", "--status")] = False,
    session: Annotated[str | None, option("With --on and --off: only this session.", "ID")] = None,
    data_dir: Annotated[str | None, option("The folder of crystal.db; wins over CRYSTAL_DATA_DIR.", "FOLDER")] = None,
    version: Annotated[bool, flag("Print the version.", "--version")] = False,
) -> None:
    """Search everything that you and your coding agent ever said to each other."""
    if data_dir is not None:
        if not data_dir.strip():
            raise UsageError("--data-dir is empty", hint="name a folder, or leave it out")
        os.environ["CRYSTAL_DATA_DIR"] = data_dir
    if on + off + status + version > 1:
        raise UsageError("--on, --off, --status and --version do not go together", hint="give one of them")
    if session is not None and not (on or off):
        raise UsageError("--session goes with --on or --off", hint=f"crystal --off --session {session}")
    if version:
        from crystal import __version__

        typer.echo(f"crystal {__version__}")
    elif on or off or status:
        from crystal.cli.status import switch

        switch(on=on, off=off, session=session)
    else:
        if ctx.invoked_subcommand is None:
            typer.echo(ctx.get_help())
        return
    raise typer.Exit(0)


def report(error: CrystalError) -> int:
    """Print an error in the format of all commands, and return its exit code."""
    from crystal.cli.render import hint, note

    note(error.message, kind="error")
    if error.hint:
        hint(error.hint)
    return error.exit_code


def flushed(run: Callable[[], Any]) -> Any:
    """Run a command and flush its output; typer would return exit code 1 after a broken pipe."""
    try:
        done = run()
        sys.stdout.flush()
    except OSError as error:
        if error.filename is None and error.errno in UNWRITABLE:
            _exit_unwritable(error)
        raise
    return done


def main() -> None:
    """Run the command line; exit with the documented code."""
    if COMPLETE_VARIABLE in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()
    read_plainly()
    finish(lambda: app(prog_name="crystal", standalone_mode=False))


def finish(run: Callable[[], Any]) -> NoReturn:
    """Run a command line; exit with the documented code, after the message of an error."""
    try:
        code = run()
    except CrystalError as error:
        sys.exit(report(error))
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except Exception as error:
        # Typer's own errors (unknown option, missing argument) have these two attributes, whichever click it uses.
        words, asked = getattr(error, "format_message", None), getattr(error, "ctx", None)
        if words is None:
            broken = broken_package(error)
            if broken is not None:
                sys.exit(answer(sys.argv[1:], broken))
            known = _explained(error)
            if known is None:
                raise
            sys.exit(report(known))
        if type(error).__name__ == "NoArgsIsHelpError":
            print(words(), file=sys.stderr)
            sys.exit(UsageError.exit_code)
        text = (
            " ".join(str(words()).split())
            .replace("Value error, ", "")
            .rstrip(".")
            .partition(" Did you mean")[0]
            .rstrip(".")
        )
        sys.exit(report(UsageError(text[:1].lower() + text[1:], hint=_hint_for(text, asked))))
    sys.exit(code if isinstance(code, int) else 0)


LISTING = ("list", "ls")
"""Names that people give for listing; a group lists if no command is given."""


def _hint_for(text: str, context: Any) -> str:
    """Return the next step after a usage error: the command that was probably meant, or the help."""
    path = str(getattr(context, "command_path", "crystal"))
    unknown = re.match(r"No such command '(.*)'", text, re.DOTALL)
    group = getattr(context, "command", None)
    names = list(getattr(group, "list_commands", lambda _: [])(context))
    if unknown and unknown[1] in LISTING and path != "crystal" and getattr(group, "invoke_without_command", False):
        return f"did you mean: {path}"
    near = difflib.get_close_matches(unknown[1].lower(), names, n=1) if unknown else []
    if near:
        return f"did you mean: {path} {near[0]}"
    if unknown and path == "crystal" and " " in unknown[1].strip():
        return f'to search: crystal search "{unknown[1]}"'
    return f"run: {path} --help"


def _explained(error: Exception) -> CrystalError | None:
    """Return the user's error behind an unexpected one; None for a bug, which keeps its traceback.

    Such errors are a file that the system refuses, and a damaged database, whatever exception it caused.
    """
    if isinstance(error, OSError) and error.filename is not None:
        from crystal.config.paths import refused

        return refused(error, Path(os.fsdecode(error.filename)))
    from crystal.app.context import damage_here

    return damage_here()


def _exit_unwritable(error: OSError) -> NoReturn:
    """Exit because standard output cannot be written, without Python's own last attempt to write to it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):  # the reader (head, less) has ended
        sys.exit(0)
    words = f"standard output: {(error.strerror or str(error)).lower()}"
    sys.exit(report(UnavailableError(words, hint="nothing else failed; run the command again")))
