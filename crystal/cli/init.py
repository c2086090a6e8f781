"""Implement ``crystal init``: set up this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated

import typer

from crystal.app.capture_engine import make_capture
from crystal.app.capture_state import capture_state
from crystal.app.context import Machine, open_machine, this_config, this_home
from crystal.app.import_past import note_refused, plan_import
from crystal.app.migrate.found import find_stores
from crystal.app.notices import refresh_notice
from crystal.app.open_store import refuse_links, refuse_lost
from crystal.capture.engine import Tally
from crystal.capture.state import Condition, describe
from crystal.cli.capture import import_in_projects, import_with_bar, imported_words, warn_of
from crystal.cli.follow_up import enrich_here, follow_up
from crystal.cli.options import flag, option
from crystal.cli.render import count_words, hint, note, say, say_nothing, size_words, warn
from crystal.config.edit import set_value
from crystal.config.harnesses import CLAUDE_CODE, HARNESSES, agent_named
from crystal.config.table import Config
from crystal.errors import UsageError
from crystal.install.claude_settings.claude_file import read_facts
from crystal.install.clients.entry_text import GUIDANCE, snippet
from crystal.install.clients.known import NAMES, known_clients
from crystal.install.live.changes import LivePlan, is_live
from crystal.install.live.mechanisms import MECHANISMS
from crystal.install.setup_plan import (
    AGENT_NAMES,
    SetupPlan,
    apply_setup,
    found_agents,
    left_out_agents,
    plan_setup,
    proposed_agent,
    server_entry,
)
from crystal.store.search.vectors import serving_generation
from crystal.store.sync.relay_peers import home_peer


class Role(str, Enum):
    """Role of a machine among those that share one memory."""

    STANDALONE = "standalone"
    HOME = "home"
    DEVICE = "device"


AssistMode = Enum("AssistMode", {"on": "on", "off": "off", "ask": "ask"})


@dataclass(frozen=True, slots=True)
class RoleOptions:
    """The options of ``init`` for machines with a shared memory."""

    role: Role | None
    relay: str | None
    token_stdin: bool
    local_memory: bool | None

    def check(self, now: str) -> None:
        """Refuse options that contradict each other, before anything is written.

        Raises:
            UsageError: They do, or the machine has another role already.
        """
        if (self.relay is not None or self.token_stdin) and self.role is not Role.HOME:
            raise UsageError("--relay and --token-stdin go with --role home", hint="a device gets both by: relay join")
        if self.local_memory is not None and Role.DEVICE not in (self.role, now):
            raise UsageError("--local-memory goes with --role device", hint="other roles always have a memory here")
        if self.role is not None and now not in (self.role, Role.STANDALONE):
            step = "crystal promote" if self.role is Role.HOME else "crystal demote"
            raise UsageError(f"this machine is {now} already", hint=f"change its role with: {step}")

    def apply(self, config: Config, *, asks: bool) -> None:
        """Give this machine its role, and print the next step."""
        if self.local_memory is not None:
            set_value(config.places.config_file, "relay.local_memory", self.local_memory)
        if self.role is Role.DEVICE:
            set_value(config.places.config_file, "role", "device")
        if self.role in (None, Role.STANDALONE):
            return
        with open_machine({"data_dir": str(config.places.data_dir)}) as machine:
            if self.role is Role.HOME:
                from crystal.cli.roles import make_home  # only users of a relay need its code

                change = make_home(machine, self.relay, asks=asks, token_stdin=self.token_stdin)
                typer.echo(f"role: home, with the relay at {self.relay or machine.config.relay_url}")
                for note in (*change.notes, "add a device with: crystal relay pair"):
                    typer.echo(f"      {note}")
            elif home_peer(machine.store) is None:
                typer.echo("role: device; on the home machine run: crystal relay pair; then here: crystal relay join")


def init(
    agent_id: Annotated[str | None, option("This machine's agent id.", "ID")] = None,
    yes: Annotated[bool, flag("Ask nothing; accept the defaults.", "--yes", "-y")] = False,
    assist: Annotated[AssistMode | None, option("Tell your agents facts unasked.")] = None,
    import_past: Annotated[
        bool | None, flag("Import past sessions now. --yes alone does not.", "--import/--no-import")
    ] = None,
    wait: Annotated[bool, flag("After the import, wait until vectors and summaries are made too.", "--wait")] = False,
    role: Annotated[
        Role | None, option("standalone: one machine; home: has the memory of several machines; device: sends to home.")
    ] = None,
    relay: Annotated[str | None, option("With --role home: the relay's address.", "URL")] = None,
    token_stdin: Annotated[
        bool, flag("With --role home: read the relay's token from standard input.", "--token-stdin")
    ] = False,
    local_memory: Annotated[
        bool | None, flag("With --role device: keep a memory on this machine, too.", "--local-memory/--no-local-memory")
    ] = None,
    client: Annotated[
        list[str] | None,
        option(f"Let this client use the memory: {', '.join(NAMES)}. May be repeated.", "NAME", show_default=False),
    ] = None,
    agent_name: Annotated[
        list[str] | None,
        option(
            f"Capture this agent's turns as they end: {', '.join(AGENT_NAMES)}. May be repeated.",
            "NAME",
            "--agent",
            show_default=False,
        ),
    ] = None,
    every: Annotated[
        bool, flag("The same for every agent found on this machine except OpenCode, whose plugins need npm.", "--all")
    ] = False,
    paste: Annotated[
        bool,
        flag("Only print the client's entry, for you to paste; without --client, one for any MCP client.", "--print"),
    ] = False,
    instructions: Annotated[
        bool, flag("Only print instructions for an agent without skills.", "--instructions")
    ] = False,
    dry_run: Annotated[bool, flag("Only show what would be done.", "--dry-run")] = False,
) -> None:
    """Set crystal up on this machine: its folders, its agent id, its hooks. Repeating is harmless.

    The hooks go into Claude Code, and with --agent or --all into other agents.
    """
    agent_name = None if agent_name is None else [agent_named(name, AGENT_NAMES) for name in agent_name]
    _check_names(client, agent_name)
    if instructions or paste or "any" in (client or ()):
        _print_for_pasting(client or ["any"], instructions=instructions)
        return
    asks = sys.stdin.isatty() and not yes and not dry_run
    agent = agent_id or _proposed(asks=asks)
    config = this_config({"assist.mode": assist and assist.value})
    agents = found_agents(config.places, os.environ, this_home()) if every else agent_name
    config = _with_assist(config, is_given=assist is not None, asks=asks, dry_run=dry_run)
    plan = plan_setup(config, agent, os.environ, this_home(), only=client, agents=agents)
    sharing = RoleOptions(role, relay, token_stdin, local_memory)
    sharing.check(config.role)
    if dry_run:
        _show_plan(plan)
        return
    refuse_links(plan.places)
    refuse_lost(plan.places)
    plan = apply_setup(plan, os.environ)
    _say_done(plan)
    say(*([] if assist is None else [f"assist: {config.assist_mode}"]))
    if every:
        _say_left_out(config, agents)
    sharing.apply(config, asks=asks)
    try:
        _begin(plan, wanted=import_past, asks=asks, wait=wait)
    except (KeyboardInterrupt, typer.Abort):  # an import that has begun prints itself what is left
        note("stopped: crystal is set up, and imported nothing; to import: crystal backfill")
        raise typer.Exit(130) from None
    if plan.problems:
        raise plan.problems[0]


def _begin(plan: SetupPlan, *, wanted: bool | None, asks: bool, wait: bool) -> None:
    """Record the existing transcripts as known, offer to import them, and print what works now."""
    with open_machine({"agent_id": plan.agent, "data_dir": str(plan.places.data_dir)}) as machine:
        make_capture(machine).meet()
        refresh_notice(machine)
        if plan.settings or plan.plugins or plan.live or plan.swept or wanted:
            _offer_past(machine, wanted=wanted, asks=asks, wait=wait)
            _say_what_works(machine, plan)
        elif plan.clients:
            _say_what_is_asked(plan)


def _with_assist(config: Config, *, is_given: bool, asks: bool, dry_run: bool) -> Config:
    """Return the settings with assist on or off, as given on the command line or answered by the user."""
    mode = config.assist_mode if is_given else None
    if asks and config.assist_mode == "ask":
        words = (
            "tell your agents what came of the last sessions when one begins, past decisions at an edit, past fixes"
            " after an error, and what the session decided after a compaction or in a subagent?"
        )
        mode = "on" if typer.confirm(words, default=False, err=True) else "off"
    if mode is None or dry_run:
        return config
    set_value(config.places.config_file, "assist.mode", mode)
    return this_config({"assist.mode": mode})


def _say_left_out(config: Config, found: Sequence[str] | None) -> None:
    left = left_out_agents(config.places, os.environ, this_home())
    if not found and not left:
        say_nothing("no agent was found on this machine", "name yours: crystal init --agent claude-code")
    for name in left:
        typer.echo(f"left out: {_title(name)}: a plugin makes it wait for npm; to add it: crystal init --agent {name}")


def _proposed(*, asks: bool) -> str:
    """Return the agent id of the settings, or a proposal that the user may change."""
    config = this_config()
    agent, is_new = proposed_agent(config), config.origin("agent_id") == "default"
    return typer.prompt("agent id of this machine", default=agent, err=True) if asks and is_new else agent


def _check_names(clients: Sequence[str] | None, agents: Sequence[str] | None) -> None:
    for kind, names, known, rest in (
        ("client", clients, NAMES, ". Any other: crystal init --print"),
        ("agent", agents, AGENT_NAMES, ""),
    ):
        for name in names or ():
            if name not in known and (kind, name) != ("client", "any"):
                raise UsageError(f"crystal does not know the {kind} {name!r}", hint=f"known: {', '.join(known)}{rest}")


def _offer_past(machine: Machine, *, wanted: bool | None, asks: bool, wait: bool) -> None:
    """Print what could be imported, and import it if the user wants it."""
    refused = Tally()
    past = plan_import(machine, [], None, refused)
    warn_of(refused)
    if not past:
        typer.echo("past: nothing to import")
        return
    sessions, size = len({one.origin.session_id for one in past}), sum(one.todo for one in past)
    rest = "" if wanted else ", not imported yet"
    typer.echo(f"past: found {count_words(sessions, 'session')}, {size_words(size)}{rest}")
    if wanted is None and asks:
        wanted = typer.confirm("import them now?", default=True, err=True)
    if not wanted:
        typer.echo("      import them at any time with: crystal backfill")
        return
    tally = import_with_bar(machine, past)
    tally.join(import_in_projects(machine))
    typer.echo(f"      {imported_words(tally)}")
    warn_of(tally, enrich_here(machine) if wait else follow_up(machine))
    tally.join(refused)
    note_refused(machine, tally)


def _show_plan(plan: SetupPlan) -> None:
    warn(*(problem.message for problem in plan.problems))
    _say_swept(plan)
    if plan.changes_nothing:
        typer.echo("nothing to do: crystal is set up")
        return
    for folder in plan.folders:
        typer.echo(f"would make {folder}")
    if plan.write_agent:
        typer.echo(f"would set agent_id = {plan.agent} in {plan.places.config_file}")
    if plan.device is not None:
        typer.echo(f"would set device = {plan.device} in {plan.places.config_file}")
    for change in (*plan.settings, *plan.clients, *(change for agent in plan.live for change in agent.changes)):
        typer.echo(change.diff(), nl=False)


def _print_for_pasting(names: list[str], *, instructions: bool) -> None:
    """Print text to paste: instructions for an agent, or a client's settings. Nothing is written."""
    if instructions:
        typer.echo(GUIDANCE, nl=False)
        return
    config = this_config()
    known = known_clients(os.environ, this_home(), config.places)
    for name in names:
        client = known.get(name)
        entry = server_entry(config, os.environ, this_home())
        typer.echo(snippet(client, entry if client is None else client.asking(entry)), nl=False)
        if client is not None:
            hint(f"add it to {client.file}")


def _say_done(plan: SetupPlan) -> None:
    typer.echo(f"memory: {plan.places.db}")
    typer.echo(f"agent: {plan.agent}")
    say(*(f"hooks: run by the plugin {plugin}" for plugin in plan.plugins))
    say(*(f"hooks: {'installed in' if one.changed else 'already in'} {one.path}" for one in plan.settings))
    warn(*(problem.message for problem in plan.unusable))
    for each in plan.clients:
        typer.echo(f"server: {'added to' if each.changed else 'already in'} {each.path} ({each.client.title})")
        if each.changed and each.client.name == "claude-code" and each.program is None:
            hint("if Claude Code runs now, it may undo this; quit it and run the command again")
    for one in plan.live:
        _say_live(one)
    _say_swept(plan)


def _say_live(one: LivePlan) -> None:
    mechanism = MECHANISMS[one.name]
    for change in one.changes:
        typer.echo(f"hooks: {'added to' if change.changed else 'already in'} {change.path} ({mechanism.title})")
    warn(*(problem.message for problem in one.problems))
    if mechanism.next_step and one.changed:
        hint(mechanism.next_step)


def _say_swept(plan: SetupPlan) -> None:
    for name in plan.swept:
        typer.echo(f"sync: {_title(name)} has no hook for the end of a turn; capture it with: crystal watch --install")


def _title(name: str) -> str:
    return HARNESSES[name].title if name in HARNESSES else MECHANISMS[name].title


def _say_what_is_asked(plan: SetupPlan) -> None:
    """Print the next steps after a setup of clients only."""
    titles = " and ".join(dict.fromkeys(each.client.title for each in plan.clients))
    typer.echo(f"now: restart {titles}; then the agent can search, remember and forget")
    for guidance in dict.fromkeys(each.client.guidance for each in plan.clients if each.client.guidance):
        typer.echo(f"     to tell it when, run in a project: crystal init --instructions >> {guidance}")
    if not any(read_facts(folder / "settings.json").commands for folder in plan.places.claude_dirs):
        typer.echo("     to capture Claude Code's sessions too: crystal init")


def _say_what_works(machine: Machine, plan: SetupPlan) -> None:
    state = capture_state(machine.config, machine.store)
    told = [_title(CLAUDE_CODE)] * bool(plan.settings or plan.plugins) + [
        _title(one.name) for one in plan.live if not one.problems
    ]
    if state.condition is not Condition.CAPTURING:
        typer.echo(f"now: {describe(state, machine.now())}")
    elif told:
        typer.echo(
            f"now: use {' and '.join(told) if len(told) < 3 else 'these agents'} as before; crystal captures every turn"
        )
    places, home = plan.places, this_home()
    rest = set(found_agents(places, os.environ, home)) - {one.name for one in plan.live}
    if any(is_live(name, os.environ, home) is False for name in rest):
        typer.echo("     other agents are captured by crystal sync, or as each turn ends after: crystal init --all")
    if stores := dict.fromkeys(one.title for one in find_stores()):
        typer.echo(f"     {', '.join(stores)} can be taken over: crystal migrate")
    typer.echo('     find anything with: crystal search "what was it"')
    if serving_generation(machine.store) is None and machine.config.embedding_provider == "none":
        typer.echo("     search is by keywords alone (embedding.provider is none)")
