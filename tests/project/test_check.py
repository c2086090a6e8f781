"""`make check` runs the tests of what has changed."""

from __future__ import annotations

import runpy
import time
from pathlib import Path

import pytest

from tests.support.docs_blocks import ROOT

check = runpy.run_path(str(ROOT / ".ci" / "check.py"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in {
        "tests/sync/test_keys.py": "from crystal.sync.keys.codes import code\n# the longer one\n",
        "tests/cli/test_codes.py": "from crystal.sync.keys import codes\n",
        "tests/sync/test_more.py": "from crystal.sync.keys import ring\n",
        "tests/support/world.py": "",
        "tests/app/test_world.py": "from tests.support.world import World\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("crystal/sync/keys/codes.py", ["tests/cli/test_codes.py", "tests/sync/test_keys.py"]),
        ("crystal/sync/transport.py", ["tests/sync/test_more.py", "tests/sync/test_keys.py"]),  # no test names it: all
        ("tests/support/world.py", ["tests/app/test_world.py"]),
        ("tests/sync/test_keys.py", ["tests/sync/test_keys.py"]),
        ("docs/README.md", ["tests/project/test_docs.py"]),
        ("tests/sync/test_deleted.py", []),
        ("LICENSE", []),
    ],
)
def test_a_changed_file_chooses_its_tests(project: Path, changed: str, tests: list[str]) -> None:
    (project / "tests/project").mkdir()
    (project / "tests/project/test_docs.py").write_text("")
    assert check["tests_of"]([changed], project) == tests


@pytest.mark.slow
def test_a_failure_is_told_and_what_had_no_time_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)  # such as a profile that this folder does not have
    for name, body in {"good": "pass", "bad": "assert False", "slow": "import time; time.sleep(600)"}.items():
        (tmp_path / f"test_{name}.py").write_text(f"def test_it():\n    {body}\n")
    soon = time.monotonic() + 60
    assert check["run_tests"](["test_good.py"], soon)
    assert not check["run_tests"](["test_bad.py"], soon)
    assert "assert False" in capsys.readouterr().out
    assert check["run_tests"](["test_slow.py"], time.monotonic() + 0.5)
    assert "no time was left for: test_slow.py" in capsys.readouterr().out
