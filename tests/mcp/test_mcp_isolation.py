"""What was said in an isolated agent or project: it and the person see it; nothing tells another agent of it."""

from __future__ import annotations

import ast
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from crystal import Crystal
from crystal.app.background import embed_soon
from crystal.app.context import open_machine
from crystal.app.memories import remember
from crystal.app.session_context_content import preview, write_session_contexts
from crystal.config.edit import set_value, unset_value
from crystal.config.load import load_config
from crystal.errors import CrystalError, UsageError
from crystal.mcp.catalog import ALIASES, CONNECTOR, TOOLS
from crystal.mcp.handlers import ClientContext
from crystal.mcp.protocol import McpError
from crystal.search.index import bring_up_to_date
from crystal.store import Store
from crystal.store.isolation import SHADOWS, hide
from tests.support.examples import part_of
from tests.support.mcp_answers import ELSEWHERE, answers, are_those, say
from tests.support.mcp_client import ROOT, Tools
from tests.support.mcp_memory import MINE, SHOP
from tests.support.store_factory import HOUR, NOW, add_turn, chunk_id
from tests.support.table import each_row
from tests.support.work_sessions import ASKED, MISSING, cured

SECRET = "99999999-eeee-4000-8000-000000000009"
COPY = "88888888-dddd-4000-8000-000000000008"
WORDS = ("quokka", "wombatine", "numbats", "/code/bilby", "bilby", "dingo-branch", "potoroo", "codex", SECRET[:8])
"""Said in the isolated agent only: text, answer, title, project, branch, memory, its name, its session."""


@pytest.fixture
def settings(home: Path) -> Path:
    return load_config(os.environ, home).places.config_file


@pytest.fixture
def seen(store: Store) -> Store:
    """What everybody may see."""
    add_turn(store, "Why does the zebra checkout fail?", session=SHOP, ts=NOW - 5 * HOUR)
    add_turn(store, "The zebra clock was skewed.", session=SHOP, ts=NOW - 4 * HOUR, role="assistant")
    return store


class Planted(NamedTuple):
    """A store with something isolated: a hit and a memory of it, an agent that sees it, and agents that do not."""

    store: Store
    hit: str
    memory: str
    own: Tools
    others: list[Tools]


OTHERS = [None, "claude-code", "Codex"]


def plant(store: Store) -> str:
    """Say something in Codex; give the id of the hit."""
    more: dict[str, Any] = {"session": SECRET, "project": "/code/bilby", "branch": "dingo-branch", "harness": "codex"}
    uuid = add_turn(store, "the quokka and the zebra checkout", ts=NOW - 3 * HOUR, title="numbats plan", **more)
    add_turn(store, "wombatine zebra clock was skewed", ts=NOW - 2 * HOUR, role="assistant", **more)
    add_turn(store, "Why does the zebra checkout fail?", ts=NOW - HOUR, **more)  # what another one said too
    cured(store, SECRET, NOW - HOUR, "/code/bilby", "    return quokka(a) + wombatine")
    return str(chunk_id(store, uuid))


SCOPES = {"agents.codex.isolated": "true", "isolated.projects": "/code/bil*"}


@pytest.fixture(params=SCOPES)
def key(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.slow)], ids=["in memory", "with an index"])
def planted(seen: Store, settings: Path, key: str, request: pytest.FixtureRequest) -> Planted:
    set_value(settings, key, SCOPES[key])
    hit = plant(seen)
    is_agent = key.startswith("agents")
    own = ClientContext(agent="codex") if is_agent else ClientContext(folder="/code/bilby")
    others = [ClientContext(agent=one, folder="/code/bilby" if is_agent else "/code/shop") for one in OTHERS]
    others += [] if is_agent else [ClientContext(agent="codex", folder="/code"), ClientContext(agent="codex")]
    memory = Tools(own).data("crystal_remember", text="the potoroo sleeps", key="potoroo")
    if request.param:
        bring_up_to_date(seen, now=NOW)
    return Planted(seen, hit, str(memory["id"]), Tools(own), [*map(Tools, others)])


def asked(hit: str, memory: str) -> Iterator[tuple[str, dict[str, object]]]:
    """Everything that may betray it: each tool, also with names that only the isolated agent has."""
    queries = ("quokka", "zebra checkout", "quok", "wombatines", '"the quokka"', "yesterday", "potoroo", "bilby")
    for query in part_of(queries, 3):
        yield "crystal_search", {"query": query, "around": True, "limit": 50}
        yield "search_memory", {"query": query}
        yield "search", {"query": query}
        yield "memory_search", {"query": query}
    filters: dict[str, str] = {
        "project": "bilby", "session": SECRET[:8], "agent": "codex", "branch": "dingo-branch", "source": "memory",
    }  # fmt: skip
    for name, value in filters.items():
        yield "crystal_search", {"query": "zebra", name: value}
        yield "crystal_search", {"query": "zebra", name: f"{value[:3]}x"}
    for given in part_of(({"id": hit}, {"id": SECRET}, {"id": SECRET[:8]}, {"id": memory}, {"id": memory[:9]}), 3):
        yield "crystal_get", {**given}
        yield "fetch", {**given}
        yield "crystal_forget", {**given}
    yield "crystal_get", {"key": "potoroo"}
    yield "crystal_get", {"id": SHOP, "offset": 0}
    for what in ("messages", "sessions"):
        for more in ({}, {"all": True}, {"project": "bilby"}, {"agent": "codex"}):
            yield "crystal_recent", {"what": what, **more}
    yield "get_recent_conversations", {}
    yield "crystal_timeline", {}
    yield "crystal_timeline", {"project": "bilby", "since": "30d"}
    yield "crystal_blame", {"file": "cart.py"}
    yield from WORK
    yield "crystal_changed", {"since": "30d"}
    yield "crystal_changed", {"session": SECRET[:8]}
    yield "crystal_status", {}
    yield "read_memory", {}
    yield "read_memory", {"scope": "global"}
    yield "crystal_sources_status", {}
    forgotten = ({"query": "quokka"}, {"query": "wombatine"}, {"session": SECRET}, {"session": SECRET[:6]},
                 {"key": "potoroo"}, {"query": "zebra"})  # fmt: skip
    for given in part_of(forgotten, 2):
        yield "crystal_forget", {**given}


WORK: list[tuple[str, dict[str, object]]] = [
    ("crystal_changed", {"since": "2020-01-01", "project": "bilby"}),
    ("crystal_how", {"question": "build the docs with make docs", "all": True}),
    ("crystal_about", {"thing": "cart.py", "project": "bilby"}),
    ("crystal_about", {"thing": "quokka"}),
    ("crystal_fix", {"error": ASKED}),
    ("crystal_fix", {"error": MISSING}),
]
"""Questions about what was done that the isolated agent itself gets an answer to."""


def told_by(tools: Tools, name: str, arguments: dict[str, object]) -> str:
    """Return an answer without what the question itself says."""
    try:
        answer = tools.answer(name, **arguments)
        words = answer.markdown("0") + json.dumps(dict(answer.data))
    except (CrystalError, McpError) as error:
        words = tools.text(name, **arguments) + str(error)
    for value in filter(None, (str(value).strip('"') for value in arguments.values())):
        words = words.replace(value, "")
    return words


def test_no_tool_tells_another_agent_of_it(planted: Planted) -> None:
    called = set()
    for number, (name, arguments) in enumerate(asked(planted.hit, planted.memory)):
        called.add(name)
        told = told_by(planted.others[number % len(planted.others)], name, arguments)
        assert not [word for word in (*WORDS, "cart", "pyyaml") if word in told], (name, arguments, told)
    changing = {"crystal_remember", "save_memory", "write_memory", "crystal_sources_add", "crystal_sources_sync"}
    every = {tool.name for tool in (*TOOLS, *ALIASES, *CONNECTOR)}
    assert called | changing == every, "`asked` must ask each tool that reads"


@each_row("number", range(len(OTHERS)))
def test_no_resource_tells_another_agent_of_it(planted: Planted, number: int) -> None:
    methods, memory = planted.others[number].methods, planted.memory
    listed = json.dumps(methods["resources/list"]({}))
    assert SHOP in listed
    assert not [word for word in (*WORDS, memory) if word in listed]
    for address in (f"crystal://session/{SECRET}", f"crystal://session/{SECRET[:6]}", f"crystal://memory/{memory}",
                    "crystal://memory/potoroo"):  # fmt: skip
        with pytest.raises(McpError) as error:
            methods["resources/read"]({"uri": address})
        unknown = methods, address.replace("9999", "7777").replace(memory, "mem-000000000000").replace("pot", "xot")
        with pytest.raises(McpError) as other:
            unknown[0]["resources/read"]({"uri": unknown[1]})
        assert error.value.code == other.value.code


def test_the_agent_itself_and_the_person_see_it(planted: Planted) -> None:
    store, hit, memory, own, _ = planted
    assert "quokka" in own.text("crystal_search", query="quokka")
    assert "numbats" in own.text("crystal_get", id=SECRET[:8])
    assert "quokka" in own.text("crystal_get", id=hit)
    assert "potoroo sleeps" in own.text("crystal_get", id=memory)
    assert SECRET in json.dumps(own.methods["resources/list"]({}))
    for name, arguments in WORK:
        told = told_by(own, name, arguments)
        assert SECRET[:8] in told, (name, arguments, told)
    store.close()
    with Crystal() as crystal:
        assert any("quokka" in one.text for one in crystal.search("quokka").hits)
        assert any(one.id == memory for one in crystal.memories())


def test_without_the_setting_all_agents_see_it(planted: Planted, settings: Path, key: str) -> None:
    assert unset_value(settings, key)
    assert "quokka" in planted.others[1].text("crystal_search", query="quokka")
    set_value(settings, "agents.codex.isolated", "false")
    assert "quokka" in Tools().text("crystal_search", query="quokka")


def test_nothing_of_it_is_deleted_or_replaced_by_another_agent(planted: Planted) -> None:
    store, hit, memory, own, (_, other, *_) = planted
    token = other.data("crystal_forget", query="zebra checkout")["token"]
    assert other.data("crystal_forget", confirm=token)["is_done"]
    for scope in ({"project": "bilby"}, {"project": "shop"}, {"before": "2100-01-01"}):
        with pytest.raises(UsageError, match="isolated"):
            other.data("crystal_forget", **scope)
    with pytest.raises(UsageError, match="taken"):
        other.data("crystal_remember", text="something else", key="potoroo")
    again = other.data("crystal_remember", text="the potoroo sleeps")
    assert again["id"] != memory
    assert "quokka and the zebra checkout" in own.text("crystal_get", id=hit)
    assert own.data("crystal_get", key="potoroo")["memory"]["text"] == "the potoroo sleeps"
    assert store.value("SELECT count(*) FROM sessions WHERE harness = 'codex'") == 1


def test_the_context_of_another_agent_leaves_it_out(planted: Planted, settings: Path, key: str) -> None:
    planted.store.close()
    is_agent = key.startswith("agents")
    for folder in ["/code/bilby", "/code/shop"] if is_agent else ["/code/shop", "/code"]:
        with open_machine() as machine:
            told = preview(machine, folder)
        assert not [word for word in WORDS if word in f"{told.told}{told.project}"]
    set_value(settings, "context.enabled", "true")
    set_value(settings, "device", "desk")  # contexts are prepared for the folders of this machine
    with open_machine() as machine:
        write_session_contexts(machine)
        found = [json.loads(path.read_text()) for path in (machine.places.data_dir / "context").glob("*.json")]
        ready = {one["cwd"]: json.dumps(one) for one in found if "cwd" in one}
    assert any("zebra" in one for one in ready.values())
    telling = {name for name, one in ready.items() if any(word in one for word in ("quokka", "potoroo", "bilby"))}
    assert telling == (set() if is_agent else {"/code/bilby"})
    unset_value(settings, key)
    with open_machine() as machine:
        assert "potoroo" in str(preview(machine, "/code/bilby").told)


@pytest.mark.slow
@pytest.mark.parametrize("has_index", [False, True])
@pytest.mark.parametrize("seed", [0, 1])
def test_answers_are_those_of_a_memory_without_it(store: Store, settings: Path, seed: int, *, has_index: bool) -> None:
    rng = random.Random(seed)

    def told(session: str, harness: str, count: int) -> None:
        say(store, rng, count, session=session, harness=harness, project=f"/code/{harness}")
        if has_index:
            bring_up_to_date(store, now=NOW)
        with open_machine() as machine:
            embed_soon(machine)

    set_value(settings, "agents.codex.isolated", "true")
    told(SHOP, "claude-code", 12)
    told(COPY, "gemini-cli", 5)
    tools = Tools(ClientContext(agent="claude-code"))
    before = list(answers(tools, seed + 100))
    told(ELSEWHERE, "codex", 17)
    assert list(answers(tools, seed + 100)) == before
    assert not are_those(before, Tools(ClientContext(agent="codex")), seed + 100)


def test_what_a_prompt_asked_to_remember_is_hidden_before_its_session_is_stored(store: Store, settings: Path) -> None:
    """Only Claude Code's hook takes such prompts; a session that was forgotten or is private has no row either."""
    set_value(settings, "agents.claude-code.isolated", "true")
    add_turn(store, "a zebra", session=SECRET, harness="codex", ts=NOW - HOUR)
    with open_machine() as machine:
        kept = remember(machine, "the potoroo sleeps", key="nest", source="prompt", session=MINE)
    other, own = Tools(ClientContext(agent="codex")), Tools(ClientContext(agent="claude-code"))
    assert not [told for told in (other.text("crystal_search", query="potoroo"), other.text("crystal_get", key="nest"))
                if "sleeps" in told]  # fmt: skip
    assert "sleeps" in own.text("crystal_get", id=kept.id)


def test_the_memories_that_came_from_an_isolated_program_are_hidden(store: Store, settings: Path) -> None:
    set_value(settings, "agents.claude-mem.isolated", "true")
    with open_machine() as machine:
        remember(machine, "the potoroo sleeps", key="nest", source="claude-mem")  # as crystal migrate names it
    assert "sleeps" not in Tools(ClientContext(agent="codex")).text("crystal_get", key="nest")


def finds(folder: str | None, query: str) -> bool:
    return query in Tools(ClientContext(agent="codex", folder=folder)).text("crystal_search", query=query)


def test_a_session_that_goes_into_an_isolated_project_is_hidden_whole(seen: Store, settings: Path) -> None:
    set_value(settings, "isolated.projects", "/code/bil*")
    add_turn(seen, "the quokka here", session=SECRET, ts=NOW - HOUR, title="numbats plan")
    assert finds("/code/shop", "quokka")
    add_turn(seen, "the wombat there", session=SECRET, ts=NOW - HOUR, project="/code/bilby")
    assert not finds("/code/shop", "quokka")
    assert not finds(None, "wombat")
    assert "numbats" not in Tools(ClientContext(folder="/code/shop")).text("crystal_recent", what="sessions", all=True)
    assert finds("/code/bilby/src", "quokka")
    assert finds("/code/bilby", "wombat")
    assert not finds("/code/bilbo", "wombat")  # another project of the same pattern


def test_folders_of_an_isolated_repository_elsewhere_belong_to_it(seen: Store, settings: Path) -> None:
    set_value(settings, "isolated.projects", "/code/bilby")
    for session, folder in ((SECRET, "/code/bilby"), (COPY, "/mnt/clone"), (MINE, "/mnt/clone|deep")):
        add_turn(seen, f"the quokka in {folder}", session=session, ts=NOW - HOUR, project=folder)
    seen.execute("UPDATE projects SET remote = 'git@host:bilby' WHERE name IN ('bilby', 'clone')")
    assert not finds("/code/shop", "quokka")
    for folder in ("/code/bilby", "/mnt/clone", "/mnt/clone/deep/er"):
        found = Tools(ClientContext(folder=folder)).data("crystal_search", query="quokka")
        assert len(found["hits"]) == 3, folder


def test_a_project_that_is_new_meanwhile_is_not_seen(seen: Store, settings: Path) -> None:
    set_value(settings, "isolated.projects", "/code/bilby")
    with ClientContext(folder="/code/shop").reader() as reader:
        add_turn(seen, "the quokka", session=SECRET, ts=NOW - HOUR, project="/code/bilby")
        assert reader.store.value("SELECT count(*) FROM turns") == 2
        assert reader.store.value("SELECT count(*) FROM sessions") == 1


# --------------------------------------------------------------------------------------------- that nobody forgets it


def test_every_table_of_conversations_is_shadowed(store: Store) -> None:
    """A new table that names a session, a turn, a transcript or a memory needs a line in SHADOWS, or here with why."""
    without = {
        "sources": "chunks of files",
        "private_marks": "ids and times, read by capture and the person's commands",
        "forgotten_sessions": "names of what is gone",
    }
    tables = [name for (name,) in store.rows("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    telling = {"session", "session_id", "turn", "transcript", "memory", "harness", "chunk"}
    internal = ("relay_", "outbox", "mirror_", "index_", "chunks_vec", "sqlite_")
    for table in tables:
        columns = {row[1] for row in store.rows(f"PRAGMA table_info({table})")}
        if columns & telling and not table.startswith(internal):
            assert (table in SHADOWS) != (table in without), f"{table}: SHADOWS in crystal/store/isolation.py lacks it"


def test_no_module_of_the_server_opens_all_of_the_memory_for_reading() -> None:
    for path in (ROOT / "crystal/mcp").rglob("*.py"):
        names = {one.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)
                 for one in node.names}  # fmt: skip
        assert not names & {"open_reader", "Store", "open_mirror", "plan_forget"}, path


def test_a_memory_in_which_nothing_is_hidden_has_no_views(store: Store) -> None:
    hide(store, None)
    assert not store.rows("SELECT name FROM temp.sqlite_schema")


def test_an_unknown_agent_is_no_setting(settings: Path) -> None:
    with pytest.raises(UsageError, match="no agent 'codx'"):
        set_value(settings, "agents.codx.isolated", "true")
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text("[agents.codx]\nisolated = true\n")
    with pytest.raises(UsageError, match="codx"):
        load_config(os.environ, Path.home())


@pytest.mark.slow
def test_what_came_from_another_machine_is_hidden_too(planted: Planted, tmp_path: Path) -> None:
    """Program and folder of a session travel, the source of a memory too; this machine's setting decides."""
    store, hit, memory, own, (_, tools, *_) = planted
    copy = tmp_path / "mirror.db"
    store.execute("VACUUM INTO ?", (str(copy),))
    with store.transaction():
        for table in ("chunks", "turns", "sessions", "memories"):
            store.execute(f"DELETE FROM {table}")
    add_turn(store, "a zebra of this machine", session=MINE, ts=NOW - HOUR)
    copy.rename(store.path.with_name("mirror.db"))
    assert "The zebra clock was skewed" in tools.text("crystal_search", query="zebra", limit=20)
    for name, arguments in asked(f"m{hit}", memory):
        told = told_by(tools, name, arguments)
        assert not [word for word in WORDS if word in told], (name, arguments, told)
    assert "quokka" in own.text("crystal_search", query="quokka")
