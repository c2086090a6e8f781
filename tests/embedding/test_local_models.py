"""Claims about models on this machine: their graphs, vectors and tokens, and what a hostile folder can do."""

from __future__ import annotations

import hashlib
import json
import sys
import zipfile
from array import array
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from crystal.embedding.chosen_embedder import make_embedder
from crystal.embedding.local import build
from crystal.embedding.local import encoder as running
from crystal.embedding.local.encoder import LocalEmbedder
from crystal.embedding.local.install import install_folder
from crystal.embedding.local.manifest import ModelManifest, read_manifest
from crystal.errors import CrystalError, DamagedError, NotConfiguredError, UsageError
from tests.support.examples import examples
from tests.support.table import each_row
from tests.support.tiny_models import CONFIG, WORDS, forward, safetensors, tiny_graph, tiny_weights, write_tiny

TEXTS = ["the deploy failed", "retry", "abc def the the deploy", "zebra quick fox jumps", "the"]

pytest.importorskip("onnxruntime")


def install(tmp_path: Path, folder: Path, name: str = "tiny", *, is_float32: bool = False) -> ModelManifest:
    return install_folder(tmp_path / "models", folder, name, 1, is_float32=is_float32)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    source = write_tiny(folder / "source")
    install(folder, source)
    install(folder, source, "whole", is_float32=True)
    return folder / "models"


@pytest.fixture(scope="module")
def small(home: Path) -> LocalEmbedder:
    return LocalEmbedder(home, "tiny", 1)


def ids_of(text: str) -> list[int]:
    known = {word: place for place, word in enumerate(WORDS)}
    ids = []
    for word in text.split():
        ids += [known[word]] if word in known else [known[word[0]], *(known[f"##{c}"] for c in word[1:])]
    return [known["[CLS]"], *ids, known["[SEP]"]]


def vector(held: bytes) -> np.ndarray:
    return np.frombuffer(held, "<f4")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "weights", "least"), [("whole", "float32", 0.99999), ("tiny", "int8", 0.98)])
def test_the_graph_gives_what_the_definition_of_the_network_gives(home, name, weights, least):
    embedder = LocalEmbedder(home, name, 1)
    assert embedder.manifest.weights == weights
    held = tiny_weights()
    for text, made in zip(TEXTS, embedder.embed_documents(TEXTS), strict=True):
        wanted = forward(held, ids_of(text)).mean(0)
        assert vector(made) @ wanted / np.linalg.norm(wanted) >= least
        assert np.isclose(np.linalg.norm(vector(made)), 1, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny", "whole"])
def test_a_vector_does_not_depend_on_the_texts_beside_it(home, name):
    embedder = LocalEmbedder(home, name, 1)
    together = embedder.embed_documents([*TEXTS, "a b c " * 15, ""])
    for text, made in zip(TEXTS, together, strict=False):
        assert np.allclose(vector(made), vector(embedder.embed_query(text)), atol=2e-6)


def test_the_vectors_of_tokens_are_those_of_the_text_alone(home):
    embedder = LocalEmbedder(home, "whole", 1)
    for text, (ids, rows) in zip(TEXTS, embedder.token_vectors(TEXTS), strict=True):
        states = forward(tiny_weights(), ids_of(text))[1:-1]
        assert ids == ids_of(text)[1:-1]
        assert np.allclose(rows, states / np.linalg.norm(states, axis=1, keepdims=True), atol=1e-4)
    assert [(len(ids), rows.shape) for ids, rows in embedder.token_vectors(["", "the"])] == [(0, (0, 32)), (1, (1, 32))]
    assert embedder.token_vectors([]) == []


def test_an_installed_model_gives_vectors_of_tokens_and_a_remote_one_none(home):
    chosen = make_embedder("local", "tiny", models=home)
    assert chosen.has_token_vectors
    made = chosen.token_vectors(["the deploy", "failed"])
    assert [len(ids) for ids, _ in made] == [len(rows) for _, rows in made]
    assert all(np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5) for _, rows in made)
    assert {rows.shape[1] for _, rows in made} == {chosen.dimension}
    other = make_embedder("ollama")
    assert not other.has_token_vectors
    with pytest.raises(UsageError):
        other.token_vectors(["x"])


@pytest.mark.slow
@given(st.lists(st.text(st.characters(exclude_categories=[]), max_size=80), max_size=5))
@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_texts_have_unit_vectors_in_order(small, texts):
    made = small.embed_documents(texts)
    assert len(made) == len(texts)
    for text, each in zip(texts, made, strict=True):
        assert np.isclose(np.linalg.norm(vector(each)), 1, atol=1e-4)
        assert np.allclose(vector(each), vector(small.embed_query(text)), atol=1e-5)


@pytest.mark.slow
def test_endless_texts_are_cut_and_batches_are_bounded_by_tokens(small, monkeypatch):
    sizes = []
    real = small.encoder.session.run

    class Counting:
        def run(self, outputs, fed):
            sizes.append(fed["input_ids"].shape)
            return real(outputs, fed)

    monkeypatch.setattr(small.encoder, "session", Counting())
    small.embed_documents(["the deploy " * 10_000, *(["retry"] * 700)])
    assert max(width for _, width in sizes) == 64  # the places of the tiny model
    assert max(count * width for count, width in sizes) <= running.MAX_BATCH_TOKENS
    assert sizes[0][1] == 64  # the longest first


def test_the_factory_gives_it_without_loading_it_and_under_a_name_with_its_digest(home):
    chosen = make_embedder("local", "tiny", models=home, threads=2)
    found = read_manifest(home, "tiny")
    assert (chosen.provider, chosen.model, chosen.dimension) == ("local", f"tiny@{found.digest}", 32)
    assert "_maker" not in vars(chosen)
    assert len(array("f", chosen.embed_query("the"))) == 32
    assert make_embedder("local", chosen.model, models=home).model == chosen.model
    with pytest.raises(NotConfiguredError, match="was replaced by"):
        make_embedder("local", "tiny@00000000", models=home)
    with pytest.raises(UsageError, match="32 dimensions"):
        make_embedder("local", "tiny", 64, models=home)
    with pytest.raises(NotConfiguredError, match="not installed") as caught:
        make_embedder("local", models=home)
    assert caught.value.hint == "crystal models install minilm"


@each_row("name", ["../x", "a/b", "", ".hidden", "A", "x" * 65, "openai", "none", "a\0b", "~"])
def test_no_name_leads_out_of_the_folder_of_models(home, name):
    with pytest.raises(UsageError, match="cannot be the name"):
        read_manifest(home, name)


def test_a_missing_package_says_which_extra_has_it(tmp_path, home, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(NotConfiguredError) as caught:
        LocalEmbedder(home, "tiny", 1).embed_query("x")
    assert "pip install huggingface-hub onnx onnxruntime tokenizers" in (caught.value.hint or "")
    with pytest.raises(NotConfiguredError):
        install(tmp_path, write_tiny(tmp_path / "source"))
    assert not (tmp_path / "models").exists()


# ------------------------------------------------------------------------------------------------------- folders


@pytest.mark.slow
@pytest.mark.parametrize("place", ["model.onnx", "onnx/model.onnx"])
def test_graph_tokenizer_and_a_length_are_a_model(tmp_path, home, place):
    source = write_tiny(tmp_path / "source")
    (source / "onnx").mkdir()
    (source / "model.onnx").rename(source / place)
    (source / "config.json").unlink()
    (source / "sentence_bert_config.json").write_text('{"max_seq_length": 64}')
    found = install(tmp_path, source)
    assert (found.weights, found.dimension, found.pooling) == ("int8", 32, "mean")
    made = LocalEmbedder(tmp_path / "models", "tiny", 1).embed_query(TEXTS[0])
    assert np.allclose(vector(made), vector(LocalEmbedder(home, "tiny", 1).embed_query(TEXTS[0])), atol=1e-6)


@pytest.mark.slow
def test_a_graph_that_came_with_8_bits_is_preferred_and_taken_as_it_is(tmp_path, home):
    source = write_tiny(tmp_path / "source")
    (source / "model_quantized.onnx").write_bytes((home / "tiny" / "model.onnx").read_bytes())
    found = install(tmp_path, source)
    assert (found.weights, found.is_batched) == ("as given", False)
    assert install(tmp_path, source, "whole", is_float32=True).weights == "float32"


@pytest.mark.slow
def test_weights_stay_whole_where_8_bits_change_the_vectors_too_much(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "MIN_COSINE", 1.1)
    found = install(tmp_path, write_tiny(tmp_path / "source"))
    assert found.weights == "float32"
    assert (tmp_path / "models" / "tiny" / "model.onnx").read_bytes() == tiny_graph()
    assert sorted(found.files) == ["model.onnx", "tokenizer.json"]


@pytest.mark.slow
def test_two_installations_of_the_same_files_have_the_same_digest_wherever_they_are(tmp_path):
    source = write_tiny(tmp_path / "source")
    assert install(tmp_path / "a", source).digest == install(tmp_path / "b", source).digest


@pytest.mark.slow
def test_pooling_prefixes_and_length_are_read_from_the_folder(tmp_path):
    source = write_tiny(tmp_path / "source")
    (source / "1_Pooling").mkdir()
    (source / "1_Pooling" / "config.json").write_text(
        '{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}'
    )
    (source / "config_sentence_transformers.json").write_text('{"prompts": {"query": "retry ", "passage": "the "}}')
    (source / "sentence_bert_config.json").write_text('{"max_seq_length": 9}')
    found = install(tmp_path, source, is_float32=True)
    assert (found.pooling, found.query_prefix, found.document_prefix, found.most_tokens) == ("cls", "retry ", "the ", 9)
    embedder = LocalEmbedder(tmp_path / "models", "tiny", 1)
    states = forward(tiny_weights(), ids_of("retry deploy"))
    assert vector(embedder.embed_query("deploy")) @ states[0] / np.linalg.norm(states[0]) > 0.9999


def test_a_tokenizer_of_any_kind_is_read_by_the_library(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    source = write_tiny(tmp_path / "source")
    made = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing("[CLS] $A [SEP]", None, [("[CLS]", 2), ("[SEP]", 3)])
    made.enable_padding(length=20)
    made.save(str(source / "tokenizer.json"))
    install(tmp_path, source, is_float32=True)
    embedder = LocalEmbedder(tmp_path / "models", "tiny", 1)
    wanted = forward(tiny_weights(), ids_of("the deploy failed")).mean(0)
    assert vector(embedder.embed_query("the deploy failed")) @ wanted / np.linalg.norm(wanted) > 0.9999
    assert embedder.token_vectors(["the deploy"])[0][0] == ids_of("the deploy")[1:-1]
    assert len(embedder.embed_documents(["", "\ud800", "the " * 9999])) == 3
    (source / "tokenizer.json").write_text("{}")
    with pytest.raises(DamagedError, match=r"tokenizer\.json"):
        install(tmp_path, source, "broken")


def test_special_tokens_that_a_text_spells_out_are_text(home):
    ids = LocalEmbedder(home, "whole", 1).token_vectors(["[SEP]"])[0][0]
    assert ids
    assert WORDS.index("[SEP]") not in ids


@each_row(
    ("change", "words"),
    [
        (lambda f: (f / "model.onnx").unlink(), "has no model.onnx"),
        (lambda f: (f / "tokenizer.json").unlink(), "has no tokenizer.json"),
        (lambda f: (f / "tokenizer.json").write_text("{}"), "tokenizer.json"),
        (lambda f: (f / "model.onnx").write_bytes(b""), "cannot run"),
        (lambda f: (f / "model.onnx").write_bytes(b"no graph"), "cannot run"),
        (lambda f: (f / "model.onnx").write_bytes(tiny_graph()[:-2000]), "cannot run"),
        (lambda f: (f / "config.json").write_text("{"), "not JSON"),
        (lambda f: (f / "modules.json").write_text('[{"type": "x.Dense"}]'), "no vectors"),
    ],
)
def test_a_folder_that_is_no_model_is_refused_with_the_reason_and_leaves_nothing(tmp_path, change, words):
    source = write_tiny(tmp_path / "source")
    change(source)
    with pytest.raises(CrystalError, match=words) as caught:
        install(tmp_path, source)
    assert isinstance(caught.value, UsageError | DamagedError)
    assert caught.value.hint
    assert list((tmp_path / "models").iterdir()) == []


@pytest.mark.slow
def test_an_odd_pooling_is_refused_and_a_ready_graph_that_is_garbage_too(tmp_path):
    source = write_tiny(tmp_path / "source")
    (source / "1_Pooling").mkdir()
    (source / "1_Pooling" / "config.json").write_text('{"pooling_mode_max_tokens": true}')
    with pytest.raises(UsageError, match="pooling"):
        install(tmp_path, source)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "pooling"),
    [
        ({"pooling_mode_cls_token": True}, "cls"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, "mean"),
        ({"pooling_mode_lasttoken": True}, "lasttoken"),
        ({"pooling_mode": "cls"}, "cls"),
        ({}, "mean"),
    ],
)
def test_both_forms_of_the_pooling_file_are_read(tmp_path, settings, pooling):
    source = write_tiny(tmp_path / "source")
    (source / "1_Pooling").mkdir()
    (source / "1_Pooling" / "config.json").write_text(json.dumps(settings))
    assert install(tmp_path, source).pooling == pooling


def test_the_script_for_minilm_writes_a_graph_of_its_weights(tmp_path, monkeypatch):
    from benchmarks import minilm_onnx

    weights = safetensors(tiny_weights())
    wheel = tmp_path / "x.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, held in (("model.safetensors", weights), ("config.json", json.dumps(CONFIG)), ("evil.py", b"")):
            archive.writestr(minilm_onnx.FOLDER + name, held)
        archive.writestr(minilm_onnx.FOLDER + "../../escaped.json", b"{}")
    monkeypatch.setattr(minilm_onnx, "fetch_wheel", lambda _: wheel)
    monkeypatch.setattr(sys, "argv", ["minilm_onnx.py", str(tmp_path / "out")])
    with pytest.raises(SystemExit, match="SHA-256"):
        minilm_onnx.main()
    monkeypatch.setattr(minilm_onnx, "WEIGHTS_SHA256", hashlib.sha256(weights).hexdigest())
    minilm_onnx.main()
    assert (tmp_path / "out" / "model.onnx").read_bytes() == tiny_graph()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["config.json", "model.onnx"]
    assert not list(tmp_path.rglob("escaped*"))
