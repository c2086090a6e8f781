import time

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from crystal.model.capture import Project
from crystal.model.recall import Filters
from crystal.search.index import bring_up_to_date
from crystal.store.search.scope import home_of, project_ids, roles_named
from crystal.text.folders import is_within
from tests.support.examples import examples
from tests.support.ranked_by import PARAMS, each_way, search, using  # noqa: F401 - a fixture
from tests.support.store_factory import DAY, NOW, SESSION, Meaning, add_turn, embed_all, open_store

FORK = "22222222-bbbb-4000-8000-000000000002"
PROJECTS = (None, "/code/shop", "/code/shop|api", "/code/Shopping", "C:\\code\\engine")
TEXTS = (
    "the car broke down",
    "money for a new car",
    "rain and storm",
    "a kitten",
    "数据库迁移",
    "foo_bar.baz() in src/a.py",
)


@pytest.fixture
def store(store, ranked_by):
    return store


def ask(store, query="needle", embedder=None, **filters):
    return search(store, embedder, query, filters=Filters(**filters), now=NOW)


def uuids(result):
    return [hit.uuid for hit in result.hits]


# --------------------------------------------------------------------------------------------------------- project


def test_a_project_by_name_in_any_case(store):
    shop = add_turn(store, "needle", project="/code/shop")
    add_turn(store, "needle", project="/code/Shopping")
    assert uuids(ask(store, project="SHOP")) == [shop]


def test_a_project_by_folder_takes_in_all_below_and_nothing_beside(store):
    shop = add_turn(store, "needle one", project="/code/shop")
    inside = add_turn(store, "needle two", project="/code/shop|api")
    add_turn(store, "needle three", project="/code/shopping")
    assert sorted(uuids(ask(store, project="/code/shop"))) == sorted([shop, inside])
    assert sorted(uuids(ask(store, project="/code/shop/"))) == sorted([shop, inside])
    assert uuids(ask(store, project="/code/shop/api")) == [inside]
    assert len(uuids(ask(store, project="/"))) == 3


def test_a_windows_folder_with_either_separator(store):
    uuid = add_turn(store, "needle", project="C:\\code\\engine|src")
    assert uuids(ask(store, project="C:\\code\\engine")) == [uuid]
    assert uuids(ask(store, project="C:/code/engine")) == [uuid]


def test_an_unknown_project_is_no_error_and_names_the_near_ones(store):
    add_turn(store, "needle", project="/code/crystal")
    result = ask(store, project="crystl")
    assert result.hits == ()
    assert result.notes == ("no project 'crystl'; did you mean crystal?",)
    assert ask(store, project="zebra").notes == ("no project 'zebra'; known: crystal",)


# --------------------------------------------------------------------------------------------------------- session


def test_a_session_by_id_or_unique_beginning(store):
    uuid = add_turn(store, "needle", session=SESSION)
    add_turn(store, "needle", session=FORK)
    for wanted in (SESSION, SESSION[:8], SESSION[:1], SESSION.upper()[:12]):
        assert uuids(ask(store, session=wanted)) == [uuid]


def test_an_ambiguous_or_unknown_session_is_explained(store):
    add_turn(store, "needle", session="abc-1")
    add_turn(store, "needle", session="abc-2")
    result = ask(store, session="abc")
    assert result.hits == ()
    assert "abc-1" in result.notes[0]
    assert "abc-2" in result.notes[0]
    assert "no session 'zz'" in ask(store, session="zz").notes[0]
    assert ask(store, session="").hits == ()


def test_a_fork_has_what_it_copied_as_its_own(store):
    uuid = add_turn(store, "needle said before the fork", session=SESSION)
    add_turn(store, "needle said before the fork", session=FORK, uuid=uuid)
    (hit,) = ask(store, session=FORK).hits
    assert (hit.uuid, hit.session_id) == (uuid, FORK)
    (hit,) = ask(store, session=SESSION).hits
    assert (hit.uuid, hit.session_id) == (uuid, SESSION)
    assert len(ask(store).hits) == 1


# ------------------------------------------------------------------------------------------------------------ role


def test_roles_and_the_word_for_both_of_tools(store):
    turns = {role: add_turn(store, f"needle {role}", role=role)
             for role in ("user", "assistant", "thinking", "tool_call", "tool_result", "summary")}  # fmt: skip
    turns["subagent"] = add_turn(store, "needle subagent", role="subagent", subagent="a1")
    inner = add_turn(store, "needle of a subagent's tool", role="tool_call", subagent="a1")
    assert uuids(ask(store, role="User")) == [turns["user"]]
    assert set(uuids(ask(store, role="tool"))) == {turns["tool_call"], turns["tool_result"], inner}
    assert set(uuids(ask(store, role="user, tool-result"))) == {turns["user"], turns["tool_result"]}
    assert set(uuids(ask(store, role="subagent"))) == {turns["subagent"], inner}


def test_an_unknown_role_is_explained(store):
    add_turn(store, "needle")
    result = ask(store, role="robot")
    assert result.hits == ()
    assert "robot" in result.notes[0]
    assert "tool_result" in result.notes[0]
    assert roles_named("user,robot") == ()


# ------------------------------------------------------------------------------------------------- names and times


def test_agent_device_branch_and_source(store):
    uuid = add_turn(store, "a needle", agent="cc-a", device="laptop", branch="fix/x", session="s1")
    add_turn(store, "needle", agent="cc-b", device="desk", branch="main", session="s2")
    for only in ({"agent": "cc-a"}, {"device": "laptop"}, {"branch": "fix/x"}):
        assert uuids(ask(store, **only)) == [uuid]
    assert len(ask(store, source="conversation").hits) == 2
    assert ask(store, source="memory").hits == ()
    assert ask(store, agent="cc-c").notes == ("no agent 'cc-c'; did you mean cc-b, cc-a?",)
    assert "known: conversation" in ask(store, source="email").notes[0]


def test_an_agent_program_by_its_name_or_title(store):
    claude = add_turn(store, "needle", session="s1")
    codex = add_turn(store, "a needle", session="s2", harness="codex")
    gemini = add_turn(store, "the needle", session="s3", harness="gemini-cli")
    for name in ("codex", "Codex", "Codex CLI", "codex-cli"):
        assert uuids(ask(store, agent=name)) == [codex], name
    assert uuids(ask(store, agent="gemini")) == uuids(ask(store, agent="Gemini CLI")) == [gemini]
    assert uuids(ask(store, agent="claude")) == uuids(ask(store, agent="claude-code")) == [claude]
    assert set(uuids(ask(store, agent="cc-test"))) == {claude, codex, gemini}
    assert ask(store, agent="codex", session="s1").hits == ()
    assert ask(store, agent="codec").notes == ("no agent 'codec'; did you mean codex, claude-code?",)
    assert ask(store, agent="zed").notes == ("no agent 'zed'; known: gemini-cli, codex, claude-code, cc-test",)
    assert ask(store, agent="").notes[0].startswith("no agent ''")


def test_an_agent_id_comes_before_a_program_of_that_name(store):
    named = add_turn(store, "needle", session="s1", agent="codex")
    add_turn(store, "a needle", session="s2", harness="codex")
    assert uuids(ask(store, agent="codex")) == [named]


def test_since_includes_and_before_excludes_the_moment(store):
    times = {day: add_turn(store, f"needle {day}", ts=NOW - day * DAY) for day in (1, 2, 3)}
    add_turn(store, "needle without a time", ts=None)
    assert set(uuids(ask(store, since=NOW - 2 * DAY))) == {times[1], times[2]}
    assert set(uuids(ask(store, before=NOW - 2 * DAY))) == {times[3]}
    assert uuids(ask(store, since=NOW - 2 * DAY, before=NOW - DAY)) == [times[2]]
    assert ask(store, since=-(2**80), before=2**80).hits != ()


# -------------------------------------------------------------------------------------------- inside both engines


RARE = 12


@pytest.fixture(scope="module", params=PARAMS)
def way(request):
    """As ``ranked_by``, for stores that many tests share."""
    with pytest.MonkeyPatch.context() as patch, using(request.param, patch):
        yield request.param


@pytest.fixture(scope="module")
def large(tmp_path_factory, way):
    """12,000 chunks that all have the needle; project ``rare`` has every thousandth, and its texts score worst."""
    with open_store(tmp_path_factory.mktemp("large")) as store:
        add_turn(store, "first", project="/code/common")
        add_turn(store, "second", project="/code/rare")
        common, rare = (store.value("SELECT id FROM projects WHERE name = ?", (name,)) for name in ("common", "rare"))
        longer = " so many more words here" * 5
        rows = [(ident, f"car needle number {ident}{longer if ident % 1000 == 7 else ''}", ident % 1000 == 7)
                for ident in range(3, 3 + 1000 * RARE)]  # fmt: skip
        with store.transaction():
            store.execute_many(
                "INSERT INTO chunks (id, start, body, text_sha256, source, role, project, agent, device, ts)"
                " VALUES (?, 0, ?, randomblob(32), 'conversation', 'user', ?, 'cc-test', 'desk', ?)",
                [(ident, text, rare if is_rare else common, NOW) for ident, text, is_rare in rows],
            )
        embed_all(store, Meaning())
        if way != "memory":
            bring_up_to_date(store, now=NOW, budget_seconds=60)
        if way == "tail":
            store.execute("UPDATE chunks SET branch = 'late' WHERE id % 3 = 0")
        yield store


@pytest.mark.slow
@pytest.mark.parametrize("embedder", [None, Meaning()], ids=["keywords", "hybrid"])
def test_a_filter_that_leaves_one_in_a_thousand_gives_its_full_top_k(large, embedder):
    result = ask(large, "needle vehicle", embedder, project="rare")
    assert len(result.hits) == 10
    assert {hit.project for hit in result.hits} == {"rare"}
    if embedder:
        assert all(hit.ranks.keys() >= {"keywords", "vectors"} for hit in result.hits)


@pytest.mark.slow
def test_a_narrow_filter_costs_less_than_none(large, way):
    def seconds(**filters):
        start = time.thread_time()  # others may have the processor meanwhile
        ask(large, "needle number", **filters)
        return time.thread_time() - start

    factor = 1.0 if way == "memory" else 2.0  # the index answers a store of this size in a few ms either way
    narrow, wide = zip(*((seconds(project="rare"), seconds()) for _ in range(7)), strict=True)
    assert min(narrow) < factor * min(wide)


# ------------------------------------------------------------------------------------------------------ properties


@pytest.fixture(scope="module")
def varied(tmp_path_factory, way):
    """A store in which every filter has something to say; with vectors for most of it."""
    embedder = Meaning()
    with open_store(tmp_path_factory.mktemp("varied")) as store:
        number = 0
        for text in TEXTS:
            for project in PROJECTS:
                number += 1
                add_turn(
                    store, f"{text} {number % 3}", project=project, session=(SESSION, FORK, "s3")[number % 3],
                    role=("user", "assistant", "tool_call", "tool_result")[number % 4], ts=NOW - number * DAY // 2,
                    branch=(None, "main", "fix/é")[number % 3], agent=("cc-a", "cc-b")[number % 2],
                    device=("desk", "laptop")[number % 2], subagent=(None, None, "a1")[number % 3],
                )  # fmt: skip
            if number == 20:
                embed_all(store, embedder)
        yield store, embedder


def maybe(*known):
    return st.none() | st.sampled_from(known) | st.text(max_size=6)


TIMES = st.none() | st.integers(NOW - 20 * DAY, NOW) | st.integers()
FILTERS = st.builds(
    Filters,
    project=maybe("shop", "SHOPPING", "/code", "/code/shop", "C:/code", "engine"),
    session=maybe(SESSION, SESSION[:4], FORK, "s3", "", "%", "_"),
    role=maybe("user", "tool", "subagent", "assistant,tool_call"),
    agent=maybe("cc-a"), device=maybe("desk"), branch=maybe("main", "fix/é"), source=maybe("conversation", "file"),
    since=TIMES, before=TIMES,
)  # fmt: skip
NASTY = st.text(alphabet="\"()*^:-+{}'\\.,/ \x00\x1b\ud800ANDORNEARé数据carmoney", max_size=40)
QUERIES = (
    st.sampled_from([*TEXTS, "car money", '"new car"', "foo_bar.baz()", "car*", "NOT car", "text : car", "^car"])
    | NASTY
    | st.text(max_size=60)
)


def allowed(hit, filters, store):
    checks = [
        filters.project is None or hit.project is not None,
        filters.agent is None or hit.agent == filters.agent,
        filters.device is None or hit.device == filters.device,
        filters.branch is None or hit.branch == filters.branch,
        filters.source is None or hit.source == filters.source,
        filters.since is None or (hit.timestamp is not None and hit.timestamp >= filters.since),
        filters.before is None or (hit.timestamp is not None and hit.timestamp < filters.before),
        filters.session is None or hit.session_id.startswith(filters.session.lower()),
        filters.role is None or hit.role in roles_named(filters.role)
        or ("subagent" in roles_named(filters.role) and hit.subagent is not None),
    ]  # fmt: skip
    if filters.project is not None and hit.project is not None:
        if filters.project.startswith(("/", "C:")):
            checks.append(is_within(hit.cwd, filters.project))
        else:
            checks.append(hit.project.casefold() == filters.project.strip().casefold())
    return all(checks)


@pytest.mark.slow
@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=QUERIES, filters=FILTERS, meaning=st.booleans(), limit=st.integers(1, 30))
def test_no_question_raises_and_nothing_excluded_is_returned(varied, way, query, filters, meaning, limit):
    store, embedder = varied
    ask = lambda: search(store, embedder if meaning else None, query, filters=filters, limit=limit, now=NOW)  # noqa: E731
    result = ask()
    assert len(result.hits) <= limit
    assert all(allowed(hit, filters, store) for hit in result.hits)
    assert len({(hit.uuid, hit.id) for hit in result.hits}) == len(result.hits)
    assert all(hit.score > 0 for hit in result.hits)
    assert ask() == result
    result.query.encode()


@pytest.mark.slow
def test_a_question_of_a_megabyte_is_answered_at_once(varied):
    store, embedder = varied
    for query in ("word " * 200_000, "x" * 1_000_000, '"' * 1_000_000, "数" * 500_000, "a.b" * 300_000, "( " * 500_000,
                  " ".join(f"word{number}" for number in range(100_000))):  # fmt: skip
        start = time.process_time()
        search(store, embedder, query, now=NOW)
        assert time.process_time() - start < 2


# ----------------------------------------------------------------------------------------------------------- homes


def test_the_project_of_a_folder_is_its_git_root_else_the_nearest_known_folder(store):
    add_turn(store, "x", project="/code/shop|api")
    add_turn(store, "x", project="/code")
    assert home_of(store, Project("/code/shop/web", "/code/shop")) == ("/code/shop", "shop")
    assert home_of(store, Project("/code/shop/api/deep")) == ("/code/shop/api", "shop")
    assert home_of(store, Project("/code/elsewhere")) == ("/code", "code")
    assert home_of(store, Project("/home/ada")) is None
    assert home_of(store, Project("/codeshop")) is None


def test_the_root_of_the_file_system_is_nobodys_home(store):
    add_turn(store, "x", project="/")
    assert home_of(store, Project("/home/ada")) is None
    assert project_ids(store, "/") != []
