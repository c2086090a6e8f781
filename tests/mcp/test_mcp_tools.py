"""The tools and resources of the MCP server: what they find, how it is fenced, how long it may be, what they refuse."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace

import pytest

from crystal import Crystal
from crystal.mcp.handlers import ClientContext
from crystal.search.engine import search
from crystal.search.request import MemorySource, SearchRequest, SearchResult
from crystal.store import Store
from crystal.text.quoting import quote
from tests.support.mcp_client import ROOT, Tools
from tests.support.mcp_memory import API, MINE, SHOP, fence_of, hits, outside
from tests.support.store_factory import DAY, HOUR, NOW, add_turn
from tests.support.table import each_row

# ---------------------------------------------------------------------------------------------------------- answers


@pytest.mark.slow
def test_every_answer_is_sent_once_in_one_fence(told: Store) -> None:
    tools = Tools(ClientContext(session=MINE, folder="/code/shop"))
    kept = tools.data("crystal_remember", text="Zebras are deployed on Fridays", key="zebra", category="preference")
    asked: dict[str, list[dict[str, object]]] = {
        "crystal_search": [
            {"query": "zebra"},
            {"query": "nothing has this word"},
            {"query": "yesterday"},
            {"query": "?"},
        ],
        "crystal_get": [{"id": "1"}, {"id": SHOP[:8]}, {"id": kept["id"]}, {"key": "zebra"}, {"id": "1", "start": 9}],
        "crystal_recent": [{}, {"what": "sessions"}, {"all": True}, {"project": "nobody"}, {"offset": 700}],
        "crystal_timeline": [{}, {"since": "2001-01-01", "before": "2001-01-02"}, {"project": "api"}],
        "crystal_changed": [{}, {"session": SHOP[:8]}, {"since": "2001-01-01", "project": "api"}],
        "crystal_about": [{"thing": "zebra"}, {"thing": "zebra", "project": "api", "offset": 1}],
        "crystal_how": [{"question": "zebra"}, {"question": "zebra", "all": True, "project": "api"}],
        "crystal_fix": [{"error": "TypeError: cannot add zebra to int"}, {"error": "x", "project": "api"}],
        "crystal_status": [{}],
        "crystal_remember": [{"text": "Zebras sleep"}],
        "search_memory": [{"query": "zebra", "limit": 2}],
        "get_recent_conversations": [{"n": 1}, {}],
        "save_memory": [{"content": "zebra again", "source": "a neighbour"}],
        "memory_search": [{"query": "zebra", "maxResults": 3, "minScore": 0.1}],
        "read_memory": [{}, {"scope": "project"}],
        "write_memory": [{"content": "zebra once more"}],
    }
    for name, many in asked.items():
        for arguments in many:
            result = tools.call(name, **arguments)
            assert not result["isError"], (name, arguments, result)
            assert (set(result), len(result["content"])) == ({"content", "isError"}, 1)
            fence_of(result["content"][0]["text"])
            if "response_format" in tools.listed[name]["inputSchema"]["properties"]:
                as_json = json.loads(tools.text(name, **arguments, response_format="json"))
                nonce = re.fullmatch("<crystal-memory-([a-z0-9]{6})> data:", as_json["fence"])[1]  # type: ignore[index]
                assert as_json["fence_end"] == f"end of data </crystal-memory-{nonce}>"
                assert next(iter(as_json)) == "fence"
                assert list(as_json)[-1] == "fence_end"


def test_the_scope_global_is_for_the_agents_that_the_settings_name(
    told: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(agent: str | None, name: str, **more: object) -> str:
        return Tools(ClientContext(folder="/code/shop", agent=agent)).text(name, **more)

    for agent in (None, "codex"):
        assert "crystal config set mcp.global_scope" in asked(agent, "read_memory", scope="global")
    monkeypatch.setenv("CRYSTAL_MCP_GLOBAL_SCOPE", "claude-*")
    kept = asked("claude-code", "write_memory", content="okapis sleep everywhere", scope="global")
    assert "a fact for everywhere" in kept
    asked("codex", "write_memory", content="quaggas sleep here", scope="project")
    assert "1 memory holds everywhere" in asked("claude-code", "read_memory", scope="global")
    assert "okapis" not in asked("claude-code", "read_memory")
    for agent, says in (("codex", "mcp.global_scope AGENT"), ("Claude-code", "not allowed"), (None, "--agent AGENT")):
        for name, more in (("read_memory", {}), ("write_memory", {"content": "tapirs"})):
            refused = asked(agent, name, scope="global", **more)
            assert refused.startswith("error: the scope global")
            assert says in refused
    assert "tapirs" not in asked("claude-code", "read_memory", scope="global")


def test_a_search_finds_what_a_search_by_python_finds(told: Store) -> None:
    with Crystal.reader() as memory:
        expected = [str(hit.id) for hit in memory.search("zebra checkout", limit=4).hits]
    assert [hit["id"] for hit in hits(Tools(), query="zebra checkout", limit=4)] == expected


def test_several_wordings_are_one_question(told: Store) -> None:
    with Crystal.reader() as memory:
        expected = [str(hit.id) for hit in memory.search("zebra checkout", "giraffe", limit=4).hits]
    assert expected
    for wordings in ({"queries": ["zebra checkout", "giraffe"]}, {"query": "zebra checkout", "queries": ["giraffe"]}):
        assert [hit["id"] for hit in hits(Tools(), limit=4, **wordings)] == expected


def test_what_the_asking_session_said_is_left_out_unless_asked_for(told: Store) -> None:
    tools = Tools(ClientContext(session=MINE))
    data = tools.data("crystal_search", query="zebra", limit=10)
    assert MINE not in {hit["session_id"] for hit in data["hits"]}
    assert "1 of this session left out; include_current=true shows them" in data["notes"]
    for more in ({"include_current": True}, {"session": MINE[:6]}):
        assert MINE in {hit["session_id"] for hit in hits(tools, query="zebra", limit=10, **more)}
    assert MINE not in {one["session_id"] for one in tools.data("crystal_recent", all=True)["items"]}
    assert MINE in {one["session_id"] for one in tools.data("crystal_recent", all=True, include_current=True)["items"]}
    assert MINE not in {one["id"] for one in tools.data("crystal_recent", what="sessions", all=True)["items"]}


def test_what_a_session_said_that_has_ended_is_not_left_out(told: Store) -> None:
    told.execute("UPDATE sessions SET ended_at = ? WHERE session_id = ?", (NOW, MINE))
    assert MINE in {hit["session_id"] for hit in hits(Tools(ClientContext(session=MINE)), query="zebra", limit=10)}


def test_many_hits_of_the_asking_session_hide_no_others(store: Store) -> None:
    for number in range(60):
        add_turn(store, f"zebra zebra zebra {number}", session=MINE, ts=NOW - HOUR - number)
    add_turn(store, "one zebra elsewhere", session=SHOP, ts=NOW - 90 * DAY)
    assert [hit["session_id"] for hit in hits(Tools(ClientContext(session=MINE)), query="zebra", limit=5)] == [SHOP]


@each_row(
    "narrowed",
    [
        {"project": "api"},
        {"device": "laptop"},
        {"session": "22222222"},
        {"before": "1d"},
        {"role": "user", "before": "1d"},
    ],
)
def test_filters_narrow(told: Store, narrowed: dict[str, object]) -> None:
    found = hits(Tools(), query="zebra", **narrowed)
    assert [hit["session_id"] for hit in found] == [API]


def test_pages_of_a_search_are_the_list(store: Store) -> None:
    for number in range(23):
        add_turn(store, f"zebra number {number}", session=f"{number:08d}-a", ts=NOW - number * HOUR)
    tools, seen, offset = Tools(), [], 0
    while offset is not None:
        page = tools.data("crystal_search", query="zebra", limit=5, offset=offset)
        seen += [hit["id"] for hit in page["hits"]]
        offset = page["next_offset"]
    assert len(seen) == len(set(seen)) == 23
    assert seen == [hit["id"] for hit in hits(tools, query="zebra", limit=50)]


@pytest.mark.slow
def test_a_session_is_read_page_by_page(store: Store) -> None:
    texts = [f"zebra {number} " + "word " * (number * 9) for number in range(120)]
    for number, text in enumerate(texts):
        add_turn(store, text.strip(), session=SHOP, ts=NOW - DAY + number * 1000)
    tools, seen, offset = Tools(max_chars=4_000), [], 0
    while offset is not None:
        page = tools.data("crystal_get", id=SHOP, offset=offset)
        assert page["turns"]
        seen += [turn["number"] for turn in page["turns"]]
        offset = page["next_offset"]
    assert seen == list(range(1, 121))
    assert tools.call("crystal_get", id=SHOP, offset=120)["isError"]


@pytest.mark.slow
def test_a_long_text_is_read_to_its_end(store: Store) -> None:
    text = "".join(f"zebra {number}\n" for number in range(4_000)).strip()
    add_turn(store, text, session=SHOP, role="tool_result", tool="Bash")
    tools, read, start = Tools(max_chars=5_000), "", 0
    while True:
        turn = next(turn for turn in tools.data("crystal_get", id="1", start=start)["turns"] if turn["focus"])
        part = re.sub(r" \[… \d+ more\]$", "", turn["text"].removeprefix("[…] "))
        read, start = read + part, start + len(part)
        if not turn["characters_left"]:
            break
    assert read == text


def test_the_preview_of_forgetting_shows_an_equal_text_once(store: Store) -> None:
    for session in (SHOP, API, SHOP):
        add_turn(store, "the okapi file was updated", session=session, role="tool_result")
    add_turn(store, "an okapi is striped", session=SHOP)
    text = Tools().text("crystal_forget", query="okapi")
    assert "data: 4 things of 2 sessions would be forgotten for good; nothing is changed yet" in text
    assert (text.count("the okapi file was updated"), text.count("striped")) == (1, 1)
    assert re.search(r"^\[1 tool x3[ \]]", text, re.MULTILINE)
    assert "more things" not in text


@pytest.mark.slow
def test_each_page_of_a_long_text_says_where_the_next_begins(store: Store) -> None:
    text = "".join(f"zebra\u200b {number}\n" for number in range(4_000)).strip()
    add_turn(store, text, session=SHOP, role="tool_result", tool="Bash")
    tools = Tools(max_chars=5_000)
    kept = tools.data("crystal_remember", text="".join(f"pony\u200b {number}, " for number in range(700)))
    for ident, wanted in (("1", text), (kept["id"], None)):
        read, start = "", 0
        while True:
            page = tools.text("crystal_get", id=ident, start=start, context=0)
            inside = re.split(r"\n(?:\[start \d+ goes on\]\n)?</crystal-memory", page)[0]
            inside = re.split(r"\][ \n]", inside, maxsplit=1)[1]
            read += re.sub(r" \[… \d+ more\]$", "", inside.removeprefix("[…] "))
            further = re.search(r"\bstart[ =](\d+)", page)
            if further is None:
                break
            start = int(further[1])
        whole = wanted or "".join(f"pony {number}, " for number in range(700))
        assert read.strip() == quote(whole).strip()


def test_what_is_cut_off_says_how_to_read_it(store: Store) -> None:
    add_turn(store, "zebra " + "pony " * 2_000, session=SHOP)
    tools = Tools(max_chars=2_000)
    for name, asked in (
        ("crystal_search", {"query": "zebra"}),
        ("search_memory", {"query": "zebra"}),
        ("crystal_recent", {"all": True}),
    ):
        assert tools.data(name, **asked)["more"] == "more: crystal_get with the id of what is cut off", name
        assert tools.text(name, **asked).endswith("crystal_get with the id of what is cut off"), name
    tools.data("crystal_remember", text="pony " * 1_500)
    assert "cut off" in tools.data("crystal_timeline")["more"]


@pytest.mark.slow
def test_pages_of_a_search_neither_repeat_nor_leave_out(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(sources: Sequence[MemorySource], request: SearchRequest) -> SearchResult:
        found = search(sources, request)  # more candidates may come in another order
        return found if request.limit < 60 else replace(found, hits=found.hits[::-1])

    monkeypatch.setattr("crystal.mcp.searching.ask", ask)
    for number in range(160):
        add_turn(store, f"zebra question {number} hidden red", session=SHOP, ts=NOW - number * HOUR)
        add_turn(store, f"answer {number} zebra", session=SHOP, ts=NOW - number * HOUR + 1, role="assistant")
    tools, seen, offset = Tools(), [], 0
    while offset is not None:
        page = tools.data("crystal_search", query="zebra", limit=7, offset=offset)
        seen += [hit["id"] for hit in page["hits"]]
        offset = page["next_offset"]
    assert len(seen) == len(set(seen)) == 320


def test_what_a_branch_is_called_stays_in_the_fence(store: Store) -> None:
    add_turn(store, "zebra", session=SHOP, branch="main OBEY", project="/code/shop OBEY")
    for asked in ({"id": "1"}, {"id": SHOP}):
        text = Tools().text("crystal_get", **asked)
        assert "branch main OBEY" in text
        assert "OBEY" not in outside(text)


def test_recent_is_of_this_project_and_widens(told: Store) -> None:
    tools = Tools(ClientContext(folder="/code/api"))
    assert {one["project"] for one in tools.data("crystal_recent")["items"]} == {"api"}
    assert {one["project"] for one in tools.data("crystal_recent", all=True)["items"]} == {"api", "shop"}
    assert {one["project"] for one in tools.data("crystal_recent", project="shop")["items"]} == {"shop"}
    elsewhere = Tools(ClientContext(folder="/nowhere")).data("crystal_recent")
    assert "crystal does not know this folder" in elsewhere["notes"][0]
    order = [one["when"] for one in tools.data("crystal_recent", all=True)["items"]]
    assert order == sorted(order, reverse=True)
    assert [one["id"] for one in tools.data("crystal_recent", what="sessions", all=True)["items"]] == [MINE, SHOP, API]


def test_recent_and_search_of_one_agent(told: Store) -> None:
    add_turn(told, "zebra of codex", session="s9", ts=NOW - 2 * HOUR, harness="codex")
    tools = Tools(ClientContext(folder="/code/api"))
    for words in ({}, {"what": "sessions"}):
        found = tools.data("crystal_recent", all=True, agent="codex", **words)["items"]
        assert {one.get("session_id", one["id"]) for one in found} == {"s9"}
        assert "no agent 'nobody'" in tools.data("crystal_recent", all=True, agent="nobody", **words)["notes"][0]
    hits = tools.data("crystal_search", query="zebra", agent="codex")["hits"]
    assert [hit["session_id"] for hit in hits] == ["s9"]


def test_a_session_of_several_days_is_told_on_each(store: Store) -> None:
    for days in (3, 2, 1):
        add_turn(store, f"zebra {days} days ago", session=SHOP, ts=NOW - days * DAY + HOUR)
    tools = Tools()
    tools.data("crystal_remember", text="Zebras sleep")
    entries = tools.data("crystal_timeline")["entries"]
    assert [entry["kind"] for entry in entries] == ["memory", "session", "session", "session"]
    assert [entry["turns"] for entry in entries[1:]] == [1, 1, 1]
    assert len({entry["date"] for entry in entries[1:]}) == 3
    assert [entry["kind"] for entry in tools.data("crystal_timeline", since="60h", before="30h")["entries"]] == [
        "session"
    ]


def test_a_memory_is_kept_found_and_read(told: Store) -> None:
    tools = Tools(ClientContext(session=MINE, folder="/code/shop"))
    kept = tools.data("crystal_remember", text="Unicorns need password hunter2hunter2 rotated", key="unicorn")
    assert hits(tools, query="unicorns")[0]["id"] == kept["id"]
    assert hits(tools, query="unicorns")[0]["origin"] == "memory"
    assert tools.data("crystal_get", key="unicorn")["memory"]["id"] == kept["id"]
    again = tools.data("crystal_remember", text="Unicorns are gone", key="unicorn")
    assert again["id"] == kept["id"]
    assert "Unicorns are gone" in tools.data("crystal_get", id=kept["id"])["memory"]["text"]
    assert "nothing is remembered under the key 'pony'" in tools.text("crystal_get", key="pony")
    here = tools.data("crystal_remember", text="Ponies", this_project=True)
    assert here["project"] == "shop"


@pytest.mark.slow
def test_a_folder_that_is_given_is_not_looked_at(told: Store) -> None:
    folders = ("/code/shop", "../up", "~", ".", "C:\\code", "a/b")
    watched = (
        "import os, sys\n"
        "from tests.support.mcp_client import Tools\n"
        "tools = Tools()\n"
        "asked = [('crystal_search', {'query': 'zebra'}), ('crystal_recent', {}), ('crystal_timeline', {}),\n"
        "         ('crystal_remember', {'text': 'x'}), ('crystal_forget', {})]\n"
        "for name, more in asked:\n"
        "    tools.call(name, project='shop', **more)\n"
        "touched = []\n"
        "sys.addaudithook(lambda event, args: touched.append(repr(args)) if event.startswith(('open', 'os.')) else None)\n"
        "def watch(name, call):\n"
        "    def watched(*given, **more):\n"
        "        touched.append(repr([os.fspath(one) if hasattr(one, '__fspath__') else one for one in given]))\n"
        "        return call(*given, **more)\n"
        "    setattr(os, name, watched)\n"
        "for name in ('stat', 'lstat', 'access', 'readlink'):\n"
        "    watch(name, getattr(os, name))\n"
        f"for folder in {folders!r}:\n"
        "    for name, more in asked:\n"
        "        result = tools.call(name, project=folder, **more)\n"
        "        assert 'a folder' in result['content'][0]['text'], (name, folder, result)\n"
        "    assert not [one for one in touched if repr(folder) in one or '/code/shop' in one], (folder, touched)\n"
        "tools.call('crystal_recent', project='shop')\n"  # a folder is refused before anything is opened
        "assert touched\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", watched], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_what_cannot_be_is_said_with_the_next_step(told: Store) -> None:
    tools = Tools()
    for name, arguments, words in [
        ("crystal_search", {}, "the argument query is missing"),
        ("crystal_search", {"query": "x", "limt": 1}, "hint: did you mean limit?"),
        ("crystal_search", {"query": "x", "limit": 0}, "limit is from 1 to 50"),
        ("crystal_search", {"query": "x", "role": "boss"}, "which is not a role"),
        ("crystal_search", {"query": "x", "since": "whenever"}, "not a time that crystal understands"),
        ("crystal_search", {"query": "x", "since": "1d", "before": "2d"}, "swap them"),
        ("crystal_get", {}, "give either an id or a key"),
        ("crystal_get", {"id": "1", "key": "a"}, "give either an id or a key"),
        ("crystal_get", {"id": "999999"}, "no session or hit"),
        ("crystal_get", {"id": "mem-0"}, "there is no memory"),
        ("crystal_get", {"id": SHOP, "start": 3}, "start goes with a hit"),
        ("crystal_get", {"id": "1", "offset": 3}, "offset goes with a session"),
        ("crystal_remember", {"text": "   "}, "the text is empty"),
        ("crystal_remember", {"text": "x", "category": "rumour"}, "one of fact"),
    ]:
        result = tools.call(name, **arguments)
        assert result["isError"], name
        assert words in result["content"][0]["text"]
