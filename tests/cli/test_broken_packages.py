"""Commands name a package that is missing or broken, and what mends it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from crystal.config.packages import PACKAGES, broken_packages
from tests.support.broken_places import assert_doctor_fails, keep_memory, run
from tests.support.table import each_row
from tests.support.whole_memory import ROOT

pytestmark = pytest.mark.slow
"""Each starts the program."""


@pytest.fixture
def kept(home: Path) -> Path:
    """A home folder with a memory in it."""
    return keep_memory(home)


HARMS = ("raise RuntimeError('wrong CPU')", "raise ImportError('undefined symbol')", "gone")


@pytest.mark.parametrize("harm", HARMS)
@each_row(
    "module", ["apsw", "ahocorasick_rs", "cryptography", "numpy", "sqlite_vec", "orjson", "typer", "backports.zstd"]
)
def test_a_broken_package_is_named_with_what_mends_it(kept: Path, tmp_path: Path, module: str, harm: str) -> None:
    broken = tmp_path / f"broken {module}"
    package = broken.joinpath(*module.split("."))
    package.mkdir(parents=True)
    code = harm if harm != "gone" else f"raise ModuleNotFoundError('No module named {module}', name={module!r})"
    if package.parent != broken:
        (package.parent / "__init__.py").touch()
    (package / "__init__.py").write_text(code + "\n")
    name = PACKAGES[module]
    shown = assert_doctor_fails(run, f"the package {name}", also_json=harm == HARMS[0], path=broken)
    assert f"pip install {name} --force-reinstall" in shown
    for words in (["status"], ["search", "basalt"], ["sync"]):
        done = run(*words, path=broken)
        assert done.returncode in (0, 3), (words, done)
        if done.returncode:
            assert f"the package {name}" in done.stdout + done.stderr
            assert "pip install" in done.stdout + done.stderr
        if done.returncode and words == ["status"]:
            assert done.stdout.startswith("NOT capturing: ")


def test_a_worker_that_cannot_even_load_says_it_at_the_next_session(kept: Path, tmp_path: Path) -> None:
    (tmp_path / "apsw.py").write_text("raise ModuleNotFoundError('No module named apsw', name='apsw')\n")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    subprocess.run([sys.executable, "-c", "from crystal.worker import main; main()"], env=env, check=False)
    line = (kept / ".ldm" / "memory" / "stalled").read_text()
    assert line == "nothing is being kept: the package apsw is not installed. Run: crystal doctor"
    assert run("status").stdout.startswith("NOT capturing: the package apsw is not installed (fix: crystal sync)")


BUILT_WITHOUT = """
import sys
class Lacking:
    def find_spec(self, name, *_):
        if name == {module!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Lacking())
"""


@each_row(("module", "library"), [("_ssl", "OpenSSL"), ("_ctypes", "libffi"), ("zlib", "zlib")])
def test_a_python_that_was_built_without_a_library_is_named(
    kept: Path, tmp_path: Path, module: str, library: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(BUILT_WITHOUT.format(module=module))
    shown = assert_doctor_fails(run, f"was built without {library}", path=tmp_path)
    assert f"install {library} and its headers" in shown
    assert "pip install" not in shown
    for words in (["status"], ["search", "basalt"], ["sync"]):
        done = run(*words, path=tmp_path)
        assert done.returncode in (0, 3), (words, done)


def test_a_search_that_fails_without_typer_names_it(kept: Path, tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise ModuleNotFoundError('No module named typer', name='typer')\n")
    done = run("search", "", path=tmp_path)
    assert (done.returncode, "the package typer" in done.stderr) == (3, True), done


def test_an_empty_file_or_folder_in_the_place_of_a_package_is_no_package(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "numpy.py").touch()
    (tmp_path / "httpx").mkdir()
    (tmp_path / "httpx" / "__init__.py").touch()
    for name in ("numpy", "httpx"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    found = sorted(error.message.partition(":")[0] for error in broken_packages())
    assert found == [f"the package {name} cannot be loaded" for name in ("httpx", "numpy")]
