"""``crystal init`` and ``crystal uninstall``."""

from __future__ import annotations

import os
import sys
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from crystal.cli.capture import count_words, size_words
from crystal.install.clients.known import NAMES

if TYPE_CHECKING:
    from crystal.app.context import Machine
    from crystal.capture.backfill import Past
    from crystal.config.paths import Places
    from crystal.config.table import Config
    from crystal.install.setup_plan import RemovalPlan, SetupPlan


class Role(str, Enum):
    """What a machine is to others."""

    STANDALONE = "standalone"
    HOME = "home"
    DEVICE = "device"


def init(
    agent_id: Annotated[str | None, typer.Option("--agent-id", help="This machine's agent id.", metavar="ID")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing; accept the defaults.")] = False,
    import_past: Annotated[
        bool | None, typer.Option("--import/--no-import", help="Import past sessions now. --yes alone does not.")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="After the import, wait until vectors and summaries are made too.")
    ] = False,
    role: Annotated[
        Role | None,
        typer.Option("--role", help="standalone: alone; home: holds the memory of several; device: sends to home."),
    ] = None,
    relay: Annotated[
        str | None, typer.Option("--relay", help="With --role home: the relay's address.", metavar="URL")
    ] = None,
    token_stdin: Annotated[
        bool, typer.Option("--token-stdin", help="With --role home: read the relay's token from standard input.")
    ] = False,
    local_memory: Annotated[
        bool | None,
        typer.Option(
            "--local-memory/--no-local-memory", help="With --role device: keep a memory on this machine, too."
        ),
    ] = None,
    client: Annotated[
        list[str] | None,
        typer.Option(
            "--client",
            help=f"Let this client use the memory: {', '.join(NAMES)}. May be repeated.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    paste: Annotated[
        bool,
        typer.Option(
            "--print", help="Only print the client's entry, to be pasted; without --client for any MCP client."
        ),
    ] = False,
    instructions: Annotated[
        bool, typer.Option("--instructions", help="Only print instructions for an agent without skills.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
) -> None:
    """Set crystal up on this machine: its folders, its agent id, the hooks in Claude Code. Repeating is harmless."""
    from crystal.app.capture_engine import make_capture
    from crystal.app.context import open_machine, this_config, this_home, usable_config
    from crystal.app.import_past import plan_import
    from crystal.app.notices import refresh_notice
    from crystal.app.open_store import refuse_links, refuse_lost
    from crystal.install.setup_plan import apply_setup, plan_setup, proposed_agent

    only = None if client is None else [_known_client(name) for name in client]
    if paste or instructions or (only and "any" in only):
        _print_for_pasting(only or ["any"], instructions=instructions)
        return
    config = usable_config(this_config())
    asks = sys.stdin.isatty() and not yes and not dry_run
    agent = agent_id or proposed_agent(config)
    if asks and agent_id is None:
        agent = typer.prompt("agent id of this machine", default=agent, err=True)
    plan = plan_setup(config, agent, os.environ, this_home(), only=only)
    _check_role(config.role, role, relay=relay, token_stdin=token_stdin, local_memory=local_memory)
    if dry_run:
        _show_plan(plan)
        return
    refuse_links(plan.places)
    refuse_lost(plan.places)
    apply_setup(plan, os.environ)
    _say_done(plan)
    _take_role(config, role, relay, local_memory, asks=sys.stdin.isatty() and not yes, token_stdin=token_stdin)
    with open_machine({"agent_id": agent, "data_dir": str(plan.places.data_dir)}) as machine:
        make_capture(machine).meet()
        refresh_notice(machine)
        if not plan.settings and not import_past:
            _say_what_is_asked(plan)
            return
        past = plan_import(machine, [], None)
        sessions, size = len({one.origin.session_id for one in past}), sum(one.todo for one in past)
        if past:
            rest = "" if import_past else ", not imported yet"
            typer.echo(f"past: found {count_words(sessions, 'session')}, {size_words(size)}{rest}")
        else:
            typer.echo("past: nothing to import")
        if past and (
            import_past or (asks and import_past is None and typer.confirm("import them now?", default=True, err=True))
        ):
            _import(machine, past, wait=wait)
        elif past:
            typer.echo("      import them at any time with: crystal backfill")
        _say_what_works(machine)


def _check_role(
    now: str, role: Role | None, *, relay: str | None, token_stdin: bool, local_memory: bool | None
) -> None:
    """Refuse what does not go together, before anything is made."""
    from crystal.errors import UsageError

    if (relay is not None or token_stdin) and role is not Role.HOME:
        raise UsageError("--relay and --token-stdin go with --role home", hint="a device gets both by: relay join")
    if local_memory is not None and Role.DEVICE not in (role, now):
        raise UsageError("--local-memory goes with --role device", hint="other roles always have a memory here")
    if role is not None and now not in (role, Role.STANDALONE):
        step = "crystal promote" if role is Role.HOME else "crystal demote"
        raise UsageError(f"this machine is {now} already", hint=f"change its role with: {step}")


def _take_role(
    config: Config,
    role: Role | None,
    relay: str | None,
    local_memory: bool | None,
    *,
    asks: bool,
    token_stdin: bool,
) -> None:
    from crystal.app.context import open_machine
    from crystal.app.sync.roles import become_home, has_token
    from crystal.cli.roles import read_secret_text
    from crystal.config.edit import set_value
    from crystal.store.sync.relay_peers import home_peer

    if local_memory is not None:
        set_value(config.places.config_file, "relay.local_memory", local_memory)
    if role is Role.DEVICE:
        set_value(config.places.config_file, "role", "device")
    if role in (None, Role.STANDALONE):
        return
    with open_machine({"data_dir": str(config.places.data_dir)}) as machine:
        if role is Role.HOME:
            token = None
            if token_stdin or (asks and not has_token(machine)):
                token = read_secret_text("the relay's token for home")
            change = become_home(machine, url=relay, token=token)
            typer.echo(f"role: home, with the relay at {relay or machine.config.relay_url}")
            for note in change.notes:
                typer.echo(f"      {note}")
            typer.echo("      add a device with: crystal relay pair")
        elif home_peer(machine.store) is None:
            typer.echo("role: device; on the home machine run: crystal relay pair; then here: crystal relay join")


def _warn_of_others() -> None:
    """Say what other machines would miss."""
    from contextlib import suppress

    from crystal.app.context import open_reader
    from crystal.app.sync.roles import only_here
    from crystal.errors import CrystalError

    with suppress(CrystalError), open_reader() as machine:
        for words in only_here(machine):
            typer.echo(f"crystal: warning: {words}", err=True)


def _known_client(name: str) -> str:
    """Return the name of a client that crystal can set up, or ``any``."""
    from crystal.errors import UsageError

    if name not in (*NAMES, "any"):
        hint = f"known: {', '.join(NAMES)}. Any other: crystal init --print"
        raise UsageError(f"crystal does not know the client {name!r}", hint=hint)
    return name


def uninstall(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    purge: Annotated[bool, typer.Option("--purge", help="Delete the memory too, for good.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before deleting the memory.")] = False,
) -> None:
    """Remove from Claude Code what init added. The memory stays, unless you give --purge."""
    from crystal.app.context import default_paths, this_home
    from crystal.cli.timer import change_timer
    from crystal.install.setup_plan import apply_removal, plan_removal
    from crystal.install.setup_plan import purge as purge_data
    from crystal.install.timer import SCHEDULES

    places = default_paths()
    plan = plan_removal(places, os.environ, this_home())
    for problem in plan.problems:
        typer.echo(f"crystal: warning: {problem.message}", err=True)
    if dry_run:
        _show_removal(plan, purge=purge)
        _say_plugin_stays(places)
        return
    if purge:
        _warn_of_others()
    if purge and plan.data and not yes:
        _confirm_purge(plan)
    apply_removal(plan, places, os.environ)
    _say_taken_out(plan)
    _say_plugin_stays(places)
    change_timer(install=False, schedules=SCHEDULES)
    if purge:
        purge_data(plan, places)
        typer.echo("memory deleted")
    elif plan.data:
        typer.echo(f"the memory stays in {places.ldm_home}; delete it with: crystal uninstall --purge")
    if plan.problems:
        raise plan.problems[0]


def _show_removal(plan: RemovalPlan, *, purge: bool) -> None:
    for change in plan.settings:
        typer.echo(change.diff(), nl=False)
    for each in plan.clients:
        typer.echo(each.diff() if each.changed else "", nl=False)
    for path in plan.data if purge else ():
        typer.echo(f"would delete {path}")


def _confirm_purge(plan: RemovalPlan) -> None:
    """Ask before deleting the memory.

    Raises:
        UsageError: Nobody can be asked: standard input is no terminal.
        typer.Abort: The answer is no.
    """
    from crystal.errors import UsageError

    if not sys.stdin.isatty():
        raise UsageError("--purge deletes the memory for good", hint="add --yes to do it without being asked")
    for path in plan.data:
        typer.echo(f"  {path}", err=True)
    typer.confirm("delete all of this for good?", abort=True, err=True)


def _say_taken_out(plan: RemovalPlan) -> None:
    for change in plan.settings:
        typer.echo(f"{change.path}: {'hooks removed' if change.changed else 'has no crystal hook'}")
    for each in plan.clients:
        if each.changed:
            typer.echo(f"{each.path}: crystal's server removed")


def _say_plugin_stays(places: Places) -> None:
    """Say how the plugin goes: Claude Code alone can take it out."""
    from crystal.install.claude_settings.layers import plugin_removals

    for removal in [each for folder in places.claude_dirs for each in plugin_removals(folder)]:
        typer.echo(f"the plugin stays and still captures; remove it with: {removal}")


def _show_plan(plan: SetupPlan) -> None:
    if plan.changes_nothing:
        typer.echo("nothing to do: crystal is set up")
        return
    for folder in plan.folders:
        typer.echo(f"would make {folder}")
    if plan.write_agent:
        typer.echo(f"would set agent_id = {plan.agent} in {plan.places.config_file}")
    if plan.device is not None:
        typer.echo(f"would set device = {plan.device} in {plan.places.config_file}")
    for difference in (*(each.diff() for each in plan.settings), *(each.diff() for each in plan.clients)):
        typer.echo(difference, nl=False)


def _print_for_pasting(names: list[str], *, instructions: bool) -> None:
    """Print what a person pastes into a client's settings; reads only crystal's settings and writes nothing."""
    from crystal.app.context import this_config, this_home
    from crystal.install.clients.entry_text import GUIDANCE, snippet
    from crystal.install.clients.known import known_clients
    from crystal.install.setup_plan import server_entry

    if instructions:
        typer.echo(GUIDANCE, nl=False)
        return
    config = this_config()
    known = known_clients(os.environ, this_home(), config.places)
    for name in names:
        client = known.get(name)
        typer.echo(snippet(client, server_entry(config, os.environ, this_home())), nl=False)
        if client is not None:
            typer.echo(f"crystal: hint: add it to {client.file}", err=True)


def _say_done(plan: SetupPlan) -> None:
    typer.echo(f"memory: {plan.places.db}")
    typer.echo(f"agent: {plan.agent}")
    for change in plan.settings:
        typer.echo(f"hooks: {'installed in' if change.changed else 'already in'} {change.path}")
    for each in plan.clients:
        typer.echo(f"server: {'added to' if each.changed else 'already in'} {each.path} ({each.client.title})")
        if each.changed and each.client.name == "claude-code" and each.program is None:
            typer.echo(
                "crystal: hint: if Claude Code runs now, it may undo this; quit it and run the command again", err=True
            )


def _say_what_is_asked(plan: SetupPlan) -> None:
    """Say what is new after a setup for clients alone."""
    from crystal.install.claude_settings.settings_file import read_facts

    titles = " and ".join(dict.fromkeys(each.client.title for each in plan.clients))
    typer.echo(f"now: restart {titles}; then the agent can search, remember and forget")
    for guidance in dict.fromkeys(each.client.guidance for each in plan.clients if each.client.guidance):
        typer.echo(f"     to tell it when, run in a project: crystal init --instructions >> {guidance}")
    if not any(read_facts(folder / "settings.json").commands for folder in plan.places.claude_dirs):
        typer.echo("     to capture Claude Code's sessions too: crystal init")


def _import(machine: Machine, past: list[Past], *, wait: bool) -> None:
    from crystal.cli.capture import imported_words
    from crystal.cli.following import enrich_here, follow_up, import_with_bar

    typer.echo(f"      {imported_words(import_with_bar(machine, past))}")
    for problem in enrich_here(machine) if wait else follow_up(machine):
        typer.echo(f"crystal: warning: {problem}", err=True)


def _say_what_works(machine: Machine) -> None:
    from crystal.app.capture_state import capture_state
    from crystal.capture.state import Condition, describe
    from crystal.store.search.vectors import serving_generation

    state = capture_state(machine.config, machine.store)
    if state.condition is Condition.CAPTURING:
        typer.echo("now: use Claude Code as before; crystal captures every turn")
    else:
        typer.echo(f"now: {describe(state, machine.now())}")
    typer.echo('     find anything with: crystal search "what was it"')
    if serving_generation(machine.store) is None and machine.config.embedding_provider == "none":
        typer.echo("     search is by keywords alone (embedding.provider is none)")
