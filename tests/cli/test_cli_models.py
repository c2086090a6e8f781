"""Claims about ``crystal models``: choosing, trying on the memory, the change-over, and that keywords always answer."""

from __future__ import annotations

import json
import random
import sqlite3
from pathlib import Path

import pytest

from crystal.app.context import default_paths, open_reader
from crystal.errors import NotConfiguredError, UnavailableError
from crystal.evaluate.trial import Size, try_model
from crystal.store import Store
from crystal.store.search import vectors
from crystal.store.search.trials import sample_turns
from tests.project.test_docs_reference import documented, keys_of, pattern_of
from tests.support.capture_machine import NOW, line
from tests.support.command import crystal
from tests.support.embedding_store import Dice
from tests.support.providers_server import KEY, serve_providers, status
from tests.support.table import each_row
from tests.support.tiny_models import write_tiny

NOUNS = (
    "invoice ledger parser socket harbor lantern orchard pylon quarry rocket saddle tunnel violin walnut zipper".split()
)
VERBS = "rejects rewrites delays duplicates encrypts forwards groups hides ignores joins keeps loads merges".split()


def said(number: int) -> str:
    draw = random.Random(number)
    sentences = [
        f"The {draw.choice(NOUNS)} of module {number} {draw.choice(VERBS)} every {draw.choice(NOUNS)} before {draw.choice(NOUNS)} number {draw.randrange(1000)}."
        for _ in range(4)
    ]
    return " ".join(sentences)


@pytest.fixture
def memory(home: Path) -> Path:
    """A memory of forty turns: requests and answers in two sessions."""
    folder = home / ".claude" / "projects" / "p"
    folder.mkdir(parents=True)
    for session in ("one", "two"):
        lines = [
            line(said(n) + f" ({session})", role="user" if n % 2 == 0 else "assistant", at=NOW + n) for n in range(20)
        ]
        (folder / f"{session}.jsonl").write_bytes(b"".join(lines))
    assert crystal("init", "--yes", "--import").code == 0
    return home


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    pytest.importorskip("onnxruntime")
    return write_tiny(tmp_path / "tiny")


def as_json(*words: str) -> dict[str, object]:
    done = crystal("models", *words, "--json")
    assert done.code == 0, done.err
    return json.loads(done.out)


def row(name: str) -> dict[str, object]:
    return next(one for one in as_json()["models"] if one["name"] == name)


def search_mode() -> str:
    found = json.loads(crystal("search", "invoice harbor", "--json").out)
    assert found["hits"]
    return found["mode"]


@pytest.mark.slow
def test_a_model_is_installed_chosen_filled_and_removed(memory, tiny):
    assert (row("embedded")["state"], row("minilm")["state"]) == ("serving", "available")
    made = as_json("install", str(tiny))
    assert (made["name"], made["dimension"], made["weights"]) == ("tiny", 32, "int8")
    assert row("tiny")["state"] == "installed"
    used = as_json("use", "tiny")
    assert (used["changed"], used["waiting"], used["serving"]) == (True, 40, "embedded crystal-static-1")
    assert (row("tiny")["state"], row("tiny")["chosen"], row("embedded")["state"]) == ("chosen", True, "serving")
    assert search_mode() == "hybrid"  # by the old vectors
    assert crystal("sync").code == 0
    assert (row("tiny")["state"], row("tiny")["done"], row("tiny")["chunks"]) == ("serving", 40, 40)
    assert search_mode() == "hybrid"
    refused = crystal("models", "remove", "tiny")
    assert (refused.code, "in use" in refused.err) == (2, True)
    back = as_json("use", "embedded", "--now")
    assert (back["embedded"], back["waiting"], back["serving"]) == (40, 0, "embedded crystal-static-1")
    assert as_json("remove", "tiny") == {"schema": 1, "removed": "tiny", "was_in_use": False}
    assert crystal("models", "remove", "tiny").code == 1


@pytest.mark.slow
def test_words_for_people_say_what_happens_next(memory, tiny):
    assert "tiny is installed: 32 dimensions" in crystal("models", "install", str(tiny)).out
    assert crystal("models", "use", "tiny").out.splitlines() == [
        "tiny is chosen",
        "40 chunks get new vectors in the background, or now with: crystal sync",
        "embedded crystal-static-1 serves until they are complete",
    ]
    assert "* tiny" in crystal("models").out
    assert crystal("models", "list").out == crystal("models").out
    assert crystal("models", "use", "tiny", "--now").out.splitlines()[-1] == "40 chunks embedded; it serves now"


@pytest.mark.slow
def test_filling_shows_how_far_it_is(memory, tiny, monkeypatch):
    crystal("models", "install", str(tiny))
    crystal("models", "use", "tiny")
    monkeypatch.setattr("crystal.embedding.pending.BATCH", 16)
    with Store.open(default_paths().db) as store:
        with open_reader() as machine:
            chosen = machine.embedder()
        generation = vectors.ensure_generation(store, chosen.provider, chosen.model, chosen.dimension, NOW)
        waiting = vectors.pending_chunks(store, generation, 10)
        vectors.put_vectors(store, generation, [(ident, chosen.embed_query(text)) for ident, _, text in waiting])
    assert (row("tiny")["state"], row("tiny")["done"], row("tiny")["chunks"]) == ("filling", 10, 40)
    assert "filling, 10 of 40 chunks (25 %)" in crystal("models").out


@pytest.mark.slow
def test_another_model_under_the_same_name_gets_vectors_of_its_own(memory, tiny, tmp_path):
    crystal("models", "install", str(tiny), "--name", "mine")
    crystal("models", "use", "mine", "--now")
    first = json.loads(crystal("status", "--json").out)["embedding"]["serving"]["model"]
    assert as_json("remove", "mine", "--force")["was_in_use"] is True
    assert search_mode() == "keywords"
    other = write_tiny(tmp_path / "other", seed=9)
    crystal("models", "install", str(other), "--name", "mine")
    assert search_mode() == "keywords"  # the vectors are not its own
    assert crystal("sync").code == 0
    second = json.loads(crystal("status", "--json").out)["embedding"]["serving"]["model"]
    assert (first.partition("@")[0], second.partition("@")[0]) == ("mine", "mine")
    assert first != second
    assert search_mode() == "hybrid"


@pytest.mark.slow
@pytest.mark.parametrize("harm", ["damaged", "removed", "no runtime"])
def test_keywords_answer_and_say_why_when_a_model_is_out_of_order(memory, tiny, harm, monkeypatch):
    crystal("models", "install", str(tiny))
    crystal("models", "use", "tiny", "--now")
    folder = default_paths().models / "tiny"
    if harm == "damaged":
        (folder / "model.onnx").write_bytes((folder / "model.onnx").read_bytes()[:-9] + b"\0" * 9)
    elif harm == "removed":
        (folder / "crystal.json").unlink()
    else:
        monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    found = json.loads(crystal("search", "invoice harbor", "--json").out)
    assert (found["mode"], bool(found["hits"])) == ("keywords", True)
    assert {"damaged": "damaged", "removed": "not installed", "no runtime": "onnxruntime"}[harm] in found["notes"][0]
    assert crystal("sync").code == 0
    assert crystal("status").code == 0
    assert harm == "no runtime" or "fail" in crystal("doctor").out.lower()
    used = crystal("models", "use", "tiny")
    assert used.code == {"damaged": 6, "removed": 1, "no runtime": 3}[harm]
    assert crystal("models").code == 0
    assert crystal("models", "use", "embedded", "--now").code == 0
    assert search_mode() == "hybrid"


@pytest.mark.slow
def test_a_model_that_is_chosen_but_gone_leaves_the_old_vectors_in_use(memory, tiny):
    crystal("models", "install", str(tiny))
    crystal("models", "use", "tiny")
    crystal("models", "remove", "tiny", "--force")
    assert search_mode() == "hybrid"
    assert "the model tiny is not installed" in crystal("doctor").out


@pytest.mark.slow
def test_an_outage_of_a_provider_never_takes_keywords_away(memory):
    with serve_providers() as server:
        crystal("config", "set", "embedding.base_url", server.ollama)
        crystal("config", "set", "embedding.provider", "ollama")
        assert crystal("models", "use", "ollama", "--now").code == 0
        assert search_mode() == "hybrid"
        server.fail_next(*[status(500)] * 50)
        assert search_mode() == "keywords"
    found = json.loads(crystal("search", "invoice harbor", "--json").out)
    assert (found["mode"], bool(found["hits"])) == ("keywords", True)


# ------------------------------------------------------------------------------------------------------ what is asked


@pytest.mark.slow
@pytest.mark.parametrize("name", ["openai", "voyage:voyage-3.5", "google"])
def test_nothing_is_sent_away_without_consent_in_clear_words(memory, name, monkeypatch):
    monkeypatch.setenv("VOYAGE_API_KEY", "k")
    done = crystal("models", "use", name)
    assert done.code == 2
    assert (
        f"{name.partition(':')[0]} will receive the text of 40 chunks now, and every later one, and every question"
        in done.err
    )
    assert f"crystal models use {name} --yes" in done.err
    assert row("embedded")["chosen"] is True


@pytest.mark.slow
def test_a_provider_without_a_key_is_not_chosen(memory):
    done = crystal("models", "use", "voyage", "--yes")
    assert (done.code, "no API key for voyage" in done.err) == (3, True)
    assert row("embedded")["chosen"] is True


@pytest.mark.slow
def test_ollama_on_this_machine_needs_no_consent_and_elsewhere_does(memory, monkeypatch):
    assert as_json("use", "ollama:all-minilm")["changed"] is True
    assert row("ollama:all-minilm")["chosen"] is True
    crystal("models", "use", "embedded")
    monkeypatch.setenv("CRYSTAL_EMBEDDING_BASE_URL", "http://box.test:11434")
    assert crystal("models", "use", "ollama").code == 2


@pytest.mark.slow
def test_the_address_and_dimension_of_the_old_provider_go_with_it(memory, tiny):
    crystal("config", "set", "embedding.base_url", "http://127.0.0.1:9")
    crystal("config", "set", "embedding.provider", "ollama")
    crystal("config", "set", "embedding.dimension", "512")
    crystal("models", "install", str(tiny))
    assert as_json("use", "tiny")["changed"] is True
    settings = default_paths().config_file.read_text()
    assert "base_url" not in settings
    assert "dimension" not in settings
    as_json("use", "embedded")
    assert "model =" not in default_paths().config_file.read_text()


@each_row(
    ("words", "code", "told"),
    [
        (("use", "nothing"), 1, "no model 'nothing'"),
        (("use", "minilm"), 3, "crystal models install minilm"),
        (("use", "openai:"), 2, "cannot be the name"),
        (("use", "../x"), 2, "cannot be the name"),
        (("install", "/nowhere"), 2, "not a folder"),
        (("install", "nothing"), 2, "not a folder"),
        (("install", "minilm", "--name", "../x"), 2, "cannot be the name"),
        (("remove", "embedded"), 2, "part of crystal"),
        (("remove", "nothing"), 1, "not installed"),
        (("remove", "../x"), 2, "cannot be the name"),
    ],
)
def test_what_cannot_be_done_says_why(home, words, code, told):
    pytest.importorskip("onnxruntime")
    done = crystal("models", *words)
    assert (done.code, told in done.err) == (code, True), done.err


@pytest.mark.slow
def test_without_a_memory_a_model_can_be_chosen_all_the_same(home, tiny):
    crystal("models", "install", str(tiny))
    assert as_json("use", "tiny")["waiting"] == 0
    assert not default_paths().db.exists()
    assert (row("tiny")["state"], row("tiny")["chosen"]) == ("chosen", True)


# ------------------------------------------------------------------------------------------------------------- eval


@pytest.mark.slow
def test_a_trial_shows_the_difference_changes_nothing_and_is_the_same_twice(memory, tiny):
    crystal("models", "install", str(tiny))
    before = default_paths().db.read_bytes()
    first, second = (as_json("use", "tiny", "--eval", "--questions", "20") for _ in range(2))
    assert (first["changed"], row("embedded")["chosen"]) == (False, True)
    for one in (first, second):
        one["eval"]["new"].pop("chunks_a_second")
        one["eval"]["present"].pop("chunks_a_second")
    assert first == second
    trial = first["eval"]
    assert trial["questions"] >= 20
    assert trial["keywords"]["hit_at_5"] > 0.3
    assert trial["new"]["name"].startswith("local tiny@")
    assert trial["verdict"] in ("better", "worse", "no clear difference")
    assert default_paths().db.read_bytes() == before
    shown = crystal("models", "use", "tiny", "--eval", "--questions", "10").out
    assert "keywords alone" in shown
    assert "nothing is changed; to use it: crystal models use tiny --yes" in shown
    chosen = as_json("use", "tiny", "--eval", "--questions", "10", "--yes", "--now")
    assert (chosen["changed"], chosen["embedded"], row("tiny")["state"]) == (True, 40, "serving")


@pytest.mark.slow
def test_every_key_of_the_json_is_documented_and_the_other_way_round(memory, tiny):
    few = ("--eval", "--questions", "10")
    seen = {
        "crystal models install": [as_json("install", str(tiny))],
        "crystal models use": [as_json("use", "tiny"), as_json("use", "tiny", *few, "--now", "--yes")],
        "crystal models": [as_json()],
    }
    crystal("config", "set", "embedding.provider", "none")
    with sqlite3.connect(default_paths().db) as db:
        db.execute("UPDATE embedding_generations SET model = 'gone@00000000'")
    db.close()
    seen["crystal models use"].append(as_json("use", "tiny", *few))
    seen["crystal models remove"] = [as_json("remove", "tiny", "--force")]
    for section, answers in seen.items():
        keys = {key for answer in answers for key in keys_of(answer)}
        patterns = [pattern_of(each) for each in documented(section)]
        import re

        assert not [key for key in keys if not any(re.fullmatch(each, key) for each in patterns)], section
        assert not [each for each in patterns if not any(re.fullmatch(each, key) for key in keys)], section


@pytest.mark.slow
def test_a_trial_hides_what_it_looks_for_and_the_sample_is_drawn_by_hash(memory):
    with open_reader() as machine:
        sampled = sample_turns(machine.store, 100, least=50)
        assert len(sampled) == 40
        assert [one.id for one in sample_turns(machine.store, 7, least=50)] == [one.id for one in sampled[:7]]
        answers = [one for one in sampled if one.role == "assistant"]
        assert all(one.before is not None for one in answers)
        from crystal.evaluate.trial import _moments

        moments = _moments(sampled, 30)
    asked = [one for one in moments if one.question]
    assert moments[: len(asked)] == asked
    assert len(asked) >= 20
    for one in asked:
        assert one.question not in one.text
        assert all(one.question != other.text for other in moments)


@pytest.mark.slow
def test_a_trial_is_bounded_in_time_and_says_what_it_could_not_do(memory, tmp_path):
    ticks = iter(range(0, 10_000, 5))

    def slowly() -> float:
        return float(next(ticks))

    with open_reader() as machine:
        (tmp_path / "a").mkdir()
        size = Size(10, 40, 6.0)
        trial = try_model(machine.store, None, Dice(), scratch=tmp_path / "a", size=size, now=NOW, clock=slowly)
        assert (trial.turns, trial.is_cut, trial.present) == (32, True, None)
        (tmp_path / "b").mkdir()
        with pytest.raises(NotConfiguredError, match="turns to try"):
            try_model(machine.store, None, Dice(), scratch=tmp_path / "b", size=Size(10, 5, 1.0), now=NOW)


@pytest.mark.slow
def test_a_present_model_that_fails_is_left_out_and_a_new_one_that_fails_is_an_error(memory, tmp_path):
    def down(_: object) -> None:
        raise UnavailableError("it is down")

    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with open_reader() as machine:
        broken = Dice("x", fail=down)
        trial = try_model(machine.store, broken, Dice(), scratch=tmp_path / "a", size=Size(), now=NOW)
        assert (trial.present, trial.why_no_present) == (None, "it is down")
        with pytest.raises(UnavailableError, match="it is down"):
            try_model(machine.store, Dice(), broken, scratch=tmp_path / "b", size=Size(), now=NOW)


@pytest.mark.slow
def test_what_a_trial_pays_for_is_written_down(memory, monkeypatch):
    monkeypatch.setenv("VOYAGE_API_KEY", KEY)
    with serve_providers() as server:
        monkeypatch.setenv("CRYSTAL_EMBEDDING_BASE_URL", server.base_url("voyage"))
        assert crystal("models", "use", "voyage", "--eval", "--questions", "10", "--yes").code == 0
    with open_reader() as machine:
        rows = machine.store.rows("SELECT provider, input_tokens > 0 FROM costs")
    assert rows == [("voyage", 1)]


@pytest.mark.slow
def test_a_memory_that_is_too_small_for_a_trial_says_so(home, tiny):
    crystal("init", "--yes")
    crystal("models", "install", str(tiny))
    done = crystal("models", "use", "tiny", "--eval")
    assert (done.code, "crystal backfill" in done.err) == (3, True)
