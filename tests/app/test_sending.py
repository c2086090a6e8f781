"""What models elsewhere are sent: not a byte of what is private, isolated or forgotten by now, whoever sends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from crystal.app.background import enrich, write_summaries_again
from crystal.app.capture_engine import make_capture
from crystal.app.context import Machine, open_machine
from crystal.app.import_past import import_sessions, plan_import
from crystal.app.memories import remember
from crystal.app.model_texts import SendingRule, count_kept_here
from crystal.app.models import ModelChoice, fill_now
from crystal.app.recall import recall_here
from crystal.app.reflect import reflect
from crystal.app.search import prepare_search
from crystal.app.sources import add_source, sync_sources
from crystal.embedding.pending import EmbeddingClock, embed_pending
from crystal.errors import ModelUnavailableError, UnavailableError
from crystal.evaluate.trial import Size
from crystal.model.recall import Filters
from crystal.provider_http import post
from crystal.search.engine import search
from crystal.store.capture.privacy import add_private_lines, open_mark
from crystal.store.forget.forgetting import add_tombstones, make_tombstone
from crystal.store.search.trials import Sampled
from tests.reflect.test_reflect import keep_up
from tests.support.capture_machine import NOW, line
from tests.support.chat_server import CARD
from tests.support.command import crystal
from tests.support.embedding_store import Dice
from tests.support.forgetting_machine import Desk
from tests.support.providers_server import KEY, Providers, serve_providers

OPAL = "/home/dev/opal"
SHARED, OPAL_LINE = (f"{number}1111111-1111-4111-8111-111111111111" for number in (1, 2))
IS_LOOPBACK = post.is_loopback
LARGE = ModelChoice("openai", "text-embedding-3-large")
SAID = (
    "We always use the {0} vault for the stones of hall {1}. In the {0} vault everything is kept behind nine doors, and"
    " the warden counts every stone at night. The {0} warden of hall {1} signs the register before the lamps go out."
)


def said(name: str, count: int, cwd: str = "/home/dev/quartz") -> list[bytes]:
    """Lines about a stone, with ids by which a fork repeats them."""
    return [
        line(SAID.format(name, at), role=("user", "assistant")[at % 2], at=NOW + at, cwd=cwd, ident=f"{name}-{at:04d}")
        for at in range(count)
    ]


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Iterator[Providers]:
    """A server on loopback that counts as a provider elsewhere, with everything that it was sent."""
    monkeypatch.setattr(post, "is_loopback", lambda _: False)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serve_providers() as server:
        server.reply = lambda _: json.dumps(CARD)
        yield server


@pytest.fixture
def memory(home: Path, away: Providers) -> Providers:
    """A session about quartz, one about opal in another folder, a fork of that one, and a memory and a file of each."""
    folder = home / ".claude" / "projects" / "p"
    folder.mkdir(parents=True)
    opal = said("opal", 8, OPAL)
    sessions = {"quartz": said("quartz", 24), "opal": opal, "fork": [*opal, line("Go on here.", at=NOW + 99)]}
    for session, lines in sessions.items():
        (folder / f"{session}.jsonl").write_bytes(b"".join(lines))
    settings = {f"{table}.{name}": value for table in ("embedding", "summary", "deep")
                for name, value in (("provider", "openai"), ("base_url", away.openai))}  # fmt: skip
    settings |= {"summary.consent": "true", "deep.consent": "true", "summary.mode": "llm", "reflect.extractor": "model"}
    for key, value in settings.items():
        assert crystal("config", "set", key, value).code == 0
    with open_machine() as machine:
        import_sessions(machine, plan_import(machine, [], None), lambda _: None)
    return away


def senders(machine: Machine) -> dict[str, Callable[[], object]]:
    """Everything that sends text of the memory to a model, by the end of the address that it asks."""
    few = Size(questions=5, turns=100, seconds=60)

    def after(sql: str, ask: Callable[[], object]) -> Callable[[], object]:
        return lambda: (machine.store.execute(sql), ask())

    def background() -> object:
        return enrich(machine, budget_seconds=60)

    wait = "UPDATE chunks SET vector_generation = 0 WHERE vector_generation > 0"
    deep = prepare_search(machine, "warden vault register", 30, Filters(), deep=True)
    return {
        "the reflector: chat/completions": lambda: reflect(machine),
        "vectors: embeddings": background,
        "summaries: chat/completions": after("UPDATE sessions SET summarized_turn = 0", background),
        "summaries again: chat/completions": after(
            "UPDATE sessions SET summary_mode = 'simple'", lambda: write_summaries_again(machine)
        ),
        "vectors at once: embeddings": after(wait, lambda: fill_now(machine, lambda _: None, seconds=60)),
        "a trial: embeddings": lambda: LARGE.try_on_memory(few, lambda *_: None),
        "the test of recall: embeddings": lambda: recall_here(2, 60.0, lambda *_: None),
        "deep search: chat/completions": lambda: search(*deep),
    }


def sent_by_each(server: Providers) -> dict[str, str]:
    sent = {}
    with open_machine() as machine:
        for name, ask in senders(machine).items():
            server.asked.clear()
            ask()
            assert not [one for one in server.asked if not one.path.endswith(("embeddings", "completions"))]
            asked = [one for one in server.asked if one.path.endswith(name.partition(": ")[2])]
            sent[name] = json.dumps([one.body for one in asked])
            assert "opal" not in json.dumps([one.body for one in server.asked]), name
    return sent


def close_session(machine: Machine) -> None:
    open_mark(machine.store, "opal", "session", NOW)


def forget_lines(machine: Machine) -> None:
    """A tombstone that is committed; the rows are still there."""
    with machine.store.transaction():
        add_private_lines(machine.store, [f"opal-{at:04d}" for at in range(8)])


KINDS: dict[str, Sequence[str] | Callable[[Machine], None]] = {
    "private project": ("private.projects", OPAL),
    "private session": ("private.sessions", "opal"),
    "isolated project": ("isolated.projects", "/home/dev/op*"),
    "private from now on": close_session,
    "forgotten while queued": forget_lines,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_nobody_is_sent_what_is_kept_here_by_now(memory: Providers, kind: str) -> None:
    change = KINDS[kind]
    if callable(change):
        with open_machine() as machine:
            change(machine)
    else:
        assert crystal("config", "set", *change).code == 0
    assert [name for name, text in sent_by_each(memory).items() if "quartz" not in text] == []


@pytest.mark.slow
def test_a_provider_on_this_machine_is_sent_everything(memory: Providers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(post, "is_loopback", IS_LOOPBACK)
    assert crystal("config", "set", "private.projects", OPAL).code == 0
    with open_machine() as machine:
        enrich(machine, budget_seconds=60)
        assert count_kept_here(machine) == 0
    for name in ("embeddings", "completions"):
        assert "opal" in json.dumps([one.body for one in memory.asked if one.path.endswith(name)]), name


@pytest.mark.slow
def test_what_is_kept_here_is_found_by_its_words_and_follows_once_it_is_private_no_more(memory: Providers) -> None:
    assert crystal("config", "set", "private.projects", OPAL).code == 0
    assert crystal("sync").code == 0
    assert "8 private or isolated chunks are not sent to openai; only keywords find them" in crystal("doctor").out
    with open_machine() as machine:
        hits = search(*prepare_search(machine, "opal", 9, Filters())).hits
    ranks = [hit.ranks for hit in hits if "opal" in hit.text]
    assert ranks
    assert all(("keywords" in one, "vectors" in one) == (True, False) for one in ranks)
    assert "waiting for" not in crystal("status").out
    crystal("config", "unset", "private.projects")
    memory.asked.clear()
    assert crystal("sync").code == 0
    asked = json.dumps([one.body for one in memory.asked])
    assert ("opal" in asked, "quartz" in asked) == (True, False)
    assert "all vectors are made" in crystal("doctor").out


# ------------------------------------------------------------------------------------------------------- the rule


def allowed(machine: Machine) -> set[str]:
    """The first word of each text that a model elsewhere may be sent."""
    rule = SendingRule(machine, is_here=False)
    texts = dict(machine.store.rows("SELECT id, text FROM chunks"))
    return {texts[ident].split()[0] for ident in rule.sendable([*texts, 10_000])}


ALL = {"Plain", "Opal", "Shared", "Fork", "Everywhere", "Here", "Told", "Lost", "File"}
SETTINGS: list[tuple[dict[str, object], set[str]]] = [
    ({}, set()),
    ({"private.projects": [OPAL]}, {"Opal", "Here", "Told", "Lost"}),
    ({"private.sessions": ["opal"]}, {"Opal", "Shared", "Told"}),
    ({"private.sessions": ["fork"]}, {"Fork", "Shared"}),
    ({"isolated.projects": ["/home/dev/op*"]}, {"Opal", "Shared", "Here", "Told"}),
    ({"isolated.projects": ["*/notes"]}, {"File"}),
    ({"agents.claude-code.isolated": True}, {"Plain", "Opal", "Shared", "Fork", "Told"}),
    ({"private.projects": ["*/notes"]}, {"File", "Lost"}),
]
"""Settings, and the texts that they keep here; where a folder is private, so is what has an unknown one."""


def test_each_kind_of_text_is_judged_by_all_of_its_places(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    (desk.home / "notes").mkdir()
    (desk.home / "notes" / "a.md").write_text("File of stones.\n")
    shared = line("Shared is what a fork has, too.", at=NOW, ident=SHARED)
    with desk.open() as machine:
        make_capture(machine).meet()
        desk.say("plain", line("Plain words.", at=NOW))
        desk.say("opal", line("Opal words.", at=NOW, cwd=OPAL), shared)
        keep_up(machine)
        desk.say("fork", shared, line("Fork words.", at=NOW + 1))
        keep_up(machine)
        for text, more in (("Everywhere", {}), ("Here", {"project": "opal"}), ("Told", {"session": "opal"}),
                           ("Lost", {"session": "gone"})):  # fmt: skip
            remember(machine, f"{text} is a memory.", **more)
        add_source(machine, desk.home / "notes")
        sync_sources(machine)
        for settings, kept in SETTINGS:
            for key, value in settings.items():
                desk.set(key, value)
            assert allowed(machine) == ALL - kept, settings  # in a process that runs already
            for key in settings:
                desk.set(key, None)
        with machine.store.transaction():
            add_private_lines(machine.store, [SHARED])
            here = machine.store.value("SELECT uid FROM memories WHERE text LIKE 'Here%'")
            add_tombstones(machine.store, [make_tombstone("memory", {"memories": [here]}, None, NOW, "desk")], NOW)
        assert allowed(machine) == ALL - {"Shared", "Here"}
        open_mark(machine.store, "opal", "session", NOW)
        assert allowed(machine) == ALL - {"Shared", "Here", "Opal", "Told"}
        open_mark(machine.store, None, "off", NOW)
        assert allowed(machine) == set()


def test_what_is_forgotten_while_a_request_waits_is_in_no_later_one(tmp_path: Path) -> None:
    gone = {"Opal words."}

    def fail(texts: Sequence[str]) -> None:
        if gone & set(texts):
            with machine.store.transaction():
                add_private_lines(machine.store, [OPAL_LINE])
            raise ModelUnavailableError("it is busy")

    dice = Dice(fail=fail)
    desk = Desk(tmp_path)
    with desk.open() as machine:
        make_capture(machine).meet()
        desk.say("s1", line("Plain words.", at=NOW), line("Opal words.", at=NOW, ident=OPAL_LINE))
        keep_up(machine)
        rule = SendingRule(machine, is_here=False)
        watch = EmbeddingClock(lambda: 0.0, lambda _: None)
        report = embed_pending(machine.store, dice, now=NOW, may_send=rule.sendable, watch=watch)
        assert (report.embedded, report.left, report.problem) == (1, 0, None)
        assert dice.asked[1:] == [["Plain words."]]
        sample = [Sampled(ident, "", "", "user", "s1", NOW) for (ident,) in machine.store.rows("SELECT id FROM chunks")]
        with pytest.raises(UnavailableError, match="forgotten or became private"):
            rule.guard(dice, sample).embed_query("which words?")
        assert rule.guard(dice, rule.sendable_sample(sample)).embed_query("which words?")
