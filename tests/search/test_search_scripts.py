"""Scripts with vowel signs, letters with signs, what the model does not know: found by the words, and by no accident."""

import pytest

from crystal.embedding.chosen_embedder import make_embedder
from crystal.embedding.late import TokenComparer
from crystal.embedding.static import static_model
from crystal.errors import ModelUnavailableError
from crystal.search.deep import Deep
from crystal.store.search import vectors
from crystal.text.query import parse_query
from tests.support.ranked_by import each_way, search  # noqa: F401 - a fixture
from tests.support.store_factory import DAY, HOUR, NOW, add_turn
from tests.support.table import each_row


def said(store, *texts):
    return [add_turn(store, text, session=f"s{number}", ts=NOW - DAY * number) for number, text in enumerate(texts)]


@each_row("word", ["डेटाबेस", "ฐานข้อมูล", "كِتَاب", "டேட்டாபேஸ்", "cafe\u0301", "ဒေတာဘေ့စ်"])  # fmt: skip
def test_a_word_with_signs_of_its_own_is_one_word_and_no_identifier(word):
    asked = parse_query(word)
    assert (asked.terms, asked.compounds, asked.is_literal) == ((word,), (), False)


@pytest.mark.parametrize(
    ("text", "other", "query"),
    [
        ("डेटाबेस का कनेक्शन टूट गया", "बस टेबल पर ड ट ब स लिखा है", "डेटाबेस"),
        ("กู้คืนฐานข้อมูลแล้ว", "ร้านอาหารอยู่ใกล้สถานี", "ฐานข้อมูล"),
        ("هذا كتاب جديد", "اشتريت قلما أمس", "كِتَاب"),
        ("أحمد أرسل التقرير", "محمود لم يرسل شيئا", "احمد"),
    ],
)
@pytest.mark.usefixtures("ranked_by")
def test_a_word_of_a_script_with_vowel_signs_is_found_whole(store, text, other, query):
    wanted, _ = said(store, text, other)
    result = search(store, None, query, now=NOW)
    assert [hit.uuid for hit in result.hits][:1] == [wanted]
    assert not any("itself" in note for note in result.notes)


@pytest.mark.parametrize(
    ("text", "query"),
    [("Veritabanı bağlantısı koptu", "veritabani baglantisi"), ("IŞIK sunucusu", "ışık"), ("Łódź kupuje", "lodz"),
     ("smørrebrød til frokost", "smorrebrod"), ("der Fluß", "fluss"), ("son cœur bat", "coeur")],
)  # fmt: skip
def test_letters_that_are_no_letters_of_ascii_with_a_sign_are_folded_too(store, monkeypatch, text, query):
    wanted, _ = said(store, text, "nothing of the sort")
    monkeypatch.setattr("tests.support.ranked_by._way", "index")
    hits = search(store, None, query, now=NOW).hits
    assert [hit.uuid for hit in hits] == [wanted]
    assert "keywords" in hits[0].ranks


@pytest.mark.parametrize(("query", "text"), [("1.12.3", "built v1.12.3-rc.1"), ("v1.12.3", "we run 1.12.3 today")])
@pytest.mark.usefixtures("ranked_by")
def test_a_version_is_found_with_and_without_its_v(store, query, text):
    wanted, *_ = said(store, text, *(f"upgraded to 1.12.{number}, 3 files in 12 places" for number in range(30, 40)))
    result = search(store, None, query, now=NOW)
    assert result.hits[0].uuid == wanted
    assert "exact" in result.hits[0].ranks or result.notes == ()


@pytest.mark.usefixtures("ranked_by")
def test_a_question_of_which_the_model_knows_no_word_is_not_near_to_what_it_knows_nothing_of_either(store):
    texts = ["ร้านอาหารไทย", "令牌过期需要刷新"]
    said(store, *texts)
    embedder = make_embedder("embedded")
    generation = vectors.ensure_generation(store, "embedded", "crystal-static-1", 256, NOW)
    made = embedder.embed_documents(texts)
    vectors.put_vectors(store, generation, list(zip([1, 2], made, strict=True)))
    vectors.promote(store, generation)
    result = search(store, embedder, "🦜", now=NOW)
    assert result.hits == ()
    assert result.mode == "keywords"
    assert any("knows no word of the question" in note for note in result.notes)


@pytest.mark.usefixtures("ranked_by")
def test_a_picture_is_found_where_it_stands(store):
    wanted, _, also = said(store, "🎉🚀 shipped the release", "ร้านอาหารไทย", "and again \u2764 🎉")
    assert [hit.uuid for hit in search(store, None, "🎉", now=NOW).hits] == [wanted, also]
    assert [hit.uuid for hit in search(store, None, "\u2764\ufe0f 🎉", now=NOW).hits] == [also]
    assert search(store, None, "🦜", now=NOW).hits == ()


@pytest.mark.usefixtures("ranked_by")
@pytest.mark.parametrize("query", ["1e999", "qqzzj wvvwv", "ERR-9999-77"])
def test_an_empty_result_says_why_also_with_an_embedder(store, query):
    said(store, "hello world")
    embedder = make_embedder("embedded")
    generation = vectors.ensure_generation(store, "embedded", "crystal-static-1", 256, NOW)
    vectors.put_vectors(store, generation, [(1, embedder.embed_documents(["hello world"])[0])])
    vectors.promote(store, generation)
    result = search(store, embedder, query, now=NOW)
    assert result.hits == ()
    assert any(note.startswith("no text contains") for note in result.notes)


@pytest.mark.usefixtures("ranked_by")
def test_a_question_of_a_time_alone_collapses_and_mixes_as_others_do(store):
    for number in range(8):
        add_turn(store, "All tests pass.", role="assistant", session="busy", ts=NOW - HOUR - number)
        add_turn(store, f"something else {number}", session="busy", ts=NOW - HOUR - 100 - number)
    other = add_turn(store, "a word from elsewhere", session="calm", ts=NOW - HOUR - 50_000)
    hits = search(store, None, "what did we do yesterday?", now=NOW, limit=5).hits
    assert len({hit.text for hit in hits}) == 5
    assert hits[0].similar == 7
    assert hits[3].uuid == other
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_a_time_named_many_times_is_explained_once(store):
    said(store, "the garden")
    explained = search(store, None, "garden last week " * 20, now=NOW).explained
    assert sum('"last week"' in line for line in explained) == 1


@pytest.mark.usefixtures("ranked_by")
def test_a_note_about_an_endless_name_is_short(store):
    said(store, "a a a a b")
    assert all(len(note) < 300 for note in search(store, None, "a_b" * 900, now=NOW).notes)
    assert all(len(note) < 300 for note in search(store, None, f'"{"x " * 900}"', now=NOW).notes)


@pytest.mark.usefixtures("ranked_by")
def test_what_has_a_name_to_the_letter_comes_before_what_has_its_words_also_with_meaning(store):
    texts = ["we fixed foo_bar.baz yesterday in a very long story about other things " + "and on " * 80, "foo bar baz"]
    letter, words = said(store, *texts)
    embedder = make_embedder("embedded")
    generation = vectors.ensure_generation(store, "embedded", "crystal-static-1", 256, NOW)
    vectors.put_vectors(store, generation, list(zip([1, 2], embedder.embed_documents(texts), strict=True)))
    vectors.promote(store, generation)
    hits = search(store, embedder, "foo_bar.baz", now=NOW).hits
    assert [hit.uuid for hit in hits] == [letter, words]
    assert [hit.ranks["exact"] for hit in hits] == [1, 3]


def test_who_cannot_be_reached_is_asked_once_and_only_what_is_shown_is_put_into_order():
    asked = []

    class Gone:
        def ask(self, prompt, *, most_tokens):
            asked.append(prompt)
            raise ModelUnavailableError("nobody is there")

    deep = Deep(lambda _seconds: Gone(), NOW)
    assert deep.expand("why?") == ("why?",)
    assert deep.rerank("why?", ["one", "two"]) is None
    assert len(asked) == 1
    assert len(deep.reasons) == 1

    class Backwards:
        def ask(self, prompt, *, most_tokens):
            return "[2, 1]"

    assert Deep(lambda _seconds: Backwards(), NOW).rerank("why?", ["a"] * 50) == [1, 0, *range(2, 20)]


def test_a_transformer_that_fails_leaves_the_table_to_compare():
    class Damaged:
        def token_vectors(self, texts):
            raise ModelUnavailableError("its file is damaged")

    table = TokenComparer(static_model())
    asked = ("the garden", ["a garden gnome", "nothing"], lambda _word: 1.0)
    assert TokenComparer(static_model(), Damaged()).late(*asked) == table.late(*asked)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("deploy\nthe tokens, now", '"deploys the token"'),
        ("wir fuhren nach Zürich", "Zürich"),
        ("wir fuhren nach Zürich", '"fuhren nach zurich"'),
        ("вот ёлка", "елка"),
    ],
)
def test_without_an_index_many_texts_are_looked_through_for_words_in_any_form(store, monkeypatch, text, query):
    monkeypatch.setattr("crystal.search.candidates.FEW", 1)
    wanted, *_ = said(store, text, "nothing of it", "another thing")
    assert [hit.uuid for hit in search(store, None, query, now=NOW).hits] == [wanted]


def test_a_phrase_without_spaces_may_begin_within_a_word_of_another_script(store):
    wanted, _ = said(store, "RESTAPI設計について話す", "別の話をしよう")
    result = search(store, None, '"API設計"', now=NOW)
    assert ([hit.uuid for hit in result.hits], "word for word" in str(result.notes)) == ([wanted], False)
