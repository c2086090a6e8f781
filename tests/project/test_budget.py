"""The line budgets: each package has one, and who exceeds it is told what to do."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from tests.support.docs_blocks import ROOT

budget = runpy.run_path(str(ROOT / ".ci" / "budget.py"))

CODE = '''"""Not counted:
three lines of docstring.
"""

# A comment.
TEXT = """counted
counted"""
VALUE = call(  # counted
    1,
)
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "crystal" / "text" / "deeper").mkdir(parents=True)
    (tmp_path / "crystal" / "text" / "deeper" / "code.py").write_text(CODE)
    (tmp_path / "pyproject.toml").write_text('[a]\n[tool.crystal.budget]\n"crystal/text" = 5\n\n# kept\n[b]\n')
    return tmp_path


@pytest.mark.slow
def test_every_package_keeps_its_budget(capsys: pytest.CaptureFixture[str]) -> None:
    assert budget["main"](ROOT, write=False) == 0, capsys.readouterr().out


def test_blank_lines_comments_and_docstrings_are_no_lines_of_code(project: Path) -> None:
    assert budget["sizes"](project) == {"crystal/text": 5}


def test_who_exceeds_a_budget_is_told_what_to_do(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert budget["main"](project, write=False) == 0
    (project / "crystal" / "text" / "more.py").write_text("a = 1\n")
    (project / "crystal" / "flat.py").write_text("a = 1\n")
    assert budget["main"](project, write=False) == 1
    assert capsys.readouterr().out.endswith(
        "over budget: crystal, crystal/text\ndelete, or raise the budget in pyproject.toml and say why in the commit\n"
    )


def test_a_package_that_is_gone_loses_its_row(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "crystal" / "text" / "deeper" / "code.py").unlink()
    assert budget["main"](project, write=False) == 1
    assert "no such package: delete its row" in capsys.readouterr().out


def test_write_sets_the_budgets_and_touches_nothing_else(project: Path) -> None:
    budget["main"](project, write=True)
    assert (project / "pyproject.toml").read_text() == (
        '[a]\n[tool.crystal.budget]\n"crystal/text" = 50\n\n# kept\n[b]\n'
    )
