"""A token for one project: all answers are those of a memory that has nothing else."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from crystal.app.background import embed_soon
from crystal.app.context import default_paths, open_machine, open_reader_for
from crystal.app.memories import remember
from crystal.app.sources import add_source, sync_sources
from crystal.credentials.access import read_grants
from crystal.errors import UsageError
from crystal.mcp.catalog import ALIASES, CONNECTOR, TOOLS
from crystal.mcp.handlers import ClientContext
from crystal.mcp.protocol import McpError
from crystal.model.granted import GrantedProject
from crystal.search.index import bring_up_to_date
from crystal.store import Store
from crystal.store.isolation import FILE_SHADOWS, SHADOWS
from tests.support.command import crystal
from tests.support.mcp_answers import ELSEWHERE, LOST, WORDS, answers, are_those, queries, say
from tests.support.mcp_client import Tools, granted
from tests.support.mcp_memory import API, MINE, SHOP
from tests.support.remote_client import token_for
from tests.support.store_factory import HOUR, NOW, add_turn


def _files(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "page.md").write_text(f"# {text}\n\n{' '.join(WORDS)}\n")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("has_index", [False, True])
def test_answers_are_those_of_a_memory_with_nothing_else(store: Store, tmp_path: Path, *, has_index: bool) -> None:
    rng = random.Random(7)

    def settle() -> None:
        if has_index:
            bring_up_to_date(store, now=NOW)
        with open_machine() as machine:
            embed_soon(machine)

    say(store, rng, 12, session=SHOP)
    with open_machine() as machine:
        remember(machine, "albatross sleeps in the shop", project="shop")
    settle()
    tools = Tools(ClientContext(projects=granted("shop")))
    before = list(answers(tools, 100))
    say(
        store,
        rng,
        14,
        session=ELSEWHERE,
        project="/code/attic",
        branch="dusk",
        harness="codex",
        device="far",
        title="calinik",
    )
    say(store, rng, 5, session=MINE)  # begins in the shop, and goes into the attic: it is hidden as a whole
    say(store, rng, 2, session=MINE, project="/code/attic")
    say(store, rng, 3, session=LOST)
    store.execute("UPDATE sessions SET project = NULL WHERE session_id = ?", (LOST,))
    with open_machine() as machine:
        remember(machine, "beronik holds everywhere", key="nest")
        remember(machine, "domopern of the attic", project="attic")
        remember(machine, "eskanik was said elsewhere", project="shop", session=ELSEWHERE)
        add_source(machine, _files(tmp_path / "papers", "calipern"), "papers")
        sync_sources(machine, None)
    settle()
    for one, other in zip(answers(tools, 100), before, strict=True):
        assert one == other
    assert not are_those(before, Tools(ClientContext()), 100)


def test_a_token_for_a_project_reads_its_resources_alone(told: Store) -> None:
    tools = Tools(ClientContext(projects=granted("shop")))
    listed = json.dumps(tools.methods["resources/list"]({}))
    assert SHOP in listed
    assert API not in listed
    assert tools.methods["resources/read"]({"uri": f"crystal://session/{SHOP}"})
    with pytest.raises(McpError):
        tools.methods["resources/read"]({"uri": f"crystal://session/{API}"})


def test_what_a_token_for_projects_remembers_holds_there(told: Store) -> None:
    one, two = Tools(ClientContext(projects=granted("shop"))), Tools(ClientContext(projects=granted("shop", "api")))
    assert one.data("crystal_remember", text="the shop is blue")["project"] == "shop"
    assert two.data("crystal_remember", text="the api is red", project="API")["project"] == "api"
    assert one.data("save_memory", content="the shop is green")["project"] == "shop"
    for tools, project in ((one, "api"), (one, "attic"), (two, None), (two, "attic")):
        with pytest.raises(UsageError, match="name one of your projects"):
            tools.data("crystal_remember", text="no", project=project)
    assert "the api is red" not in one.text("crystal_search", query="red")
    assert "the api is red" in two.text("crystal_search", query="red")
    kept = one.data("crystal_remember", text="the api is red")
    assert kept["project"] == "shop", "the words of a memory elsewhere become a memory of its own"
    with pytest.raises(UsageError, match="isolated"):
        one.data("crystal_forget", project="api")


def test_a_token_for_a_project_forgets_nothing_else(told: Store) -> None:
    tools = Tools(ClientContext(projects=granted("shop")))
    token = tools.data("crystal_forget", query="zebra")["token"]
    assert tools.data("crystal_forget", confirm=token)["is_done"]
    assert told.rows("SELECT DISTINCT session_id FROM turns t JOIN sessions s ON s.id = t.session") == [(API,)]


def test_a_project_that_is_gone_or_new_is_not_seen(told: Store) -> None:
    assert (
        Tools(ClientContext(projects=(GrantedProject("attic", ("/code/attic",), None),))).data("crystal_status")[
            "counts"
        ]["sessions"]
        == 0
    )
    with open_reader_for(None, None, projects=granted("shop")) as reader:
        add_turn(told, "the quokka", session=ELSEWHERE, ts=NOW - HOUR, project="/code/attic")
        assert {name for (name,) in reader.store.rows("SELECT name FROM projects")} == {"shop"}
        assert not reader.store.value("SELECT count(*) FROM sessions WHERE session_id = ?", (ELSEWHERE,))


def test_a_token_stays_with_its_project_when_names_change(told: Store) -> None:
    token_for("phone", projects=granted("shop"))
    assert crystal("projects", "rename", "shop", "store").code == 0
    add_turn(told, "the zebra of strangers", session=ELSEWHERE, ts=NOW - HOUR, project="/code/other/shop")
    tools = Tools(ClientContext(projects=read_grants(default_paths().access)[0].projects))
    found = tools.data("crystal_search", query="zebra")["hits"]
    assert {one["project"] for one in found} == {"store"}
    kept = [tools.data("crystal_remember", text=f"{name} is blue", project=name) for name in ("shop", "store")]
    assert [one["project"] for one in kept] == ["store", "store"]


def test_a_token_follows_its_repository_to_another_folder(told: Store) -> None:
    place = "SELECT id FROM projects WHERE name = 'shop'"
    told.execute(f"UPDATE projects SET remote = 'github.com/me/shop', git_root = cwd WHERE id IN ({place})")
    mine = granted("shop")
    told.execute(f"UPDATE projects SET cwd = '/moved/shop', git_root = '/moved/shop' WHERE id IN ({place})")
    assert Tools(ClientContext(projects=mine)).data("crystal_search", query="zebra")["hits"]
    told.execute(f"UPDATE projects SET remote = 'github.com/you/shop' WHERE id IN ({place})")
    assert not Tools(ClientContext(projects=mine)).data("crystal_search", query="zebra")["hits"]


def test_what_a_token_remembers_holds_in_the_project_of_this_machine(told: Store, tmp_path: Path) -> None:
    told.execute("UPDATE projects SET remote = 'github.com/me/shop', git_root = cwd WHERE name = 'shop'")
    told.execute("VACUUM INTO ?", (str(tmp_path / "copy.db"),))
    (tmp_path / "copy.db").rename(told.path.with_name("mirror.db"))
    told.execute("UPDATE projects SET cwd = '/here/shop', git_root = '/here/shop' WHERE name = 'shop'")
    for text, given in (("the shop is blue", {}), ("the shop is red", {"project": "shop"})):
        Tools(ClientContext(projects=granted("shop"))).data("crystal_remember", text=text, **given)
    held = told.rows("SELECT DISTINCT p.cwd FROM memories m JOIN projects p ON p.id = m.project")
    assert held == [("/here/shop",)]


def test_two_projects_with_one_name_are_not_confused(told: Store) -> None:
    add_turn(told, "of another shop", session=ELSEWHERE, ts=NOW - HOUR, project="/code/other/shop")
    tools = Tools(ClientContext(projects=granted("/code/shop", "/code/other/shop")))
    with pytest.raises(UsageError, match="2 of your projects are called 'shop'"):
        tools.data("crystal_remember", text="the shop is blue", project="shop")


def test_what_names_no_session_and_whose_files_are_elsewhere_is_not_seen(told: Store, tmp_path: Path) -> None:
    with open_machine() as machine:
        add_source(machine, _files(tmp_path / "papers", "calipern"), "papers")
        sync_sources(machine, None)
    told.execute("UPDATE source_collections SET project = (SELECT id FROM projects WHERE name = 'api')")
    told.execute("INSERT INTO injection_logs (at, session_id, source, candidates, chosen, omitted, tokens)"
                 " VALUES (1, 'gone', 'startup', 0, '[]', 0, 0)")  # fmt: skip
    with open_reader_for(None, None, projects=granted("shop")) as reader:
        assert {name for (name,) in reader.store.rows("SELECT name FROM projects")} == {"shop"}
        for table in ("injection_logs", "source_collections", "source_files"):
            assert reader.store.value(f"SELECT count(*) FROM {table}") == 0, table
    with open_reader_for(None, None, projects=granted("shop", "api")) as reader:
        assert reader.store.value("SELECT count(*) FROM source_files") == 1


def test_every_table_is_hidden_in_part_or_known_to_tell_nothing(told: Store) -> None:
    """A new table needs a line in SHADOWS or FILE_SHADOWS, or here, if the server's tools tell nothing of it."""
    tools_tell_nothing = set(
        "archive_words capture_roots costs embedding_generations forget_work forgotten_sessions hook_runs meta"
        " private_lines private_marks redactions reflector_runs refusals snapshot_stamps sources text_blocks"
        " tombstones".split()
    )
    internal = ("relay_", "outbox", "mirror_", "index_", "chunks_vec", "sqlite_")
    tables = {name for (name,) in told.rows("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    open_ones = {table for table in tables if not table.startswith(internal)} - set(SHADOWS) - set(FILE_SHADOWS)
    assert open_ones == tools_tell_nothing


def test_the_queries_ask_every_tool_that_reads() -> None:
    asked = {name for name, _ in queries(random.Random(1))}
    assert asked == {
        tool.name for tool in (*TOOLS, *ALIASES, *CONNECTOR) if tool.scope != "remember" and not tool.needs_folder
    }
