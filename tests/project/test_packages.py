"""The hint to install a package works in the environment that crystal runs in."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from crystal.config import packages
from relay_worker.__main__ import PACKAGES

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """An environment called ``crystal tool``, with or without pip and uv."""
    prefix = tmp_path / "crystal tool"
    (prefix / "bin").mkdir(parents=True)

    def made(*, pip: bool, uv: bool, note: str | None = None) -> str:
        if note is not None:
            (prefix / note).touch()
        monkeypatch.setattr(sys, "prefix", str(prefix))
        monkeypatch.setattr(sys, "executable", str(prefix / "bin" / "python"))
        monkeypatch.setattr(importlib.util, "find_spec", lambda _: object() if pip else None)
        monkeypatch.setattr(packages.shutil, "which", lambda _: "/bin/uv" if uv else None)
        return packages.install_command("onnxruntime", "tokenizers").replace(str(prefix), "PREFIX")

    return made


def test_each_way_of_installing_has_its_command(environment):
    python = "'PREFIX/bin/python'"
    assert environment(pip=True, uv=True) == f"{python} -m pip install onnxruntime tokenizers"
    assert environment(pip=False, uv=True) == f"uv pip install --python {python} onnxruntime tokenizers"
    assert environment(pip=False, uv=False).startswith(f"{python} -m ensurepip && ")


@pytest.mark.parametrize(
    ("note", "command"),
    [("pipx_metadata.json", "pipx inject 'crystal tool' "), ("uv-receipt.toml", "uv pip install --python ")],
)
def test_the_tools_that_made_the_environment_are_asked_first(environment, note, command):
    assert environment(pip=True, uv=True, note=note).startswith(command)


@pytest.mark.slow
def test_the_command_can_be_run_as_it_is_printed():
    words = shlex.split(packages.install_command("--version"))
    done = subprocess.run([words[0], *words[1:3], "--version"], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("pip "), done


def test_the_relays_packages_are_those_of_its_extra():
    extra = re.search(r"^relay = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.DOTALL | re.MULTILINE)
    assert tuple(re.findall(r'"([a-z-]+)', extra[1])) == PACKAGES


def test_doctor_knows_every_package_that_is_installed_with_crystal():
    needed = re.search(r"^dependencies = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.DOTALL | re.MULTILINE)
    names = set(re.findall(r'^ *"([A-Za-z0-9.-]+)', needed[1], re.MULTILINE))
    assert names - {"tomli"} == set(packages.PACKAGES.values()), "tomli is of old Pythons alone"


def test_a_release_without_a_name_that_is_used_is_a_broken_package():
    with pytest.raises(AttributeError) as caught:
        packages.importlib.import_module("apsw").NoSuchName  # noqa: B018
    found = packages.broken_package(caught.value)
    assert "the package apsw cannot be loaded: AttributeError" in found.message
    with pytest.raises(AttributeError) as caught:
        packages.importlib.import_module("json").NoSuchName  # noqa: B018
    assert packages.broken_package(caught.value) is None


def test_no_text_names_an_index_that_may_not_have_crystal():
    places = [ROOT / "crystal", ROOT / "relay_worker", ROOT / "docs", ROOT / "README.md"]
    files = [file for place in places for file in ([place] if place.is_file() else place.rglob("*"))]
    texts = {file: file.read_text("utf-8") for file in files if file.suffix in (".py", ".md", ".service")}
    named = [file for file, text in texts.items() if re.search(r"install\s.{0,20}crystal-memory", text)]
    assert named == []
