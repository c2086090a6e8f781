"""Implement ``crystal reflect`` (learn from sessions now) and ``crystal memories review`` (review what was learned)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated

import typer

from crystal.app.context import open_machine, open_reader
from crystal.app.reflect import Learned, call_wrong, keep_learned, never_learn, state_of, unreviewed
from crystal.cli.json_output import answer, print_json, record
from crystal.cli.options import AsJson, flag, option
from crystal.cli.render import count_words, look_of, one_line, price, say
from crystal.errors import ChangedMeanwhileError, CrystalError, UnavailableError, UsageError
from crystal.model.recall import Remembered
from crystal.store.memories.learned import ReflectorRun, sessions_to_reflect
from crystal.text.harmless import harmless
from crystal.timewords.parse import ago, clock

MAX_SOURCES = 10
"""Maximum lines that taught a memory, shown on a terminal."""
QUOTE, BEFORE_QUOTE = 160, 33
"""Characters of such a line that are shown, and on a terminal those before them."""


def reflect(
    now: Annotated[bool, flag("Do not wait until reflect.interval is over.", "--now")] = False,
    as_json: AsJson = False,
) -> None:
    """Learn from what was said since the last time. The worker does it by itself; see `crystal memories review`."""
    from crystal.app.background import is_reflection_due
    from crystal.app.reflect import reflect as learn
    from crystal.capture.lock import BUSY_SECONDS, ENRICH_LOCK, await_lock
    from crystal.reflect.by_model import PART
    from crystal.store.problems import find_problem

    with open_machine() as machine:
        if machine.config.reflect_mode == "off":
            raise UsageError("learning is off", hint="crystal config set reflect.mode propose")
        if machine.config.role == "device":
            raise UsageError("home learns, not this device", hint="run crystal reflect on the home machine")
        with await_lock(machine.places.data_dir / ENRICH_LOCK, seconds=BUSY_SECONDS) as held:
            if held is None:
                raise UnavailableError("a worker is busy with the memory", hint="try again in a minute")
            run = learn(machine) if now or is_reflection_due(machine) else ReflectorRun(machine.now())
        waiting, problem = len(unreviewed(machine)), find_problem(machine.store, PART)
        is_read = problem is not None and not sessions_to_reflect(machine.store, 1)
    told = {"run": record(run._asdict()), "unreviewed": waiting, "problem": problem and problem.message}
    answer(told, _run_lines(run, waiting), as_json=as_json)
    if problem is not None:
        state = "the rules learned in place of the model" if is_read else "sessions wait for a model"
        why, is_capped = f"{state}: {problem.message}", problem.message.startswith("the daily cap")
        fix = "wait until tomorrow, or raise reflect.daily_cap_usd" if is_capped else "check the model: crystal doctor"
        raise UnavailableError(why, hint=f"{fix}; then: crystal reflect --now")


def asked_lines(run: ReflectorRun) -> list[str]:
    """Return one line with the number of questions to a model; no line if there were none."""
    useless = f"; {count_words(run.unusable, 'answer')} of no use" if run.unusable else ""
    return [f"a model was asked {count_words(run.asked, 'time')}, {price(run.usd)}{useless}"] if run.asked else []


def _run_lines(run: ReflectorRun, waiting: int) -> Iterator[str]:
    found = f"{run.inserted:,} learned, {run.confirmed:,} confirmed, {run.skipped:,} left out"
    yield f"new turns: {run.turns:,}; {found}" if run.turns else "nothing new was read"
    yield from asked_lines(run)
    if waiting:
        yield f"{waiting} to review: crystal memories review"


def review(
    keep: Annotated[list[str] | None, option("Keep this memory.", "ID")] = None,
    wrong: Annotated[list[str] | None, option("Hide it: it is wrong.", "ID")] = None,
    never: Annotated[list[str] | None, option("Hide it, and never learn it again.", "ID")] = None,
    as_json: AsJson = False,
) -> None:
    """Review what was learned: on a terminal one key each, else a list. The options act by id and may be repeated."""
    named = {"k": keep or [], "w": wrong or [], "n": never or []}
    if any(named.values()):
        _judge(named, as_json=as_json)
        return
    with open_reader() as machine:
        found, moment = unreviewed(machine), machine.now()
    if as_json:
        print_json({"learned": [as_record(one) for one in found]})
    elif not found:
        say("nothing to review", stream=sys.stderr)
    elif sys.stdin.isatty() and sys.stdout.isatty():
        _ask_each(found, moment)
    else:
        for one in found:
            say(*learned_lines(one, moment), "")


VERDICTS: dict[str, tuple[str, Callable[..., Remembered]]] = {
    "k": ("kept", keep_learned), "w": ("wrong", call_wrong), "n": ("never learned again", never_learn),
}  # fmt: skip
"""The verdict for each key: a word and a function."""


def _judge(named: dict[str, list[str]], *, as_json: bool) -> None:
    with open_machine() as machine:
        done = {what: [act(machine, ident) for ident in named[key]] for key, (what, act) in VERDICTS.items()}
    found = {what.replace(" ", "_"): record(ones) for what, ones in done.items()}
    answer(found, (f"{what}: {one.id}" for what, ones in done.items() for one in ones), as_json=as_json)


def _ask_each(found: list[Learned], moment: int) -> None:
    for at, one in enumerate(found, 1):
        keys = f"[{at} of {len(found)}] k keep · e edit · w wrong · n never again · s skip · q quit"
        say(*learned_lines(one, moment), keys)
        what = None
        while what is None:
            what = _answer(one.memory)
        if what == "q":
            return
        say(what, "")


def _answer(memory: Remembered) -> str | None:
    """Execute the next key and return a word for it; None for an unknown key or a failure."""
    key = typer.getchar().lower()
    if key not in tuple("kewn"):
        return {"s": "skipped", "q": "q"}.get(key)
    words = [typer.prompt("the text", default=memory.text)] if key == "e" else []
    what, act = VERDICTS["k" if key == "e" else key]
    try:
        with open_machine() as machine:
            act(machine, memory.id, *words, seen=memory.updated_at)
    except ChangedMeanwhileError as error:
        return f"skipped: {error.message}"
    except CrystalError as error:
        say(f"crystal: error: {error.message}", "press a key again", stream=sys.stderr)
        return None
    return what


def as_record(one: Learned) -> dict[str, object]:
    """Return a learned memory for JSON."""
    facts: dict[str, object] = record(one)
    facts["memory"] = facts.pop("from")
    return facts


def learned_lines(one: Learned, moment: int) -> Iterable[str]:
    """Yield the lines for a learned memory: its confidence, its text and the words that taught it."""
    look, memory = look_of(sys.stdout), one.memory
    where = "everywhere" if memory.project is None else f"project {one_line(memory.project)}"
    folder = "" if memory.cwd in (None, memory.project) else f", in {one_line(memory.cwd)}"
    times = "once" if one.confirmed == 1 else f"{one.confirmed} times"
    yield look.name(memory.id) + look.dim(f" · {one.kind} · {where} · {state_of(memory)}")
    yield look.dim(f"  {100 * one.confidence:.0f} % sure, seen {times}, last {ago(one.last_at, moment)}{folder}")
    yield f"  {harmless(memory.text)}"
    for other in one.replaces:
        yield look.dim(f"  replaces {other}")
    if one.replaced_at is not None:
        yield look.dim(f"  contradicted {clock(one.replaced_at, moment)} by {one.replaced_by}")
    most = min(QUOTE, max(20, look.width - BEFORE_QUOTE)) if look.is_terminal else QUOTE
    for said in one.sources[:MAX_SOURCES]:
        text = "(not stored any more)" if said.is_gone else one_line(said.text)[:most]
        role = said.role.replace("_", " ") or "a line"
        yield look.dim(f"  from {role} in {said.session_id[:8]}: {harmless(text)}")
    if more := len(one.sources[MAX_SOURCES:]):
        yield look.dim(f"  and {count_words(more, 'line')} more: crystal memories show {memory.id} --json")
