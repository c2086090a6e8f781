"""Scripts with vowel signs, letters with signs, what the model does not know: found by the words, and by no accident."""

from __future__ import annotations

import pytest

from crystal.embedding.choice import make_embedder
from crystal.query import parse_query
from crystal.store import vectors
from tests.ranked_by import each_way, search  # noqa: F401 - a fixture
from tests.store_factory import DAY, NOW, add_turn, open_store


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path) as store:
        yield store


def said(store, *texts):
    return [add_turn(store, text, session=f"s{number}", ts=NOW - DAY * number) for number, text in enumerate(texts)]


@pytest.mark.parametrize(
    "word", ["डेटाबेस", "ฐานข้อมูล", "كِتَاب", "டேட்டாபேஸ்", "cafe\u0301", "ဒေတာဘေ့စ်"],
)  # fmt: skip
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
def test_a_word_of_a_script_with_vowel_signs_is_found_whole(store, ranked_by, text, other, query):
    wanted, _ = said(store, text, other)
    if ranked_by == "engines" and query in ("كِتَاب", "احمد"):
        pytest.skip("the keyword index of SQLite keeps vowel signs of Arabic")
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
    monkeypatch.setattr("tests.ranked_by._way", "index")
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
