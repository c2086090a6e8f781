"""The list of hits: many sessions, nothing twice, enough around each hit, every filter in full, and reasons."""

import itertools

import pytest

from crystal.llm.chat import ChatModel
from crystal.model.recall import Filters
from crystal.search.deep import ChatAsker, Deep
from crystal.search.request import SearchOptions
from crystal.store import Store
from tests.support.chat_server import Reply, chat_server, openai_reply
from tests.support.ranked_by import by_default_too, search  # noqa: F401 - a fixture
from tests.support.store_factory import DAY, HOUR, NOW, Meaning, add_turn, embed_all
from tests.support.table import each_row

pytestmark = pytest.mark.usefixtures("ranked_by")
FORK = "22222222-bbbb-4000-8000-000000000002"
NUMBERS = "one two three four five six seven eight nine ten eleven twelve".split()


def ask(store, query, embedder=None, limit=10, how=None, **filters):
    more = {} if how is None else {"how": how}
    return search(store, embedder, query, now=NOW, limit=limit, filters=Filters(**filters), **more)


def found(result):
    return [hit.uuid for hit in result.hits]


def test_after_three_hits_of_one_session_comes_another(store):
    for word in NUMBERS:
        add_turn(store, f"needle needle {word} needle", session="busy")
    for number, word in enumerate(NUMBERS[:4]):
        add_turn(
            store, f"we also mentioned a needle {word} beside much else " + "and so on " * 20, session=f"q{number}"
        )
    sessions = [hit.session_id for hit in ask(store, "needle").hits]
    assert max(len(list(same)) for _, same in itertools.groupby(sessions[:7])) <= 3
    assert len(set(sessions)) >= 4
    inside = ask(store, "needle", session="busy", limit=12)
    assert {hit.session_id for hit in inside.hits} == {"busy"}
    assert len(inside.hits) == 12


def test_a_lone_session_fills_the_list(store):
    turns = [add_turn(store, f"needle {word}") for word in NUMBERS]
    assert sorted(found(ask(store, "needle", limit=12))) == turns


def test_near_duplicates_are_one_hit_with_a_count(store, ranked_by):
    if ranked_by != "late":
        pytest.skip("texts are compared by the tokens of late interaction")
    text = "please run the whole test suite once more and tell me what failed in the payment module, number"
    for number, word in enumerate(("one", "two", "two", "one")):
        add_turn(store, f"{text} {word}", session=f"s{number}")
    other = add_turn(store, "the payment module is slow", session="other")
    result = ask(store, "payment module test suite")
    assert len(result.hits) == 2
    assert (result.hits[0].similar, result.hits[0].copies) == (3, 2)
    assert found(result)[1] == other


@pytest.mark.parametrize("count", [150, pytest.param(1100, marks=pytest.mark.slow)])
def test_many_copies_do_not_keep_others_from_a_full_list(store, count):
    for number in range(count):
        add_turn(store, "needle", session=f"s{number}")
    for word in NUMBERS:
        add_turn(store, f"a needle {word} among other things " + "and so on " * 60, session=word)
    result = ask(store, "needle", limit=10)
    assert len(result.hits) == 10
    assert max(hit.copies for hit in result.hits) == count


@pytest.mark.slow
@pytest.mark.parametrize("fusion", ["weighted", "rrf"])
def test_every_limit_gives_so_many(store, fusion):
    for number in range(450):
        add_turn(store, f"needle {number} and {number * 7919}", session=f"s{number % 90}")
    for limit in (1, 2, 57, 399, 400, 401, 1000):
        result = ask(store, "needle", limit=limit, how=SearchOptions(fusion=fusion))
        whole = len(result.hits) + sum(hit.similar for hit in result.hits)
        assert len(result.hits) == limit or whole == 450
        assert len(set(found(result))) == len(result.hits)


def test_reciprocal_rank_fusion_puts_what_both_engines_find_first(store):
    add_turn(store, "automobile registry of the club", session="a")
    both = add_turn(store, "an automobile is a vehicle, a car", session="b")
    add_turn(store, "some vehicle", session="c")
    add_turn(store, "a kitten", session="d")
    embed_all(store, Meaning())
    assert both in found(ask(store, "automobile car", Meaning(), how=SearchOptions(fusion="rrf")))[:1]


# ---------------------------------------------------------------------------------------------------- surroundings


def test_a_hit_has_what_was_said_before_and_after_it_in_its_thread(store):
    first = add_turn(store, "first of all", ts=NOW - 9)
    add_turn(store, "a tool spoke", role="tool_result", ts=NOW - 8)
    add_turn(store, "the subagent thinks", subagent="a1", ts=NOW - 7)
    hit_uuid = add_turn(store, "the zanzibar thing", role="assistant", ts=NOW - 6)
    inner = add_turn(store, "the subagent's kettle", subagent="a1", role="assistant", ts=NOW - 5)
    last = add_turn(store, "last of all", ts=NOW - 4)
    add_turn(store, "elsewhere", session=FORK, ts=NOW - 5)
    (hit,) = [hit for hit in ask(store, "zanzibar").hits if hit.uuid == hit_uuid]
    assert (hit.before.uuid, hit.before.text, hit.after.uuid) == (first, "first of all", last)
    hit = ask(store, "first").hits[0]
    assert (hit.uuid, hit.before, hit.after.uuid) == (first, None, hit_uuid)
    hit = ask(store, "last").hits[0]
    assert (hit.uuid, hit.before.uuid, hit.after) == (last, hit_uuid, None)
    hit = ask(store, "kettle").hits[0]
    assert (hit.uuid, hit.before.text, hit.after) == (inner, "the subagent thinks", None)


def test_surroundings_keep_within_the_times_of_the_filter(store):
    for day in (3, 2, 1):
        add_turn(store, f"needle {day}", ts=NOW - day * DAY)
    (hit,) = ask(store, "needle", since=NOW - 2 * DAY, before=NOW - DAY).hits
    assert (hit.before, hit.after) == (None, None)


def test_surroundings_of_long_turns_are_cut_to_the_nearest_words(store):
    add_turn(store, "begin " + "filler " * 900 + "nearest-before", ts=NOW - 3)
    add_turn(store, "zanzibar", ts=NOW - 2)
    add_turn(store, "nearest-after " + "filler " * 900 + "end", ts=NOW - 1)
    hit = ask(store, "zanzibar").hits[0]
    assert hit.before.text.endswith("nearest-before")
    assert hit.after.text.startswith("nearest-after")
    assert max(len(hit.before.text), len(hit.after.text)) < 300


# --------------------------------------------------------------------------------------------- reasons and nothing


@each_row(("query", "filters", "said"), [("", {}, "empty"), ("zebra", {"project": "nowhere"}, "no project 'nowhere'"), ("zebra", {"role": "robot"}, "robot"),
     ("no_such.name()", {}, ""), ('"zebra stripes"', {}, "zebra stripes")])  # fmt: skip
def test_an_empty_result_says_why(store, query, filters, said):
    add_turn(store, "hello world")
    result = ask(store, query, **filters)
    assert result.hits == ()
    assert result.notes
    assert any(said in note for note in result.notes)


def test_every_hit_has_its_ranks_and_scores_of_every_engine(store, ranked_by):
    add_turn(store, "a car in the yard", session="a")
    add_turn(store, "a vehicle", session="b")
    embed_all(store, Meaning())
    hits = ask(store, "car yard", Meaning()).hits
    assert hits[0].ranks.keys() >= {"keywords", "vectors"}
    for hit in hits:
        assert hit.ranks.keys() & {"keywords", "vectors", "context"}
        assert {name for name in hit.ranks if name != "exact"} <= hit.scores.keys()
        assert all(rank >= 1 for rank in hit.ranks.values())
        assert ("late" in hit.scores) == (ranked_by == "late")


# --------------------------------------------------------------------------------------------------------- filters


@pytest.fixture
def varied(store):
    """Turns of every kind; a fork; and what was said of each, by uuid."""
    said = {}
    for number in range(96):
        values = {
            "session": f"s{number % 3}", "role": ("user", "assistant", "tool_call")[number % 3],
            "project": ("/code/shop", "/code/engine", None)[number // 2 % 3], "branch": ("main", "fix/ä", None)[number // 3 % 3],
            "agent": f"cc-{number % 2}", "device": ("desk", "lap")[number // 4 % 2], "ts": NOW - number * HOUR,
            "subagent": (None, None, None, "a1")[number % 4],
        }  # fmt: skip
        uuid = add_turn(store, f"needle number{number} car{number * 31}", **values)
        said[uuid] = values
    for uuid in list(said)[:6]:  # a fork has copies of what was said before it
        add_turn(store, store.value("SELECT text FROM chunks c JOIN turns t ON t.id = c.turn WHERE t.uuid = ?", (uuid,)),
                 **{**said[uuid], "uuid": uuid, "session": "fork"})  # fmt: skip
        said[uuid] = {**said[uuid], "fork": True}
    for number in range(3):
        uuid = add_turn(store, f"needle of the fork {number}", session="fork", ts=NOW - DAY, project=None, agent="cc-0")
        said[uuid] = {"session": "fork", "role": "user", "project": None, "branch": "main", "agent": "cc-0",
                      "device": "desk", "ts": NOW - DAY, "subagent": None}  # fmt: skip
    embed_all(store, Meaning())
    return store, said


CHECKS = {
    "project": ("shop", lambda one: one["project"] == "/code/shop"),
    "session": ("fork", lambda one: one["session"] == "fork" or one.get("fork", False)),
    "role": ("user", lambda one: one["role"] == "user"),
    "agent": ("cc-1", lambda one: one["agent"] == "cc-1"),
    "device": ("lap", lambda one: one["device"] == "lap"),
    "branch": ("fix/ä", lambda one: one["branch"] == "fix/ä"),
    "since": (NOW - 50 * HOUR, lambda one: one["ts"] >= NOW - 50 * HOUR),
    "before": (NOW - 2 * HOUR, lambda one: one["ts"] < NOW - 2 * HOUR),
}


@pytest.mark.slow
@pytest.mark.parametrize("meaning", [False, True])
def test_every_filter_alone_and_in_pairs_leaves_exactly_what_it_says(varied, meaning):
    store, said = varied
    embedder = Meaning() if meaning else None
    for names in [(name,) for name in CHECKS] + list(itertools.combinations(CHECKS, 2)):
        filters = {name: CHECKS[name][0] for name in names}
        wanted = {uuid for uuid, one in said.items() if all(CHECKS[name][1](one) for name in names)}
        assert set(found(ask(store, "needle", embedder, 200, **filters))) == wanted, filters
        assert len(ask(store, "needle", embedder, 5, **filters).hits) == min(5, len(wanted)), filters
    inner = {uuid for uuid, one in said.items() if one["subagent"]}
    assert set(found(ask(store, "needle", embedder, 200, role="subagent"))) == inner


def test_a_filter_does_not_change_the_order_of_what_it_leaves(varied, ranked_by):
    store, _ = varied
    if ranked_by == "late":
        pytest.skip("scores are parts of the best one, and sessions are mixed")
    one = found(ask(store, "needle number7", None, 200, session="s1"))
    assert one[0] == next(uuid for uuid in found(ask(store, "needle number7", None, 200)) if uuid in set(one))


# ------------------------------------------------------------------------------------------------------------ deep


def deep(store, server, seconds=3.0):
    model = ChatModel("openai", "tiny", server.url + "/v1", "sk-test")
    asker = lambda _: ChatAsker(model, lambda: Store.open(store.path), 1.0, NOW, seconds)  # noqa: E731
    return SearchOptions(deep=Deep(asker, NOW, may_send=lambda chunks, _: chunks))


def chat(text):
    return Reply(openai_reply(text, prompt_tokens=50, completion_tokens=5))


def test_other_wordings_find_more_and_a_model_orders_the_best(store):
    first, second = (add_turn(store, f"the lighthouse {word}", session=word) for word in ("keeper", "lamp"))
    other = add_turn(store, "a beacon at sea", session="other")
    plain = ask(store, "lighthouse")
    assert other not in found(plain)
    with chat_server(chat('["beacon"]'), Reply(status=500)) as server:
        worded = ask(store, "lighthouse", how=deep(store, server))
    with chat_server(chat('["beacon"]'), chat("[3, 2, 1]")) as server:
        how = deep(store, server)
        result = ask(store, "lighthouse", how=how)
    assert sorted(found(result)) == sorted([first, second, other])
    assert found(result) == found(worded)[::-1]
    assert any("beacon" in line for line in result.explained)
    assert len(server.requests) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "reply", [Reply(status=500), Reply(b"no json"), chat("nothing of use"), Reply(silent=True), Reply(status=401), chat("")],
    ids=["500", "no json", "no use", "silent", "401", "empty"],
)  # fmt: skip
def test_a_model_that_fails_changes_nothing_and_the_reason_is_under_explain(store, reply):
    for word in NUMBERS:
        add_turn(store, f"the lighthouse {word}", session=word)
    plain = ask(store, "lighthouse")
    with chat_server(reply) as server:
        result = ask(store, "lighthouse", how=deep(store, server, seconds=0.5))
    assert result.hits == plain.hits
    assert result.notes == plain.notes
    assert result.explained
