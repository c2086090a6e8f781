"""Exact things are found exactly, in any script: names, versions, hashes, phrases, beginnings of words."""

import pytest

from crystal.embedding.late import TokenComparer
from crystal.search.index.open_index import Index
from crystal.search.ranking import order, verbatim
from crystal.search.request import SearchOptions
from crystal.store.search.candidates import texts_of
from tests.support.ranked_by import each_way, late_model, search  # noqa: F401 - a fixture
from tests.support.store_factory import DAY, HOUR, NOW, add_turn

pytestmark = pytest.mark.usefixtures("ranked_by")

HASH = "4f9e1c7ab03d5526f8e0c1d2a3b4c5d6e7f80912"


def found(store, query, **options):
    return [hit.uuid for hit in search(store, None, query, now=NOW, **options).hits]


def fill(store, *texts):
    """Other talk around what is looked for, each in a session of its own."""
    return [
        add_turn(store, text, session=f"other-{number}", ts=NOW - HOUR * number) for number, text in enumerate(texts)
    ]


# ----------------------------------------------------------------------------------------------------------- names


NEEDLES = (
    ["foo_bar.baz()", "src/a/b.py", "ERR_CONN_REFUSED", "v1.2.3", "std::vector", "user@example.com", "C:\\Users\\ada\\x.txt",
     "--force-with-lease", "HTTP/1.1 502", "TS2345", "$HOME/.config", "a.b.c.d", "10.0.0.1", "#1234", "E0308", "naïve", "deadbeef1234", HASH]
)  # fmt: skip


@pytest.mark.slow
def test_an_exact_thing_in_a_long_old_turn_beats_many_new_ones_with_its_parts(store):
    exact = {
        needle: add_turn(
            store,
            f"somebody mentioned {needle} in the middle of other things " + "and so on " * 60,
            ts=NOW - 900 * DAY,
            session=f"old-{number}",
        )
        for number, needle in enumerate(NEEDLES)
    }
    for number in range(150):
        text = f"foo bar baz src a b py ERR CONN REFUSED v1 2 3 std vector user example com C Users ada x txt {number}"
        add_turn(store, f"{text} force with lease HTTP 1 502 HOME config a b c d 10 0", ts=NOW - number, session="new")
    for needle, turn in exact.items():
        for query in (needle, f"where did {needle} come up?", f'"{needle}"'):
            assert found(store, query)[0] == turn, query


def test_a_version_is_not_another_that_begins_so(store):
    other, exact = fill(
        store, "upgraded to v1.2.30 and then 1.2.31 today", "upgraded to v1.2.3, long ago, and it worked"
    )
    assert found(store, "v1.2.3")[0] == exact
    assert found(store, "v1.2.30")[0] == other
    assert found(store, '"v1.2.3"') == [exact]


def test_a_hash_is_found_by_its_beginning(store):
    exact, *_ = fill(store, f"merged {HASH} into main", "merged 4e1c7ab0 into main", "nothing merged today")
    for length in (4, 7, 8, 12, 39, 40):
        assert found(store, HASH[:length])[0] == exact, length


def test_a_short_hash_finds_the_short_and_the_long_one(store):
    both = fill(store, f"merged {HASH} into main", f"see {HASH[:7]} for why", "other talk")[:2]
    assert set(found(store, HASH[:7])[:2]) == set(both)


@pytest.mark.parametrize("end", ["ed", "s", "e", "es", "ing"])
def test_what_looks_like_an_english_ending_does_not_hide_a_hash(store, end):
    name = f"9b3f6a1c{end}"
    exact, *_ = fill(store, f"merged {name} into main", "other talk")
    for length in range(7, len(name) + 1):
        assert found(store, name[:length]) == [exact]


@pytest.mark.parametrize(
    ("text", "query"),
    [("call FindMostRecentSession here", "find most recent session"), ("call FindMostRecentSession here", "recent session"),
     ("call FindMostRecentSession here", "findmostrecentsession"), ("parseHTTPResponse fails", "http response"),
     ("we must find most recent session", "FindMostRecentSession"), ("find_most_recent_session()", "FindMostRecentSession"),
     ("FindMostRecentSession()", "find_most_recent_session")],
)  # fmt: skip
def test_a_camel_case_name_and_its_words_find_each_other(store, text, query):
    exact, *_ = fill(store, text, "other talk about something else", "more of it")
    assert found(store, query)[0] == exact


# ---------------------------------------------------------------------------------------------------------- phrases


def test_a_phrase_in_any_quotation_marks_must_stand_together(store):
    apart, together = fill(store, "refused the connection as it was", "got connection refused from nginx")
    for first, last in ('""', "“”", "„“", "«»", "「」", "『』", "＂＂", "‟”"):
        assert found(store, f"{first}connection refused{last}") == [together], first
        assert found(store, f"{first}connection refused{last} elephants") == [together], first
    assert apart in found(store, "connection refused")


def test_a_phrase_of_a_script_without_spaces_is_found_inside_a_run(store):
    apart, together = fill(store, "迁移了数据库", "我们用数据库迁移工具")
    for query in ('"数据库迁移"', "「数据库迁移」", "『数据库迁移』", "“数据库迁移”", '"数据库迁移" 工具'):
        assert found(store, query) == [together], query
    assert apart in found(store, "数据库迁移")


def test_a_phrase_as_it_is_written_comes_before_its_other_forms(store):
    forms = [f"fix the test file, fix the test file {n}" for n in range(5)]
    exact, *others = fill(store, "Done, and much else was said here.\nFixed the\ntest  file; all is well.", *forms)
    hits = found(store, '"fixed the test file"')
    assert (hits[0], set(hits[1:])) == (exact, set(others))
    assert found(store, '"fix the test file"')[-1] == exact


def test_a_phrase_of_two_scripts_is_found(store):
    _, together = fill(store, "pandas 的库 和 API", "请用 pandas库 的 API 读取")
    assert found(store, '"pandas库 的 API"') == [together]


# ------------------------------------------------------------------------------------------------------- beginnings

WORDS = (
    "migration organization connectivity happiness running nationalization authentication Datenbankverbindung"
    " Donaudampfschifffahrt policies generously retrieval caches configuration responsible kubernetes xylophones"
).split()


@pytest.mark.slow
def test_every_beginning_of_a_word_finds_it_while_it_is_typed(store):
    fill(store, "quite another thing", "more of that")
    about = dict(zip(WORDS, fill(store, *(f"about {word} we spoke" for word in WORDS)), strict=True))
    beginnings = [(word[:length], turn) for word, turn in about.items() for length in range(3, len(word) + 1)]
    assert [typed for typed, turn in beginnings if turn not in found(store, typed)] == []


@pytest.mark.parametrize(
    ("typed", "word"), [("data", "database"), ("con", "connection"), ("Datenbank", "Datenbankzugriff")]
)
def test_a_word_that_begins_another_finds_both_itself_first(store, typed, word):
    longer, itself = fill(store, f"the {word} is slow", f"the {typed} is slow", *["other talk here"] * 5)[:2]
    assert found(store, typed)[:2] == [itself, longer]


def test_the_beginning_of_the_last_word_is_enough_beside_whole_words(store):
    exact, *_ = fill(store, "the postgres migration took a night", "the postgres server is slow", "other talk")
    assert found(store, "postgres migratio")[0] == exact


# ---------------------------------------------------------------------------------------------------------- scripts


@pytest.mark.parametrize(
    ("text", "queries"),
    [("我有一只猫", ["猫", "我", "有一", "只猫", "一只猫"]), ("猫", ["猫"]), ("データベースの移行を試した", ["移行", "試", "データ", "た"]),
     ("서버데이터베이스를 옮겼다", ["데이터", "데이터베이스", "서버", "를", "다"]), ("我们用数据库迁移工具", ["数据库"]),
     ("เราย้ายฐานข้อมูลแล้ว", ["ฐาน", "ข้อมูล", "แล้ว", "ฐานข้อมูล"]),
     ("用pandas库读取CSV文件", ["pandas", "库", "csv", "文件", "pandas库", "读取csv"]), ("人々の時々", ["人々", "時々"]),
     ("ﾃﾞｰﾀﾍﾞｰｽを見る", ["データベース", "データ"]), ("データベースを見る", ["ﾃﾞｰﾀ"]), ("ＥＲＲＯＲ ４７１１", ["error", "4711"]),
     ("error 4711", ["ｅｒｒｏｒ", "４７１１"]), ("𠮷野家で食べた", ["𠮷野家", "𠮷"]), ("ប្រព័ន្ធទិន្នន័យ", ["ទិន្នន័យ"])],
)  # fmt: skip
def test_a_part_of_a_script_without_spaces_is_found(store, text, queries):
    exact, *_ = fill(store, text, "完全不同 ぜんぜん違 전혀없음 อื่นๆ", "plain talk")
    assert [query for query in queries if exact not in found(store, query)[:1]] == []


@pytest.mark.parametrize(
    ("text", "query"),
    [("Die Übergabe im Café", "ubergabe cafe"), ("die Straße", "strasse"), ("die Strasse", "straße"), ("STRASSE", "Straße"),
     *(pytest.param(*row, marks=pytest.mark.slow) for row in [("ein Café", "cafe"), ("ein cafe", "café"), ("in Zürich", "zurich"), ("in zurich", "Zürich"), ("cafe\u0301 au lait", "café"),
     ("Ångström", "angstrom"), ("naïve façade", "naive facade"), ("İstanbul", "istanbul"), ("Übergröße", "ubergroße"),
     ("ΣΊΣΥΦΟΣ", "σίσυφος"), ("Việt Nam", "viet")])],
)  # fmt: skip
def test_accents_and_case_are_folded_both_ways_and_a_sharp_s_is_two(store, text, query):
    exact, *_ = fill(store, text, "other talk", "plain talk")
    assert found(store, query)[0] == exact


def test_of_very_many_chunks_with_an_identifier_those_most_about_it_are_first(store):
    best = add_turn(store, "parse_row() parse_row() parse_row()", session="old", ts=NOW - DAY)
    for number in range(6):
        add_turn(store, f"{'other words of the day ' * 9} parse_row() {number}", session=f"s{number}", ts=NOW)
    assert [hit.uuid for hit in search(store, None, "parse_row()", now=NOW, limit=1).hits] == [best]


@pytest.mark.parametrize("query", ['"green tea"', "green_tea"])
def test_a_phrase_or_name_is_read_for_until_enough_different_texts_have_it(store, monkeypatch, query):
    """Texts are unpacked one by one: one that very many have is not looked for in all of them."""
    words, read = query.strip('"'), []
    only = add_turn(store, f"{'tea that is so green, ' * 40}so {words.title()}", session="only")
    fill(store, *(f"{words} with {name}" for name in "abcdefghijklmnopqrstuvwxyz"), *[f"{words} for two"] * 10)
    monkeypatch.setattr(verbatim, "texts_of", lambda store, ids: read.extend(ids) or texts_of(store, ids))
    monkeypatch.setattr(verbatim, "FIRST_PAGE", 1)
    assert len(found(store, query, limit=2)) == 2
    first = len(read)
    assert first < 27, "eight different ones are enough of all 27, four with a name; copies are not read"
    monkeypatch.setattr(verbatim, "MANY_READ", 2)
    read.clear()
    assert len(found(store, query, limit=2)) == 2
    assert len(read) < first, "after some a quarter of them"
    monkeypatch.setattr(verbatim, "FIRST_PAGE", 9)
    monkeypatch.setattr(verbatim, "MANY_READ", 16)
    read.clear()
    assert len(found(store, query, limit=2)) == 2
    assert len(read) <= 7, "a page ends where a quarter is enough: after ten copies and six others"
    assert found(store, f'"so {words}"', limit=2) == [only], "what one text has is found wherever it is"


@pytest.mark.parametrize(("query", "most"), [("green_tea", 11), ("why green_tea so late", 1)])
def test_texts_with_a_name_are_read_before_those_that_only_have_its_words(store, monkeypatch, query, most):
    read = []
    fill(store, *(f"green tea, green tea, number {number}" for number in range(40)))
    exact = add_turn(store, f"{'and much else was said ' * 20}of green_tea", session="old", ts=NOW - 9 * DAY)
    monkeypatch.setattr(verbatim, "texts_of", lambda store, ids: read.extend(ids) or texts_of(store, ids))
    monkeypatch.setattr(verbatim, "FIRST_PAGE", 1)
    assert found(store, query, limit=3)[0] == exact
    assert len(read) <= most


def test_a_name_that_a_text_has_needs_no_model(store, monkeypatch):
    late, asked = TokenComparer.late, []
    monkeypatch.setattr(TokenComparer, "late", lambda *given: asked.append(given[1]) or late(*given))
    fill(store, *(f"{word} calls parse_row()" for word in "alpha beta gamma delta".split()), "parse a row of epsilon")
    how = SearchOptions(late=late_model)
    verbatim_hits = search(store, None, "parse_row()", now=NOW, limit=9, how=how, verbatim=True).hits
    assert (["exact" in hit.ranks for hit in verbatim_hits], asked) == ([True] * 4, [])
    for limit in (4, 5):
        hits = search(store, None, "parse_row()", now=NOW, limit=limit, how=how).hits
        assert (["exact" in hit.ranks for hit in hits], asked) == ([True] * 4 + [False] * (limit - 4), [])


def test_the_beginning_of_a_word_that_enough_texts_have_needs_no_model(store, monkeypatch):
    late, asked = TokenComparer.late, []
    monkeypatch.setattr(TokenComparer, "late", lambda *given: asked.append(given[1]) or late(*given))
    fill(store, *(f"{word} by the orchestrator" for word in "alpha beta gamma delta".split()), "a conductor of epsilon")
    for limit, models in ((4, []), (5, ["orchest"])):
        hits = search(store, None, "orchest", now=NOW, limit=limit, how=SearchOptions(late=late_model)).hits
        assert (["orchestrator" in hit.text for hit in hits[:4]], asked) == ([True] * 4, models)


def test_copies_of_a_text_with_a_name_leave_room_for_the_other_texts_with_it(store):
    fill(store, *(f"{word} stands in src/a_b.py" for word in "alpha beta gamma".split()), *["Read: src/a_b.py"] * 30)
    add_turn(store, "a file src/b.py and another src/a.py", session="other", ts=NOW)
    hits = search(store, None, "src/a_b.py", now=NOW, limit=4).hits
    assert (["exact" in hit.ranks for hit in hits], len({hit.text for hit in hits})) == ([True] * 4, 4)


def test_a_name_in_its_own_case_is_found_behind_very_many_in_another(store, monkeypatch):
    monkeypatch.setattr(verbatim, "MANY_READ", 5)
    monkeypatch.setattr(verbatim, "FIRST_PAGE", 1)
    exact = add_turn(store, f"{'and much else was said ' * 20}of obj.getUser", session="old", ts=NOW - 9 * DAY)
    fill(store, *(f"obj.getuser obj.getuser {number}" for number in range(20)))
    assert found(store, "obj.getUser")[0] == exact


def test_a_phrase_that_is_not_in_the_texts_that_were_read_may_be_in_others(store, monkeypatch):
    fill(store, *(f"tea, said {number}, is green" for number in range(9)))
    notes = search(store, None, '"green tea"', now=NOW).notes
    assert 'no text contains "green tea" word for word' in notes
    monkeypatch.setattr(verbatim, "MAX_READ", 4)
    monkeypatch.setattr(order, "MAX_READ", 4)
    monkeypatch.setattr(Index, "with_row", lambda _index, _terms, places: places)  # as if all words had one byte
    assert (
        'none of the 4 best texts contains "green tea" word for word'
        in search(store, None, '"green tea"', now=NOW).notes
    )
