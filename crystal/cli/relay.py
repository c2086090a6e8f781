"""Implement ``crystal relay``: pair, join, poll, sync, status, skip, purge and key."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crystal.app.context import Machine, open_kept_machine, open_machine, open_reader, this_config
from crystal.app.relay_links import key_places, relay_client, relay_keys
from crystal.app.sync.relay_state import plan_skip, purge_refused, read_refused, short_ids, stream_states
from crystal.app.sync.relay_state import skip as skip_over
from crystal.cli import relay_pairing, relay_status
from crystal.cli.confirm import confirm
from crystal.cli.json_output import answer, json_row
from crystal.cli.options import AsJson, Quiet, RemoveTimer, TimerDryRun, Yes, argument, changes_timer, flag, option
from crystal.cli.render import count_words, hint, note, one_line, say, size_words, warn
from crystal.errors import NotConfiguredError, UnavailableError, UsageError
from crystal.store.sync.outbox import backlog
from crystal.store.sync.relay_peers import home_peer
from crystal.sync.client import RelayClient
from crystal.sync.envelope.link import link_keys
from crystal.sync.keys.derive import shared_prefix
from crystal.sync.keys.forms import RelayKey
from crystal.sync.keys.places import KEY

if TYPE_CHECKING:  # the commands that send and fetch import this themselves
    from crystal.app.sync.home import PollOutcome
    from crystal.sync.delivery import DeliveryReport

POLL_PAUSE, SYNC_PAUSE = 5.0, 0.3
"""Minimum seconds between two rounds of ``--watch``; longer at home, where a round also publishes, which costs more."""
MAX_STUCK = 5
"""Maximum number of streams that one poll names: a stolen device token can open hundreds."""

commands = typer.Typer(help="Share one memory among machines: pair, send, fetch, check.", invoke_without_command=True)


@commands.callback()
def relay(context: typer.Context) -> None:
    """Share one memory among machines: pair, send, fetch, check."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


commands.command("pair", short_help="Let another machine join this home.")(relay_pairing.pair)
commands.command("join", short_help="Join a home (on a device).")(relay_pairing.join)
commands.command("status", short_help="Show what arrived, what waits, what was refused.")(relay_status.status)


# ------------------------------------------------------------------------------------------------- fetch and deliver


@commands.command("poll", short_help="Fetch what the devices sent (on home).")
def poll(
    watch: Annotated[bool, flag("Keep running, and fetch what devices send at once.", "--watch")] = False,
    install_timer: Annotated[bool, flag("Fetch every 2 minutes from now on.", "--install-timer")] = False,
    remove_timer: RemoveTimer = False,
    dry_run: TimerDryRun = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Fetch what the devices sent, and confirm it (on the home machine)."""
    from crystal.app.sync.home import changed_here, poll_relay
    from crystal.cli.timer import change_timer
    from crystal.install.timer import POLL

    if changes_timer(install=install_timer, remove=remove_timer, dry_run=dry_run):
        if install_timer:
            _require(this_config().role, "home", "crystal sync --install-timer")
        change_timer(install=install_timer, dry_run=dry_run, schedules=(POLL,))
        return
    with open_kept_machine() as machine:
        _require(machine.config.role, "home", "crystal relay sync")
        named: set[str] = set()

        def step(client: RelayClient) -> None:
            outcome = poll_relay(machine, client)
            if outcome.report.blobs or outcome.problems:
                _say_poll(outcome, quiet=quiet, as_json=as_json)
            _say_stuck(machine, named)

        if watch:
            _watch(machine, step, is_due=changed_here(machine.store), pause=POLL_PAUSE)
            return
        _say_poll(poll_relay(machine), quiet=quiet, as_json=as_json)
        code = _say_stuck(machine, named)
    if code:
        raise typer.Exit(code)


def _say_poll(outcome: PollOutcome, *, quiet: bool, as_json: bool) -> None:
    report = outcome.report
    counts = json_row(report, "blobs", "turns", "chunks", "repeated", "waiting", "stuck")
    told = {**counts, "told": outcome.told, "warnings": [one_line(problem) for problem in outcome.problems]}
    taken = f"{count_words(report.blobs, 'blob')} taken: {count_words(report.turns, 'turn')}"
    answer(told, [] if quiet else [taken if report.blobs else "nothing new"], as_json=as_json)
    sys.stdout.flush()
    warn(*outcome.problems)


def _say_stuck(machine: Machine, named: set[str]) -> int:
    """Print the streams that need a person, each once according to ``named``. Return the exit code."""
    stuck = [one for one in stream_states(machine.store) if one.is_stuck]
    ids = short_ids([one.known.stream for one in stuck])
    words = [
        f"{one_line(one.device or 'an unknown sender')}, stream {ids[one.known.stream]}:"
        f" {one_line(one.known.detail or one.known.state)}"
        for one in stuck
    ]
    new = [one for one in words if one not in named]
    warn(*new[:MAX_STUCK], *([f"and {len(new) - MAX_STUCK} more streams"] if len(new) > MAX_STUCK else []))
    if new:
        hint("see crystal relay status")
    named.update(new)
    return relay_status.code_of_streams(stuck)


@commands.command("sync", short_help="Send what waits to home (on a device).")
def sync(
    watch: Annotated[bool, flag("Keep running, and send and fetch at once.", "--watch")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Send what waits to home, and fetch what home has published (on a device)."""
    from crystal.app.sync.device import BUSY, deliver_relay

    with open_kept_machine() as machine:
        _require(machine.config.role, "device", "crystal relay poll")

        def step(client: RelayClient) -> None:
            report = deliver_relay(machine, client, skip_delay=True)
            if report.sent or report.heard or report.noticed:
                _say_delivery(machine, report, quiet=quiet, as_json=as_json)
            if report.problem not in (None, BUSY):
                raise UnavailableError(report.problem or "")

        if watch:
            _watch(machine, step, is_due=lambda: bool(backlog(machine.store).unsent), pause=SYNC_PAUSE)
            return
        report = deliver_relay(machine, skip_delay=True)
        _say_delivery(machine, report, quiet=quiet, as_json=as_json)
    if report.problem:
        note(report.problem, kind="error")
        if report.hint:
            hint(report.hint)
        raise typer.Exit(report.exit_code or 4)


def _say_delivery(machine: Machine, report: DeliveryReport, *, quiet: bool, as_json: bool) -> None:
    waiting = backlog(machine.store).blobs
    noticed = [one_line(words) for words in report.noticed]
    problem = None if report.problem is None else one_line(report.problem)
    counts = json_row(report, "sent", "sent_bytes", "heard")
    sent = f"{count_words(report.sent, 'blob')} sent, {size_words(report.sent_bytes)}; " if report.sent else ""
    done = "nothing waits" if report.problem else "home has everything"
    left = f"{count_words(waiting, 'blob')} not confirmed by home yet" if waiting else done
    told = {**counts, "waiting": waiting, "problem": problem, "notes": noticed}
    answer(told, [] if quiet else [sent + left], as_json=as_json)
    sys.stdout.flush()
    note(*noticed)


def _watch(machine: Machine, step: Callable[[RelayClient], None], *, is_due: Callable[[], bool], pause: float) -> None:
    """Run ``step`` whenever there is work, until Ctrl-C; an outage is reported once."""
    from crystal.app.sync.relay_news import RelayNews, watch

    told = ""
    home = home_peer(machine.store)
    own_prefix = None if home is None else home.up_prefix
    with relay_client(machine) as client, RelayNews(client, own_prefix) as news:
        for problem in watch(lambda: step(client), news.came, is_due=is_due, pause=pause):
            words = "" if problem is None else problem.message
            if words and words != told:
                warn(f"{words}; trying again")
            elif told and not words:
                note("the relay answers again")
            told = words


def _require(own: str, role: str, other: str) -> None:
    if own == role:
        return
    if own == "standalone":
        hint = "crystal init --role home --relay URL" if role == "home" else "crystal relay join"
        raise NotConfiguredError("this machine has no relay", hint=hint)
    raise NotConfiguredError(f"this machine is {'a device' if own == 'device' else 'the home'}", hint=f"run: {other}")


# ---------------------------------------------------------------------------------------------------------- skipping


@commands.command("skip", short_help="Skip a blob that home cannot accept.")
def skip(
    device: Annotated[str, argument("The device, by name.", show_default=False)],
    seq: Annotated[int, argument("The number of the blob.", show_default=False)],
    stream: Annotated[str | None, option("Which of its streams, if several are stuck.", "HEX")] = None,
    yes: Yes = False,
) -> None:
    """Skip a blob that home cannot accept. Its content is lost for good; crystal records the skip."""
    with open_kept_machine() as machine:
        _require(machine.config.role, "home", "crystal relay sync")
        peer, known = plan_skip(machine, device, seq, stream)
        name = one_line(peer.name)
        lost = f"blob {seq} of {name} will be lost for good ({one_line(known.detail or 'not here yet')})"
        confirm("skip it for good?", yes=yes, consequence=lost)
        left = skip_over(machine, known)
    after = f"; {count_words(left, 'number')} after it" if left else ""
    say(f"skipped blob {seq} of {name}; the gap is recorded{after}")
    say("continue with: crystal relay poll")


@commands.command("purge", short_help="Delete the counts of refused blobs.")
def purge(
    device: Annotated[str | None, option("Only those of this machine, by name.", "NAME")] = None,
    yes: Yes = False,
) -> None:
    """Delete the counts of refused blobs. Nothing that home accepted is deleted."""
    with open_kept_machine() as machine:
        counts = [one for _, one in read_refused(machine.store, device)]
        if not counts:
            say("no blobs were refused")
            return
        blobs = count_words(sum(one.blobs for one in counts), "refused blob")
        waits = "genuine ones still wait at the relay or on their device"
        confirm("delete the counts?", yes=yes, consequence=f"{blobs}; {waits}")
        purge_refused(machine, device)
    say(f"deleted: the count of {blobs}")


# ------------------------------------------------------------------------------------------------------------ the key


@commands.command("key", short_help="Show where the key is kept; print or read the paper key.")
def key(
    paper: Annotated[bool, flag("Show the root as 24 words, to write down.", "--paper")] = False,
    restore: Annotated[bool, flag("Read the 24 words from standard input.", "--restore")] = False,
    replace: Annotated[
        bool, flag("With --restore: replace an existing key; crystal keeps a backup.", "--replace")
    ] = False,
    yes: Annotated[bool, flag("With --paper: do not ask.", "--yes", "-y")] = False,
    as_json: AsJson = False,
) -> None:
    """Show where the relay's key is kept, and its id, never the key itself."""
    if paper and restore:
        raise UsageError("--paper and --restore do not go together", hint="give one of them")
    if restore:
        with open_machine() as machine:
            _restore(machine, over=replace)
        return
    with open_reader() as machine:
        if paper:
            _paper(machine, yes=yes)
        else:
            _describe(machine, as_json=as_json)


def _describe(machine: Machine, *, as_json: bool) -> None:
    places = key_places(machine)
    found = places.read_key()
    key, ident = found.key, _key_id(found.key)
    facts: dict[str, Any] = {"place": places.place_of(KEY), "source": found.source, "kind": key.kind, "id": ident}
    facts |= {**json_row(key, "device_id", "generation"), "note": found.note}
    what = "root: it opens everything" if key.kind == "root" else f"of this device, generation {key.generation}"
    rows = (("kept in", found.source), ("kind", what), ("key id", ident))
    lines = (f"{name:<8} {one_line(words)}" for name, words in rows)
    answer(facts, lines, as_json=as_json, notes=filter(None, [found.note]))


def _key_id(key: RelayKey) -> str:
    """Return an id that distinguishes keys and reveals nothing else.

    For a device's key this is the id in its blobs; for a root, a prefix of the same kind.
    """
    if key.kind == "root":
        return shared_prefix(key.secret, bytes(16), "down").hex()
    return link_keys(key.secret, "up").key_id.hex()


def _paper(machine: Machine, *, yes: bool) -> None:
    from crystal.sync.keys.word_codes import paper_words

    root = relay_keys(machine).root
    if machine.config.role == "device":
        raise NotConfiguredError("this machine is a device", hint="run this on the home machine")
    warning = "anyone who has these words can read everything that is sent over the relay"
    confirm("show the root key?", yes=yes, consequence=warning)
    words = paper_words(root)
    for at in range(0, len(words), 4):
        say("  ".join(f"{at + number:>2} {word:<8}" for number, word in enumerate(words[at : at + 4], 1)).rstrip())
    say("to restore it: crystal relay key --restore", stream=sys.stderr)


def _restore(machine: Machine, *, over: bool) -> None:
    from crystal.sync.keys.word_codes import parse_paper

    if machine.config.role == "device":
        hint = "to become home with the paper key: crystal promote --paper-key"
        raise NotConfiguredError("this machine is a device, and the root belongs to home", hint=hint)
    restored = RelayKey("root", parse_paper(relay_pairing.read_all("the 24 words, then an empty line: ")))
    written = key_places(machine).write_key(restored, replace=over)
    say(f"the root key is in {one_line(written.source)}, key id {_key_id(restored)}")
    if written.backup:
        note(f"the key that was there is in {written.backup}")
