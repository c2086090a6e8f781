"""The checks of ``crystal doctor``: each one reports its state and, if there is a problem, the next step."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from crystal.app import status
from crystal.app.agents import AgentFiles, deleting_agents, describe_cleanup, look_at_files, unfinished_lines
from crystal.app.capture_state import capture_state, is_meant, unusable_lock
from crystal.app.context import Machine, damage_explained, open_reader, this_config
from crystal.app.mirror import open_mirror
from crystal.app.model_texts import count_kept_here
from crystal.app.open_store import archive_names, describe_link, links_to
from crystal.app.transcript_formats import describe_formats
from crystal.app.watcher import NOT_WATCHING, describe_watcher, watcher_state
from crystal.capture.drain import FIXES
from crystal.config.file_access import way_in
from crystal.config.harnesses import CLAUDE_CODE, HARNESSES
from crystal.config.packages import install_command
from crystal.config.paths import refused
from crystal.config.providers import EMBEDDING_PROVIDERS, ProviderKind, needs_key
from crystal.config.register import left_out_folders
from crystal.config.table import Config
from crystal.credentials.api_keys import key_for, variables_of
from crystal.errors import CrystalError
from crystal.install.claude_settings.claude_file import SettingsFacts, read_facts
from crystal.install.claude_settings.hooks import wanted
from crystal.install.clients.changes import read_facts as read_client_facts
from crystal.install.clients.known import known_clients
from crystal.install.live.changes import is_live, missing_scripts
from crystal.install.live.mechanisms import MECHANISMS
from crystal.install.setup_plan import found_agents, left_out_agents
from crystal.search.index import folder_of, why_unusable
from crystal.store import Store
from crystal.store.capture.ledger import all_states
from crystal.store.driver import sqlite_vec_library
from crystal.store.health.checks import quick_fault, sqlite_version
from crystal.store.memories.memories import memories_with_other_chunks

Verdict = Literal["ok", "note", "warning", "failure"]
LITTLE_SPACE = 500 << 20
NO_SPACE = 1 << 20
SLOW_HOOK_MS = 500.0
BRIEF_SECONDS = 0.1
"""Time limit for reading the database without ``deep``: enough for every page of a small one."""
LONG_UNHEARD_MS = 7 * 86_400_000
HOOK_REASONS = ("settings", "hooks disabled", "no hook", "program gone")


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check. ``fix`` is the next step if the verdict is not ``ok``."""

    name: str
    verdict: Verdict
    message: str
    fix: str | None = None


def examine(*, deep: bool = False) -> list[Check]:
    """Run all checks, in the order in which a turn passes the parts. A ``CrystalError`` becomes a check, too.

    Args:
        deep: Read every page of the database, however long that takes.
    """
    try:
        config = this_config()
    except CrystalError as error:  # where everything else lies is not known without them
        return [*_python(deep=deep), Check("settings", "failure", error.message, error.hint)]
    parts: dict[str, Callable[[Config], Iterator[Check]]] = {
        "software": lambda config: chain(_python(deep=deep), _packages(config)),
        "hooks": _client,
        "agents": _asking,
        "live": _live,
        "places": _places,
        "privacy": _folders,
        "API key": _keys,
        "memory": lambda _: _memory(deep=deep),
    }
    return [check for name, part in parts.items() for check in _told(name, partial(part, config))]


def _told(name: str, look: Callable[[], Iterator[Check]]) -> Iterator[Check]:
    """Yield the findings of one part; an error while looking is a finding, too."""
    try:
        with damage_explained():
            yield from look()
    except CrystalError as error:
        yield Check(name, "failure", error.message, error.hint)
    except OSError as error:
        told = refused(error, Path(os.fsdecode(error.filename or "?")))
        yield Check(name, "failure", told.message, told.hint)


def _python(*, deep: bool) -> Iterator[Check]:
    from crystal.config.packages import broken_packages  # noqa: PLC0415 - what cannot be imported is a finding

    broken = list(broken_packages(deep=deep))
    for error in broken:
        yield Check("software", "failure", error.message, error.hint)
    if not broken:
        sqlite_vec_library()
        yield Check("software", "ok", f"Python {sys.version.split()[0]}, SQLite {sqlite_version()}, sqlite-vec")


def _places(config: Config) -> Iterator[Check]:
    """Check links among the places where crystal writes, what may not be written, and locks that cannot be used."""
    places = config.places
    for path, target, own in links_to(places):
        if own:
            yield Check("places", "note", f"{path} is a link to {target}, where crystal writes")
        else:
            yield Check("places", "failure", *describe_link(path, target))
    for folder in dict.fromkeys((places.ldm_home, places.data_dir)):
        if os.path.isdir(folder) and not os.access(folder, os.W_OK | os.X_OK):  # noqa: PTH112 - never raises
            fix = way_in(folder) or "mount its disk so that it can be written"
            yield Check("places", "failure", f"nothing is kept: {folder} cannot be written", fix)
    problems = (unusable_lock(path) for path in sorted(places.data_dir.glob("*.lock")))
    yield from (Check("places", "failure", *one) for one in problems if one is not None)


def _packages(config: Config) -> Iterator[Check]:
    row = EMBEDDING_PROVIDERS.get(config.embedding_provider)
    for package in row.packages if row else ():
        if importlib.util.find_spec(package) is None:
            words = f"embedding.provider is {config.embedding_provider}, and the package {package} is not installed"
            yield Check("software", "failure", words, install_command(package))


def _keys(config: Config) -> Iterator[Check]:
    """Check that every provider that needs a key has one; a server of the user's own may have none."""
    strangers = {provider for provider, address in config.asked_providers if address is None}
    for provider in sorted(filter(needs_key, strangers)):
        try:
            key = key_for(config, provider, os.environ)
        except CrystalError as error:
            yield Check("API key", "warning", error.message, error.hint)
            continue
        if key is None:
            variable = variables_of(provider)[1]
            fix = f"set {variable}, or write {variable}=... into {config.places.data_dir / '.env'}"
            yield Check("API key", "warning", f"no key for {provider}", fix)
        else:
            yield Check("API key", "ok", f"for {provider} from {key.source}")


def _client(config: Config) -> Iterator[Check]:
    """Check that Claude Code runs the hook at the end of a turn and at every other event."""
    judged = [one for one in capture_state(config).reasons if one.code in HOOK_REASONS]
    yield from (Check("hooks", "failure", one.message, one.fix) for one in judged)
    for folder in config.places.claude_dirs:
        facts = read_facts(folder / "settings.json")
        if facts.problem is not None:
            continue
        if not is_meant(config, folder, left_out_folders(config.places)):
            words = "captured only when crystal sync runs" if folder.is_dir() else f"not set up: {folder} is not there"
            yield Check("hooks", "note", f"Claude Code is {words}", "crystal init")
        elif not judged:
            yield _hooks_in(facts, [event for event in wanted(config.assist_moments) if not facts.commands.get(event)])


def _hooks_in(facts: SettingsFacts, missing: list[str]) -> Check:
    if facts.plugin and not facts.commands:
        return Check("hooks", "ok", f"installed by the plugin, which is on in {facts.path}")
    broken = Check("hooks", "failure", f"{facts.path}: no hook for {', '.join(missing)}", "crystal init")
    return broken if missing else Check("hooks", "ok", f"installed in {facts.path}")


def _asking(config: Config) -> Iterator[Check]:
    """Check which agents can use this memory, and that the commands they would start exist."""
    known = known_clients(os.environ, Path.home(), config.places)
    plugin = any(read_facts(folder / "settings.json").plugin for folder in config.places.claude_dirs)
    asking = ["Claude Code (plugin)"] if plugin else []
    for name, client in known.items():
        facts = read_client_facts(client)
        fix = f"crystal init --client {name}"
        if facts.problem is not None:
            yield Check("agents", "warning", facts.problem.message, facts.problem.hint)
        elif facts.entry is not None and shutil.which(facts.entry["command"]) is None:
            command = facts.entry["command"]
            yield Check("agents", "failure", f"{client.title} starts {command}, which is gone", fix)
        elif facts.entry is not None:
            asking.append(client.title)
        elif facts.present and not (plugin and name == "claude-code"):
            yield Check("agents", "note", f"{client.title} cannot search this memory itself yet", fix)
    if asking:
        yield Check("agents", "ok", f"{', '.join(asking)} can use this memory")


def _live(config: Config) -> Iterator[Check]:
    """Check which other agents tell of each turn as it ends, that the hook they run exists, and who reads the rest."""
    home, telling, swept, silent = Path.home(), list[str](), list[str](), list[str]()
    left_out = left_out_agents(config.places, os.environ, home)
    for name in (*found_agents(config.places, os.environ, home), *left_out):
        if name not in MECHANISMS:
            silent += [HARNESSES[name].title] if name != CLAUDE_CODE else []
            continue
        gone = missing_scripts(name, os.environ, home)
        if gone:
            words = f"{MECHANISMS[name].title} runs {gone[0]}, which is gone"
            yield Check("live", "failure", words, f"crystal init --agent {name}")
        elif is_live(name, os.environ, home):
            telling.append(MECHANISMS[name].title)
        else:
            (silent if name in left_out else swept).append(MECHANISMS[name].title)
    if telling:
        yield Check("live", "ok", f"{', '.join(telling)}: captured as each turn ends")
    watcher = watcher_state(config.places)
    if watcher.is_running:
        yield Check("live", "ok", describe_watcher([*swept, *silent]))
        return
    if watcher.is_installed:
        yield Check("live", "failure", NOT_WATCHING, "crystal watch --install")
    for titles, fix in ((swept, "crystal init --all"), (silent, "crystal watch --install")):
        if titles:
            yield Check("live", "note", f"{', '.join(titles)}: captured only when crystal sync runs", fix)


def _cleanup(machine: Machine, look: AgentFiles) -> Iterator[Check]:
    """Check that what agents delete by themselves is in the memory."""
    for agent in deleting_agents(machine, look):
        is_kept = agent.percent == 100
        fix = None if is_kept else "crystal backfill" if agent.before else "crystal sync"
        yield Check("clean-up", "ok" if is_kept else "warning", describe_cleanup(agent), fix)


def _formats(look: AgentFiles, now: int) -> Iterator[Check]:
    """Check that the readers know what the agents write, and that no file ends in the middle of a line."""
    for verdict, words, fix in describe_formats(look.formats()):
        yield Check("formats", verdict, words, fix)
    for path, size, kept in unfinished_lines(look, now):
        words = f"{path} ends in an unfinished line of {size:,} bytes; the {kept:,} bytes before it are read"
        yield Check("formats", "note", words)


def _folders(config: Config) -> Iterator[Check]:
    places = config.places
    for path in (places.ldm_home, places.db):
        if path.exists() and os.name != "nt" and path.stat().st_mode & 0o077:
            yield Check("privacy", "warning", f"{path} can be read by others", f"chmod go-rwx {shlex.quote(str(path))}")
            break
    else:
        yield Check("privacy", "ok", f"{places.ldm_home} is readable by you alone")
    folder = next(parent for parent in (places.data_dir, *places.data_dir.parents) if parent.exists())
    free = shutil.disk_usage(folder).free
    if free < NO_SPACE:
        yield Check("disk", "failure", "nothing is kept: no space is left on the memory's disk", "free some space")
    elif free < LITTLE_SPACE:
        yield Check("disk", "warning", f"{free >> 20} MB are free on the memory's disk", "free some space")
    else:
        yield Check("disk", "ok", f"{free / 1e9:.0f} GB are free on the memory's disk")


def _memory(*, deep: bool) -> Iterator[Check]:
    with open_reader() as machine:
        look = look_at_files(machine)
        found = status.gather_health(machine, look)
        yield _store(machine.store, deep=deep)
        yield from _archive(machine)
        yield from _capture(found)
        yield from _hook_speed(found["hook"])
        yield from _cleanup(machine, look)
        yield from _formats(look, machine.now())
        unexamined = status.describe_unexamined(found["redactions"])
        if unexamined:
            yield Check("redaction", "ok", f"{unexamined} ({status.FIND_UNEXAMINED})")
        yield _embedding(machine, status.count_without_vector(machine))
        yield _index(machine.store, "search index")
        with open_mirror(machine.places, machine.config.role) as mirrored:
            if mirrored is not None and mirrored.store is not None:
                yield _index(mirrored.store, "search index of the mirror")
        relay = list(_relay(machine, found["relay"]))
        yield from relay
        known = {check.name for check in relay if check.verdict != "ok"}
        for problem in found["problems"]:
            if problem["part"] in known:
                continue  # the same, seen just now
            yield Check(problem["part"], "warning", problem["message"], FIXES.get(problem["part"], "crystal sync"))


def _index(store: Store, name: str) -> Check:
    """Return whether searches use the derived index, or have to do without it."""
    with store.reading():
        reason = why_unusable(store, folder_of(store.path))
    if reason is None:
        return Check(name, "ok", "searches use it")
    return Check(name, "note", f"search does not use it: {reason}", "crystal sync")


def _relay(machine: Machine, standing: dict[str, Any] | None) -> Iterator[Check]:
    """Check that this machine can reach its relay, and that home was heard recently."""
    if standing is None:
        return
    if standing["role"] == "device" and standing["home"] is None:
        yield Check("relay", "warning", "this device has not joined a home yet", "crystal relay join")
        return
    from crystal.app.relay_links import relay_client, relay_keys  # noqa: PLC0415 - brings cryptography

    try:
        relay_keys(machine)
        with relay_client(machine) as client:
            client.streams()
    except CrystalError as error:
        yield Check("relay", "warning", error.message, error.hint)
    else:
        yield Check("relay", "ok", f"{standing['url']} answers")
    since = standing["outbox"]["since"]
    if since is not None and machine.now() - since > LONG_UNHEARD_MS:
        words = f"{standing['outbox']['blobs']:,} sealed blobs wait for home, the oldest for more than a week"
        yield Check("relay", "warning", words, "on the home machine run: crystal relay poll")


def _store(store: Store, *, deep: bool) -> Check:
    fault, is_whole = quick_fault(store, float("inf") if deep else BRIEF_SECONDS)
    if fault is None and is_whole and (wrong := memories_with_other_chunks(store)):
        fault = f"search does not find {len(wrong)} memories as they are"
    if fault:
        return Check("memory", "failure", f"{store.path}: {fault}", "crystal verify --repair")
    if is_whole:
        return Check("memory", "ok", f"{store.path} is sound")
    words = "opens; crystal checked a part of it (all of it: crystal doctor --deep)"
    return Check("memory", "ok", f"{store.path} {words}")


def _archive(machine: Machine) -> Iterator[Check]:
    """Check that the database names agents and the archive's files as they are; ``crystal verify`` reads these."""
    states = all_states(machine.store)
    for one in states:
        if one.origin.harness not in HARNESSES and one.origin.device == machine.config.device:
            words = f"crystal knows no agent {one.origin.harness!r}, whose session {one.origin.session_id} is"
            yield Check("archive", "failure", words, "crystal verify --repair")
    named = {f"{machine.places.ldm_home}{os.sep}{one.archive}" for one in states if one.archive is not None}
    if wrong := sorted(named ^ set(archive_names(machine.places))):
        words = f"the database and the archive name different files ({len(wrong)}), such as {wrong[0]}"
        yield Check("archive", "failure", words, "crystal verify --repair")


def _capture(found: dict[str, Any]) -> Iterator[Check]:
    capture, lag = found["capture"], found["transcripts"]["lag"]
    failures = [one for one in capture["reasons"] if one["code"] not in HOOK_REASONS]
    yield from (Check("capture", "failure", one["message"], one["fix"]) for one in failures)
    yield from (Check("capture", "note", one["message"], one["fix"]) for one in capture["remarks"])
    if not capture["on"]:
        yield Check("capture", "warning", "capture is off", "crystal --on")
    elif lag and not failures:
        yield Check("capture", "note", f"{lag:,} bytes of transcripts are not captured yet", status.fix_of_lag(found))
    elif not failures:
        yield Check("capture", "ok", "every transcript is captured up to its last line")
    if before := found["ledger"].get("before-crystal", 0):
        fix = "crystal sync" if found["transcripts"]["to_import"] else "crystal backfill"
        yield Check("past", "note", f"{before:,} bytes from before crystal are not imported", fix)


def _hook_speed(hook: dict[str, Any]) -> Iterator[Check]:
    runs = "1 run" if hook["runs"] == 1 else f"{hook['runs']} runs"
    if hook["runs"] and hook["p95_ms"] > SLOW_HOOK_MS:
        fix = "see docs/reference/hook.md, section on speed"
        yield Check("hook speed", "warning", f"p95 is {hook['p95_ms']:.0f} ms over {runs}", fix)
    elif hook["runs"]:
        yield Check("hook speed", "ok", f"p50 {hook['p50_ms']:.0f} ms, p95 {hook['p95_ms']:.0f} ms over {runs}")


def _embedding(machine: Machine, waiting: int) -> Check:
    """Check how complete the vectors of the chosen model are, also while another one still serves."""
    try:
        chosen = machine.embedder()
    except CrystalError as error:
        return Check("embedding", "failure", error.message, error.hint)
    if chosen is None:
        fix = "crystal config set embedding.provider embedded"
        return Check("embedding", "note", "switched off; search is by keywords alone", fix)
    if EMBEDDING_PROVIDERS[chosen.provider].kind is ProviderKind.INSTALLED:
        from crystal.embedding.local.manifest import check_model  # noqa: PLC0415 - seldom used

        try:
            check_model(machine.places.models, chosen.model)
        except CrystalError as error:
            return Check("embedding", "failure", error.message, error.hint)
    if waiting:
        words = "1 chunk waits for its vector" if waiting == 1 else f"{waiting:,} chunks wait for their vectors"
        return Check("embedding", "note", f"{words} ({chosen.provider})", "crystal sync")
    if kept := count_kept_here(machine):
        words = f"{kept:,} private or isolated chunks are not sent to {chosen.provider}; only keywords find them"
        return Check("embedding", "note", words, "crystal models use embedded")
    return Check("embedding", "ok", f"{chosen.provider}; all vectors are made")
