"""What is installed stays whole: private, repaired, replaced and killed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from crystal.embedding.local.encoder import LocalEmbedder
from crystal.embedding.local.install import install_folder
from crystal.embedding.local.manifest import ModelManifest, installed_models, read_manifest
from crystal.errors import DamagedError, UsageError
from tests.support.tiny_models import write_tiny


def install(tmp_path: Path, folder: Path, name: str = "tiny") -> ModelManifest:
    return install_folder(tmp_path / "models", folder, name, 1)


def test_what_is_installed_is_for_its_owner_alone_and_whole(tmp_path):
    found = install(tmp_path, write_tiny(tmp_path / "source"))
    folder = tmp_path / "models" / "tiny"
    assert sorted(path.name for path in folder.iterdir()) == ["crystal.json", "model.onnx", "tokenizer.json"]
    assert all(path.stat().st_mode & 0o077 == 0 for path in [folder.parent, folder, *folder.iterdir()])
    assert read_manifest(folder.parent, "tiny") == found
    assert list(installed_models(folder.parent)) == [found]


@pytest.mark.slow
@pytest.mark.parametrize(
    "harm",
    [
        lambda f: (f / "model.onnx").write_bytes((f / "model.onnx").read_bytes()[:-1]),
        lambda f: (f / "model.onnx").write_bytes((f / "model.onnx").read_bytes()[:-1] + b"\x55"),
        lambda f: (f / "model.onnx").unlink(),
        lambda f: (f / "tokenizer.json").write_text("x"),
        lambda f: (f / "crystal.json").write_text("{"),
        lambda f: (f / "crystal.json").write_text('{"schema": 1, "files": {"../../x": {"size": 1, "sha256": ""}}}'),
        lambda f: (f / "crystal.json").write_text(
            (f / "crystal.json").read_text().replace('"dimension": 32', '"dimension": "a"')
        ),
    ],
)
def test_a_damaged_model_says_so_and_is_mended_by_installing_it_again(tmp_path, harm):
    source = write_tiny(tmp_path / "source")
    found = install(tmp_path, source)
    home = tmp_path / "models"
    harm(home / "tiny")
    with pytest.raises(DamagedError, match="the model tiny is damaged") as caught:
        LocalEmbedder(home, "tiny", 1).embed_query("the")
    assert "install it again" in caught.value.hint
    assert install(tmp_path, source).digest == found.digest
    LocalEmbedder(home, "tiny", 1).embed_query("the")


@pytest.mark.slow
def test_installing_twice_is_harmless_and_another_model_takes_no_name_that_is_taken(tmp_path):
    first = install(tmp_path, write_tiny(tmp_path / "source"))
    assert install(tmp_path, write_tiny(tmp_path / "source")) == first
    with pytest.raises(UsageError, match="another model tiny"):
        install(tmp_path, write_tiny(tmp_path / "other", seed=8))
    assert read_manifest(tmp_path / "models", "tiny") == first
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["tiny"]


KILLED = """
import os, sys, pathlib
from crystal.embedding.local import install
at = int(sys.argv[3])
def trace(frame, event, arg, seen=[0]):
    if frame.f_code.co_filename == install.__file__ and event == "line":
        seen[0] += 1
        if seen[0] == at:
            os._exit(9)
    return trace
sys.settrace(trace)
install.install_folder(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), "tiny", 1)
"""


@pytest.mark.slow
def test_an_installation_killed_at_any_line_leaves_nothing_that_counts(tmp_path):
    import subprocess

    source, home = write_tiny(tmp_path / "source"), tmp_path / "models"
    ended, seen = set(), set()
    for at in range(8, 60, 3):
        done = subprocess.run([sys.executable, "-c", KILLED, str(home), str(source), str(at)], check=False, timeout=60)
        ended.add(done.returncode)
        for found in installed_models(home):
            assert isinstance(found, ModelManifest)
            LocalEmbedder(home, "tiny", 1).embed_query("the")
            seen.add("whole")
        if done.returncode == 0:
            break
    assert ended == {0, 9}
    install_folder(home, source, "tiny", 1)
    assert [path.name for path in home.iterdir()] == ["tiny"]
