"""The reference pages say what the code does: generated pages are fresh, tables hold what is really there."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import pkgutil
import re
import runpy
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

import crystal
from crystal import Crystal
from crystal.app.progress import ProgressFile
from crystal.cli.app import COMMANDS, load_command
from crystal.errors import CrystalError
from crystal.store import Store
from crystal.store.forget.forgetting import Tombstone, add_tombstones
from crystal.store.sync.inbox import bind, meet_stream
from crystal.store.sync.relay_peers import NewLink, add_peer
from tests.support.capture_machine import line
from tests.support.command import crystal as run
from tests.support.docs_blocks import ROOT
from tests.support.docs_sample import FOLDER, PRICES, TESTS, write_sample
from tests.support.table import each_row

REFERENCE = ROOT / "docs" / "reference"


@each_row("name", ["cli", "database", "mcp"])
def test_a_generated_page_is_what_the_code_says(name: str) -> None:
    render = runpy.run_path(str(ROOT / "docs" / f"generate_{name}.py"))["render"]
    page = (REFERENCE / f"{name}.md").read_text("utf-8")
    assert page == render().rstrip("\n") + "\n", f"run: python docs/generate_{name}.py"


def test_what_the_generator_adds_to_commands_is_of_commands_that_exist() -> None:
    generator = runpy.run_path(str(ROOT / "docs" / "generate_cli.py"))
    assert set(generator["MORE"]) | set(generator["EXITS"]) <= set(COMMANDS)


def test_every_table_and_column_of_a_fresh_store_is_on_the_page(home: Path) -> None:
    import apsw

    run("init", "--yes")
    page = (REFERENCE / "database.md").read_text("utf-8")
    db = apsw.Connection(str(home / ".ldm" / "memory" / "crystal.db"), flags=apsw.SQLITE_OPEN_READONLY)
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    for table in tables:
        if table.startswith(("sqlite_", "chunks_vec_")):
            continue
        section = page.split(f"\n## {table}\n")[1].split("\n## ")[0]
        columns = [row[1] for row in db.execute(f"PRAGMA table_xinfo({table})")]
        assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == columns
    db.close()


# ------------------------------------------------------------------------------------------------------------ JSON


def documented(section: str) -> list[str]:
    """The keys of one section of the JSON page, and the one that every object has."""
    page = (REFERENCE / "json.md").read_text("utf-8")
    table = page.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return ["schema", *re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)]


def keys_of(value: Any, at: str = "") -> Iterator[str]:
    """The paths of everything in a JSON value that holds nothing else."""
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from keys_of(each, f"{at}.{key}" if at else key)
    elif isinstance(value, list):
        for each in value:
            yield from keys_of(each, f"{at}[]")
    elif not isinstance(value, dict):
        yield at


def pattern_of(key: str) -> str:
    return re.sub(r"<[^>]*>", r"[^.]+", re.escape(key).replace(r"\<", "<").replace(r"\>", ">"))


SELDOM = {
    "periods.<period>.usd.<purpose>",
    "problems[].path",
    "problems[].message",
    "api_keys[].last4",
    "embedding.serving",
    "transcripts.unreadable[]",
}
"""What needs a broken disk, a shut folder, a real key or an empty memory."""
SELDOM |= {f"relay.mirror.{key}" for key in ("as_of", "chunks", "size", "complete", "problem")} | {"relay.home"}
"""What needs a home machine that has published: tests/sync/test_roles.py looks at these."""


@pytest.fixture
def memory(home: Path) -> Path:
    """Everything that the JSON can tell of, in one memory."""
    write_sample(home, datetime.now(timezone.utc))
    assert run("init", "--yes").code == 0
    return home


def _add_others(store: Store) -> None:
    """Other machines, a stream of one, and something forgotten of which they have not heard."""
    laptop = add_peer(store, NewLink(b"d" * 16, "device", "laptop", None, 1, b"u" * 8, b"v" * 8), 1)
    bind(store, meet_stream(store, b"v" * 16, 1).id, laptop, 1, "live")
    add_peer(store, NewLink(b"h" * 16, "home", "desktop", None, 1, b"x" * 8, b"y" * 8), 1)
    add_tombstones(store, [Tombstone("f" * 32, "lines", {"lines": []}, None, 1, "laptop")], 1)


def _note_files(note: Callable[..., None], path: Path) -> None:
    """Note what is said of a file with a conflict and a line that cannot be remembered, and of one without a block."""
    run("files", "sync", str(path), "--yes")
    path.write_text(path.read_text().replace("- Dan", "- <private>x</private>\n- Eve"))
    run("remember", "--key", "user_name", "Fay")
    note("crystal files", "files", "sync", "--yes", "--json")
    path.write_bytes(b"\xff")
    note("crystal files", "files", "status", "--json")
    path.unlink()


def _note_what_is_learned(note: Callable[..., None], path: Path) -> None:
    """Something kept, and something newer that replaces it."""
    for name in ("main", "trunk"):
        with path.open("ab") as file:
            file.write(line(f"The main branch is called {name}", at=time.time_ns() // 1_000_000))
        run("sync")
        note("crystal reflect", "reflect", "--now", "--json")
        note("crystal memories review", "memories", "review", "--json")
        found = json.loads(run("memories", "review", "--json").out)["learned"]
        run("memories", "review", "--keep", *[one["memory"]["id"] for one in found])
    note("crystal search", "search", "the main branch is called main", "--json")
    found = json.loads(run("search", "the main branch is called main", "--json").out)["hits"]
    note("crystal show", "show", next(f"h{one['id']}" for one in found if one["validity"]), "--json")
    note("crystal usage", "usage", "--json")
    note("crystal context", "context", "--explain", "--json")
    path.unlink()


def _note_states_of_capture(note: Callable[..., None], memory: Path) -> None:
    """Capturing, with a remark, and not capturing while vectors are made."""
    settings = memory / ".claude" / "settings.json"
    hooks = json.loads(settings.read_text())
    note("crystal status", "status", "--json")
    settings.write_text(json.dumps({**hooks, "enabledPlugins": {"crystal@crystal": True}}))
    note("crystal status", "status", "--json")
    settings.write_text("{}")
    ProgressFile(memory / ".ldm" / "memory")("vectors", 1, 3)
    note("crystal status", "status", "--json")
    settings.write_text(json.dumps(hooks))


@pytest.mark.slow
def test_every_key_of_every_json_output_is_documented_and_the_other_way_round(  # noqa: PLR0915 - a list
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transcripts = memory / ".claude" / "projects" / FOLDER
    seen: dict[str, set[str]] = {}

    def note(section: str, *words: str) -> None:
        done = run(*words)
        assert done.out, done.err
        seen.setdefault(section, set()).update(keys_of(json.loads(done.out)))

    note("crystal backfill --dry-run", "backfill", "--dry-run", "--json")
    note("crystal sync, crystal backfill and crystal import", "backfill", "--json")
    notes = memory / "notes"
    notes.mkdir()
    (notes / "a.md").write_text("# A\n\nthe okapi password=Tr0ub4dor&3xyz!")
    (notes / "b.png").write_bytes(b"\0")
    note("crystal sources", "sources", "add", str(notes), "--json")
    note("crystal sources", "sources", "--json")
    note("crystal status", "status", "--json")
    note("crystal sync, crystal backfill and crystal import", "sync", "--json")
    notes.rename(memory / "away")
    note("crystal sources", "sources", "sync", "--json")
    note("crystal search", "search", "okapi", "--json")
    note("crystal show", "show", f"h{json.loads(run('search', 'okapi', '--json').out)['hits'][0]['id']}", "--json")
    note("crystal sources", "sources", "remove", "notes", "--yes", "--prove", "--json")
    note("crystal search", "search", '"no such words" retry', "--recency", "strong", "--json", "--explain")
    note("crystal show", "show", PRICES, "--json")
    note("crystal sessions", "sessions", "--json")
    note("crystal remember and crystal get", "remember", "--key", "user_name", "Alice", "--json")
    run("remember", "--key", "user_name", "Bob")
    note("crystal remember and crystal get", "get", "--key", "user_name", "--json")
    note("crystal context", "context", "--json")
    (memory / ".ldm/memory/told").mkdir()
    mark = '5 {"candidates": 1, "chosen": ["mem-000000000000"], "omitted": 0, "tokens": 9, "why": {"x": 1}}'
    (memory / f".ldm/memory/told/{PRICES}.startup").write_text(mark)
    note("crystal context", "context", "--log", "--json")
    note("crystal memories", "memories", "--json")
    run("vault", "sync", "--to", str(memory / "vault"))
    notes = memory / "vault" / "memories"
    (notes / "empty.md").touch()
    (notes / "binary.md").write_bytes(b"\0")
    name = next(notes.glob("user-name*"))
    name.write_text(f"{name.read_text()} Carol")
    run("remember", "--key", "user_name", "Dan")
    note("crystal vault", "vault", "sync", "--json")
    note("crystal vault", "vault", "sync", "--to", str(memory / "other vault"), "--json")
    _note_files(note, memory / "AGENTS.md")
    note("crystal memories", "memories", "--project", "nowhere", "--json")
    memory_id = str(json.loads(run("get", "--key", "user_name", "--json").out)["memory"]["id"])
    note("crystal memories history", "memories", "history", memory_id, "--json")
    note("crystal memories history", "show", memory_id, "--json")
    note("crystal sessions", "sessions", "--project", "nowhere", "--json")
    _note_what_is_learned(note, transcripts / "0d0d0d0d-0000-4000-8000-000000000000.jsonl")
    run("--off", "--session", PRICES)
    (transcripts / "0a0a0a0a-0000-4000-8000-000000000000.jsonl").write_text('{"type":"user"}\n')
    note("crystal verify", "verify", "--json")
    (transcripts / "0c0c0c0c-0000-4000-8000-000000000000.jsonl").write_text(
        '{"type":"user","text":"password=hunter2"}\n'
    )
    note("crystal secrets", "secrets", "--json")
    with monkeypatch.context() as older:
        older.setattr("crystal.redact.prefilter._LOOKING", ())
        run("remember", "--key", "runner", "password=hunter2")
    note("crystal secrets", "secrets", "--kept", "--json")
    run("forget", "--key", "runner", "--yes")
    (transcripts / "0c0c0c0c-0000-4000-8000-000000000000.jsonl").unlink()
    (transcripts / f"{TESTS}.jsonl").unlink()
    note("crystal restore", "restore", TESTS, "--json")
    monkeypatch.setenv("CRYSTAL_EMBEDDING_PROVIDER", "voyage")
    note("crystal sync, crystal backfill and crystal import", "sync", "--json")
    (transcripts / "0b0b0b0b-0000-4000-8000-000000000000.jsonl").write_text('{"type":"user"}\n')
    _note_states_of_capture(note, memory)
    with Store.open(memory / ".ldm" / "memory" / "crystal.db") as store, store.transaction():
        _add_others(store)
    monkeypatch.setenv("CRYSTAL_ROLE", "device")
    note("crystal status", "status", "--json")
    monkeypatch.setenv("CRYSTAL_ROLE", "standalone")
    note("crystal verify", "verify", "--repair", "--json")
    note("crystal doctor", "doctor", "--json")
    monkeypatch.setenv("CRYSTAL_KEY_COMMAND", "false")
    monkeypatch.setenv("CRYSTAL_EMBEDING_PROVIDER", "voyage")
    for words in ("config", "models"):
        note(f"crystal {words}", words, "--json")
    note("crystal config get", "config", "get", "search.limit", "--json")
    (memory / ".ldm" / "memory" / "crystal.db").write_text("another program's")
    (memory / ".ldm" / "private.jsonl").unlink()
    note("crystal verify", "verify", "--repair", "--json")

    for section, keys in seen.items():
        patterns = documented(section)
        for key in keys:
            assert any(re.fullmatch(pattern_of(each), key) for each in patterns), f"{section}: {key} is not documented"
        for each in patterns:
            is_there = any(re.fullmatch(pattern_of(each), key) for key in keys)
            assert is_there or each in SELDOM, f"{section}: {each} was never seen"


def test_every_command_with_json_has_a_section() -> None:
    page = (REFERENCE / "json.md").read_text("utf-8")
    for name in COMMANDS:
        command = load_command(name)
        if any("--json" in one.opts for one in command.params):
            assert re.search(rf"^## .*crystal {name}\b", page, re.MULTILINE), f"docs/reference/json.md lacks {name}"


# ---------------------------------------------------------------------------------------------------------- Python


def test_the_python_page_has_every_method_with_its_signature() -> None:
    page = (REFERENCE / "python.md").read_text("utf-8")
    shown = re.findall(r"^### (\w+)\n\n    (.+)$", page, re.MULTILINE)
    methods = {name: one for name, one in vars(Crystal).items() if inspect.isfunction(one) and not name.startswith("_")}
    assert {name for name, _ in shown} == set(methods)
    for name, signature in shown:
        parameters = list(inspect.signature(methods[name]).parameters.values())[1:]
        expected = inspect.Signature(parameters).format() if hasattr(inspect.Signature, "format") else None
        plain = re.sub(r"'", "", str(inspect.signature(methods[name]))).replace("(self, ", "(").replace("(self)", "()")
        assert signature == f"{name}{plain}", expected


def test_the_python_page_has_every_field_of_what_is_returned() -> None:
    from crystal.app.blame import Blame, BlamedLines
    from crystal.app.fixes import FixStep, KnownFix
    from crystal.app.source_list import SourceState
    from crystal.app.sources import RemovedSource
    from crystal.app.work import ChangedFile, KnownCommand
    from crystal.capture.engine import Tally
    from crystal.integrity.proof import Fault, Proof
    from crystal.integrity.restore import Restored
    from crystal.model.recall import FormerMemory, Hit, Remembered
    from crystal.model.sources import FilePlace
    from crystal.search.request import SearchResult
    from crystal.sessions.reading import Conversation, SessionSummary, ShownTurn
    from crystal.sessions.timeline import Day, TimelineEntry
    from crystal.sources.sync import SyncReport
    from crystal.store.sessions.conversations import Message
    from crystal.store.work.queries import RecordedCall

    page = (REFERENCE / "python.md").read_text("utf-8")
    kinds = (SearchResult, Hit, Conversation, ShownTurn, SessionSummary, Remembered, FormerMemory, Tally, Proof, Fault)
    work = (ChangedFile, KnownCommand, KnownFix, FixStep, Blame, BlamedLines, RecordedCall)
    for kind in (
        *kinds,
        *work,
        Restored,
        Message,
        Day,
        TimelineEntry,
        FilePlace,
        SyncReport,
        SourceState,
        RemovedSource,
    ):
        row = next((line for line in page.splitlines() if line.startswith(f"| `{kind.__name__}` |")), "")
        names = re.findall(r"`(\w+)`", row)[1:]
        fields = [*vars(Tally())] if kind is Tally else [field.name for field in dataclasses.fields(kind)]
        assert names[: len(fields)] == fields, kind.__name__


# ------------------------------------------------------------------------------------------------ errors and layout


def error_classes(root: type[CrystalError] = CrystalError) -> Iterator[type[CrystalError]]:
    yield root
    for each in root.__subclasses__():
        yield from error_classes(each)


def test_every_error_is_on_the_page_with_its_exit_code() -> None:
    for found in pkgutil.walk_packages(crystal.__path__, "crystal."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    page = (REFERENCE / "errors.md").read_text("utf-8")
    ours = {each for each in error_classes() if each.__module__.split(".")[0] == "crystal"}
    ours = {each for each in ours if not each.__name__.startswith("_")}
    for each in ours:
        assert re.search(rf"\b{each.__name__} +{each.exit_code}\b", page), f"{each.__name__} {each.exit_code}"
    tree = page.split("```text\n")[1].split("```")[0]
    assert set(re.findall(r"^[│├└─ ]*(\w+) +\d", tree, re.MULTILINE)) == {each.__name__ for each in ours}


@pytest.mark.slow
def test_every_file_that_crystal_makes_is_on_the_layout_page(memory: Path) -> None:
    assert run("backfill").code == 0
    assert run("verify").code == 0
    page = (REFERENCE / "layout.md").read_text("utf-8")
    patterns = [pattern_of(each) for each in re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)]
    for path in sorted((memory / ".ldm").rglob("*")):
        name = path.relative_to(memory / ".ldm").as_posix() + ("/" if path.is_dir() else "")
        assert any(re.fullmatch(each, name) for each in patterns), f"docs/reference/layout.md lacks {name}"
        assert path.stat().st_mode & 0o077 == 0, f"{name} can be read by others"
