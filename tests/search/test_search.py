import pytest

from crystal.errors import NotConfiguredError, UnavailableError, UsageError
from crystal.model.recall import Filters
from crystal.search.results import freshness
from crystal.store import Store
from crystal.store.search.vectors import drop_generation, ensure_generation
from tests.support.ranked_by import by_default_too, search, search_home_first  # noqa: F401 - a fixture
from tests.support.store_factory import DAY, NOW, SESSION, Meaning, add_turn, chunk_id, embed_all
from tests.support.table import each_row

pytestmark = pytest.mark.usefixtures("ranked_by")

OTHER = "22222222-bbbb-4000-8000-000000000002"


def uuids(result):
    return [hit.uuid for hit in result.hits]


def found(store, query, embedder=None, **options):
    return uuids(search(store, embedder, query, now=NOW, **options))


# ------------------------------------------------------------------------------------------------------- keywords


def test_a_hit_tells_everything_about_its_origin(store):
    uuid = add_turn(store, "the login token expires", branch="fix/login", ts=NOW - 4 * DAY)
    result = search(store, None, "tokens expired", now=NOW)
    (hit,) = result.hits
    assert (hit.id, hit.uuid, hit.text, hit.role) == (chunk_id(store, uuid), uuid, "the login token expires", "user")
    assert (hit.session_id, hit.project, hit.cwd, hit.branch) == (SESSION, "shop", "/code/shop", "fix/login")
    assert (hit.agent, hit.device, hit.source) == ("cc-test", "desk", "conversation")
    assert (hit.timestamp, hit.freshness) == (NOW - 4 * DAY, "recent")
    assert result.mode == "keywords"
    assert hit.ranks["keywords"] == 1
    assert hit.ranks.keys() <= {"keywords", "context"}
    assert hit.score > 0


def test_one_word_of_many_is_enough_and_more_words_rank_higher(store):
    one = add_turn(store, "postgres was slow")
    both = add_turn(store, "postgres migration done, all of it in one long night with much coffee and little sleep")
    assert found(store, "postgres migration rollback") == [both, one]


def test_what_has_all_words_comes_before_what_repeats_one(store):
    often = add_turn(store, "deploy deploy deploy deploy")
    both = add_turn(store, "we talked at length about how the staging machines are meant to deploy to production " * 3)
    assert found(store, "deploy production") == [both, often]


def test_the_same_characters_come_before_the_same_words(store):
    other_signs = add_turn(store, "foo bar baz")
    other_case = add_turn(store, "FOO_BAR.BAZ has a long tail of other words behind it, which lowers its score")
    same = add_turn(store, "foo_bar.baz has a long tail of other words behind it, and then some more of them here")
    assert found(store, "foo_bar.baz()") == [same, other_case, other_signs]


def test_an_identifier_that_nothing_has_is_answered_by_its_parts_with_a_note(store):
    uuid = add_turn(store, "the baz of it")
    result = search(store, None, "foo_bar.baz()", now=NOW)
    assert uuids(result) == [uuid]
    assert "no text contains foo_bar.baz; these contain parts of it" in result.notes


def test_a_phrase_that_nothing_has_is_relaxed_with_a_note(store):
    uuid = add_turn(store, "refused the connection")
    result = search(store, None, '"connection refused"', now=NOW)
    assert uuids(result) == [uuid]
    assert any('"connection refused"' in note for note in result.notes)


def test_a_beginning_is_found_when_no_word_is(store):
    uuid = add_turn(store, "Donaudampfschifffahrtsgesellschaft")
    result = search(store, None, "donaudampf", now=NOW)
    assert uuids(result) == [uuid]
    assert any("begin" in note for note in result.notes)


@each_row("query", ["", "   ", "\x00", "?!", "()", '""', "🦀"])
def test_a_question_without_words_finds_nothing_and_does_not_raise(store, query):
    add_turn(store, "hello")
    assert found(store, query) == []


def test_limits_out_of_range_are_named(store):
    for limit in (0, -1, 10_000):
        with pytest.raises(UsageError, match=str(limit)):
            search(store, None, "x", limit=limit, now=NOW)


# ---------------------------------------------------------------------------------------------- one answer a turn


def test_a_turn_of_many_chunks_is_one_hit(store):
    long = add_turn(store, "\n\n".join(f"paragraph {number} about caching " + "filler " * 150 for number in range(20)))
    short = add_turn(store, "caching is hard, and so is naming")
    assert sorted(found(store, "caching")) == sorted([long, short])


@pytest.mark.slow
def test_a_turn_of_many_chunks_does_not_crowd_out_the_full_list(store):
    add_turn(store, "\n\n".join("needle " * 200 for _ in range(250)))
    assert store.value("SELECT count(*) FROM chunks") > 200
    for number in range(12):
        add_turn(store, f"a lone needle, number {number}, " + "with a lot of other words " * 30)
    assert len(found(store, "needle", limit=13)) == 13


def test_the_same_text_is_counted_and_its_copies_do_not_crowd_out_others(store):
    first = [add_turn(store, "ran the tests again", ts=NOW - number * DAY) for number in range(3)]
    other = add_turn(store, "ran the tests, with other words around what was said the times before", ts=NOW - 9 * DAY)
    result = search(store, None, "ran the tests", now=NOW)
    assert uuids(result)[0] in first
    assert uuids(result)[1] == other
    assert [(hit.copies, hit.similar) for hit in result.hits] == [(3, 2), (1, 0)]


def test_copies_are_counted_within_the_filter(store):
    add_turn(store, "ok, do it", project="/code/other")
    add_turn(store, "ok, do it")
    (hit,) = search(store, None, "do it", filters=Filters(project="shop"), now=NOW).hits
    assert hit.copies == 1


# ------------------------------------------------------------------------------------------------------- freshness


@each_row(("days", "flag"), [(-1, "fresh"), (0, "fresh"), (2.9, "fresh"), (3, "recent"), (6.9, "recent"), (7, "aging"),
                       (13.9, "aging"), (14, "stale"), (900, "stale")])  # fmt: skip
def test_freshness_by_age(days, flag):
    assert freshness(NOW - int(days * DAY), NOW) == flag


def test_unknown_age_is_stale(store):
    add_turn(store, "no time at all", ts=None)
    (hit,) = search(store, None, "time", now=NOW).hits
    assert (hit.timestamp, hit.freshness) == (None, "stale")


# --------------------------------------------------------------------------------------------------------- vectors


def test_meaning_finds_what_no_word_finds(store):
    add_turn(store, "the invoice arrived")
    uuid = add_turn(store, "a vehicle stood in the yard")
    embedder = Meaning()
    embed_all(store, embedder)
    result = search(store, embedder, "automobile", now=NOW)
    assert result.mode == "hybrid"
    assert uuids(result)[0] == uuid
    assert result.hits[0].ranks["vectors"] == 1
    assert "keywords" not in result.hits[0].ranks
    assert result.hits[0].scores["vectors"] > 0.9


def test_meaning_alone_is_said_to_be_vague_and_far_meanings_are_left_out(store):
    uuid = add_turn(store, "a vehicle stood in the yard")
    add_turn(store, "cat cat cat cat cat cat cat cat")
    embedder = Meaning()
    embed_all(store, embedder)
    result = search(store, embedder, "automobile", now=NOW)
    assert uuids(result) == [uuid]
    assert any("close in meaning" in note for note in result.notes)
    assert not any("close in meaning" in note for note in search(store, embedder, "yard", now=NOW).notes)


@pytest.mark.parametrize("query", ["ZEBRA-7731", "no_such.thing()", "4711", "/etc/nothing.conf", '"E0308"'])
def test_what_looks_like_an_identifier_is_not_answered_by_something_like_it(store, query):
    add_turn(store, "a vehicle stood in the yard")
    embedder = Meaning()
    embed_all(store, embedder)
    assert found(store, query, embedder) == []


def test_what_both_engines_find_comes_first(store):
    words = add_turn(store, "automobile registry of the club")
    both = add_turn(store, "an automobile is a vehicle, a car, and that is all there is to say about it in this place")
    add_turn(store, "some vehicle")
    embedder = Meaning()
    embed_all(store, embedder)
    assert set(found(store, "automobile", embedder)[:2]) == {words, both}


def test_meaning_does_not_push_an_exact_hit_away(store):
    exact = add_turn(store, "see pay_invoice.total() for the cash")
    for number in range(20):
        add_turn(store, f"money payment cash {number}, pay the invoice, in total")
    embedder = Meaning()
    embed_all(store, embedder)
    assert found(store, "pay_invoice.total()", embedder)[0] == exact


def test_a_quoted_phrase_binds_meaning_too(store):
    add_turn(store, "car automobile vehicle")
    uuid = add_turn(store, "the car of my father")
    embedder = Meaning()
    embed_all(store, embedder)
    assert found(store, '"car of my father"', embedder) == [uuid]


def test_without_an_embedder_keywords_answer_and_say_so(store):
    uuid = add_turn(store, "hello world")
    result = search(store, None, "hello", now=NOW, without_embedder="no key for openai")
    assert (uuids(result), result.mode) == ([uuid], "keywords")
    assert any("no key for openai" in note for note in result.notes)


def test_without_vectors_keywords_answer_and_say_how_many_wait(store):
    add_turn(store, "hello world")
    add_turn(store, "hello moon")
    for prepare in (lambda: None, lambda: ensure_generation(store, "test", "meaning", Meaning().dimension, NOW)):
        prepare()
        result = search(store, Meaning(), "hello", now=NOW)
        assert (len(result.hits), result.mode) == (2, "keywords")
        assert any("2 chunks" in note for note in result.notes)


def test_missing_vectors_are_counted_while_the_rest_is_hybrid(store):
    embedder = Meaning()
    add_turn(store, "a car")
    embed_all(store, embedder)
    late = add_turn(store, "a vehicle and nothing but the word that is asked for: lorry")
    result = search(store, embedder, "lorry car", now=NOW)
    assert result.mode == "hybrid"
    assert late in uuids(result)
    assert any("1 chunk " in note for note in result.notes)


@each_row("failure", [UnavailableError("the provider is away"), NotConfiguredError("no key for it")])
def test_an_embedder_that_fails_costs_only_meaning(store, failure):
    uuid = add_turn(store, "a car")
    embed_all(store, Meaning())
    result = search(store, Meaning(failure), "car", now=NOW)
    assert (uuids(result), result.mode) == ([uuid], "keywords")
    assert any(failure.message in note for note in result.notes)


def test_vectors_of_another_model_are_not_asked(store):
    add_turn(store, "a car")
    embed_all(store, Meaning())
    other = Meaning()
    other.model = "another"
    result = search(store, other, "car", now=NOW)
    assert result.mode == "keywords"
    assert any("test meaning" in note for note in result.notes)


def test_a_model_that_changes_while_the_question_is_embedded_costs_only_meaning(store):
    class Meanwhile(Meaning):
        def embed_query(self, text):
            drop_generation(store, generation)
            return self.vector(text)

    uuid = add_turn(store, "a car")
    generation = embed_all(store, Meaning())
    result = search(store, Meanwhile(), "car", now=NOW)
    assert (uuids(result), result.mode) == ([uuid], "keywords")


def test_a_question_without_words_is_answered_by_meaning_alone(store):
    add_turn(store, "a car")
    embedder = Meaning()
    embed_all(store, embedder)
    assert search(store, embedder, "🚗", now=NOW).mode == "vectors"


def test_a_look_up_in_this_memory_comes_after_all_that_was_said(store):
    name = "mcp__plugin_crystal_crystal__crystal_search"
    call = add_turn(store, f"{name}: why do the database tests fail", role="tool_call", tool=name, session="a")
    result = add_turn(store, "[recalled] the database tests fail", role="tool_result", tool=name, session="a")
    other = add_turn(store, "the database tests fail: exit 1", role="tool_result", tool="Bash", session="b")
    said = add_turn(store, "the tests need a database, or they all go wrong", role="assistant", session="c")
    order = found(store, "why do the database tests fail")
    assert set(order[:2]) == {other, said}
    assert set(order[2:]) == {call, result}
    assert found(store, "why do the database tests fail", filters=Filters(role="tool_call")) == [call]


# ------------------------------------------------------------------------------------------------------ home first


def test_a_project_is_searched_first_and_everything_when_it_has_no_word_of_the_question(store):
    class Once(Meaning):
        asked = 0

        def embed_query(self, text):
            Once.asked += 1
            return self.vector(text)

    shop = add_turn(store, "a vehicle in the shop", project="/code/shop")
    other = add_turn(store, "a thimble and a car", project="/code/other")
    embed_all(store, Meaning())
    ask = lambda query: search_home_first(store, Once(), query, home="/code/shop", now=NOW)  # noqa: E731
    result, inside = ask("shop")
    assert (uuids(result), inside) == ([shop], True)
    result, inside = ask("thimble")
    assert (uuids(result)[0], inside) == (other, False)
    result, inside = ask("automobile")
    assert (uuids(result), inside) == ([shop], True)
    assert Once.asked == 3


def test_a_repository_is_searched_with_its_clones_on_other_machines(store):
    here = add_turn(store, "a webhook here", project="/home/you/shop")
    there = add_turn(store, "a webhook on the laptop", project="/Users/you/code/shop")
    below = add_turn(store, "a webhook in a folder of it", project="/Users/you/code/shop/web")
    other = add_turn(store, "a webhook of another shop", project="/home/you/other/shop")
    with store.transaction():
        sql = "UPDATE projects SET remote = ?, git_root = ? WHERE cwd = ?"
        for remote, root, cwd in (
            ("https://example.org/shop.git", "/home/you/shop", "/home/you/shop"),
            ("https://example.org/shop.git", "/Users/you/code/shop", "/Users/you/code/shop"),
            ("https://example.org/shop.git", "/Users/you/code/shop", "/Users/you/code/shop/web"),
            ("https://example.org/other.git", "/home/you/other/shop", "/home/you/other/shop"),
        ):
            store.execute(sql, (remote, root, cwd))
    ask = lambda home: search_home_first(store, None, "webhook", home=home, now=NOW)  # noqa: E731
    result, inside = ask("/home/you/shop")
    assert (set(uuids(result)), inside) == ({here, there, below}, True)
    result, inside = ask("/home/you/other/shop")
    assert (uuids(result), inside) == ([other], True)


# ----------------------------------------------------------------------------------------------------------- order


def test_equal_hits_are_ordered_newest_first_and_always_alike(store):
    third, first, second = (add_turn(store, f"identical words {letter}", ts=NOW - day * DAY, session=letter)
                            for day, letter in ((3, "q"), (1, "r"), (2, "s")))  # fmt: skip
    last = add_turn(store, "identical words t", ts=None, session="t")
    assert found(store, "identical words") == [first, second, third, last]
    assert found(store, "identical words") == [first, second, third, last]


def test_a_reader_sees_what_writers_commit_between_its_questions(store):
    with Store.open_existing(store.path) as reader:
        assert found(reader, "lighthouse") == []
        uuid = add_turn(store, "the lighthouse")
        assert found(reader, "lighthouse") == [uuid]
