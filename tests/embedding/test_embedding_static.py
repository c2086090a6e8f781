"""Claims about the embedded default: its tokens, its vectors, and what they are worth."""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
import sys
from array import array
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.embedding.chosen_embedder import make_embedder
from crystal.embedding.embedded import DATA, SmallStaticModel, StaticEmbedder, small_static_model
from crystal.embedding.static import StaticModel, static_model
from crystal.embedding.wordpiece import WordPiece
from crystal.errors import DamagedError
from tests.support.table import each_row

KNOWN = json.loads((Path(__file__).parent.parent / "data" / "embedding" / "wordpiece.json").read_text("utf-8"))
UNKNOWN = 100

any_text = st.text(st.characters(exclude_categories=[]), max_size=60)


@pytest.fixture(scope="module")
def words() -> WordPiece:
    return WordPiece((DATA / "vocabulary.txt").read_text("utf-8").rstrip("\n").split("\n"), UNKNOWN)


@pytest.fixture(scope="module")
def embedder() -> StaticEmbedder:
    return StaticEmbedder()


def cosine(embedder: StaticEmbedder, one: str, other: str) -> float:
    a, b = (array("f", embedder.embed_query(text)) for text in (one, other))
    return sum(x * y for x, y in zip(a, b, strict=True))


@each_row(("text", "ids"), KNOWN)
def test_tokens_are_those_of_the_reference(words, text, ids):
    assert words.encode(text) == ids
    assert words.encode(text) == ids  # and again, from the words remembered


@pytest.mark.slow
@given(any_text, any_text)
def test_any_text_has_tokens_and_white_space_separates(words, one, other):
    assert words.encode(f"{one}\n{other}") == words.encode(one) + words.encode(other)


@pytest.mark.slow
@given(st.text(st.characters(codec="ascii"), max_size=60))
def test_the_short_way_for_plain_text_gives_what_the_long_way_gives(words, text):
    assert words.encode(text) == words.encode(text + " é")[:-1]


def test_the_memory_of_words_is_bounded(words, monkeypatch):
    monkeypatch.setattr("crystal.embedding.wordpiece.CACHED_WORDS", 10)
    for n in range(100):
        words.encode(f"word{n}")
    assert len(words._words) <= 12


@given(any_text)
def test_any_text_has_a_unit_vector(embedder, text):
    made = array("f", embedder.embed_documents([text])[0])
    assert len(made) == 256
    assert math.isclose(math.hypot(*made), 1, abs_tol=1e-5)


@each_row("text", ["", " \n\t", "x" * 500, "\ud800", "\U0001f937", "word " * 30_000])
def test_empty_unknown_and_endless_texts_have_a_unit_vector(embedder, text):
    assert math.isclose(math.hypot(*array("f", embedder.embed_documents([text])[0])), 1, abs_tol=1e-5)


@each_row("text", ["", "\ud800", "\U0001f937"])
def test_a_question_without_a_known_word_has_no_vector(embedder, text):
    assert embedder.embed_query(text) == b""


def test_texts_that_cancel_out_have_a_unit_vector(tmp_path):
    import numpy as np

    np.save(tmp_path / "vectors.npy", np.array([[1, 0], [-1, 0], [0, 1]], np.int8))
    np.save(tmp_path / "scales.npy", np.ones(3, np.float32))
    (tmp_path / "vocabulary.txt").write_text("good\nbad\n[UNK]\n")
    assert StaticModel(tmp_path).vector("good bad").tolist() == [0, 1]


def test_the_same_text_has_the_same_vector_whatever_stands_beside_it(embedder):
    texts = ["first", "second text", "", "first"]
    assert embedder.embed_documents(texts) == [embedder.embed_documents([text])[0] for text in texts]


PARAPHRASES = [
    ("How do I reset my password?", "I forgot my login credentials and need to recover the account"),
    ("The build fails again", "continuous integration is broken, compilation error"),
    ("fix the memory leak in the cache", "the cache never frees its RAM"),
    ("What did the doctor say?", "the physician told me to rest"),
    ("We moved the database to Postgres", "migrating our tables to PostgreSQL"),
    ("my daughter's birthday party", "celebrating when my kid turned five"),
    ("deploy the service to production", "release the application to the live servers"),
    ("the dog was barking all night", "noisy puppy kept us awake"),
]


def test_a_paraphrase_is_nearer_than_every_unrelated_text(embedder):
    for n, (question, answer) in enumerate(PARAPHRASES):
        others = [other for m, (_, other) in enumerate(PARAPHRASES) if m != n]
        near, far = cosine(embedder, question, answer), max(cosine(embedder, question, other) for other in others)
        assert near > far, (question, near, far)


@pytest.mark.slow
@given(any_text | st.lists(st.sampled_from(["deploy", "giraffe", "the", "E1234", "漢", "x" * 120])).map(" ".join))
def test_a_few_texts_get_the_same_vectors_without_numpy(text):
    small, whole = array("f", small_static_model().vector(text)), static_model().vector(text).tolist()
    assert max(abs(a - b) for a, b in zip(small, whole, strict=True)) < 1e-6


@pytest.mark.slow
def test_a_few_texts_do_not_load_numpy_and_many_do():
    program = (
        "import sys; from crystal.embedding.embedded import StaticEmbedder, FEW_CHARACTERS as few\n"
        "for text, is_loaded in (('a turn', False), ('a turn ' * few, True)):\n"
        "    assert len(StaticEmbedder().embed_documents([text])[0]) == 1024\n"
        "    assert ('numpy' in sys.modules) == is_loaded"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_frequent_words_count_little(embedder):
    assert cosine(embedder, "the of and to it is", "giraffe") < 0.5
    assert cosine(embedder, "the giraffe is in the of it", "giraffe") > 0.6


def test_the_vectors_of_known_tokens_are_unit_vectors():
    model = StaticModel()
    ids = model.tokens("hello " + "x" * 300 + " world")
    rows = model.rows(ids)
    assert len(ids) == 2
    assert rows.shape == (2, 256)
    assert [math.isclose(math.hypot(*row), 1, abs_tol=1e-5) for row in rows.tolist()] == [True, True]


def test_a_damaged_or_missing_table_is_damaged_and_says_what_to_do(tmp_path):
    def expect_damaged() -> None:
        with pytest.raises(DamagedError, match="damaged") as caught:
            StaticModel(tmp_path).vector("x")
        assert "install crystal again" in caught.value.hint
        with pytest.raises(DamagedError, match="damaged"):
            SmallStaticModel(tmp_path)

    expect_damaged()
    for file in DATA.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "vectors.npy").write_bytes((DATA / "vectors.npy").read_bytes()[:1000])
    expect_damaged()
    (tmp_path / "vectors.npy").write_bytes((DATA / "scales.npy").read_bytes())
    expect_damaged()


def test_the_package_stays_small_and_tells_licence_and_origin():
    assert sum(file.stat().st_size for file in DATA.iterdir()) <= 12_000_000
    assert "Apache License" in (DATA / "LICENSE").read_text()
    assert "all-MiniLM-L6-v2" in (DATA / "README.md").read_text()
    held = hashlib.sha256((DATA / "vocabulary.txt").read_bytes()).hexdigest()
    assert held == "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"


@pytest.mark.slow
def test_it_runs_on_numpy_alone():
    code = (
        "import sys\nfrom crystal.embedding.chosen_embedder import make_embedder\n"
        "made = make_embedder('embedded').embed_documents(['hello'])\n"
        "print(len(made[0]), sorted({'torch', 'onnxruntime', 'tokenizers', 'httpx', 'openai'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1024 []"


def test_the_factory_gives_it_without_loading_it():
    chosen = make_embedder("embedded")
    assert (chosen.provider, chosen.model, chosen.dimension) == ("embedded", "crystal-static-1", 256)
    assert "_maker" not in vars(chosen)
    assert len(chosen.embed_query("x")) == 1024
