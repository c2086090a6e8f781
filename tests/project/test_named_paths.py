"""Every file and module that a page or a docstring names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.docs_blocks import ROOT
from tests.support.table import each_row

PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "benchmarks").glob("*.md"),
        *ROOT.glob("tests/*/*.md"),
    ]
)
# No part of a longer path, and no file that a conversation of the examples speaks of.
PATH = re.compile(
    r"(?<![\w/.~\\-])((?:crystal|relay_worker|tests|benchmarks|docs|skills|hooks|requirements|\.ci|\.github)/[\w./*-]*[\w*/])"
)
MODULE = re.compile(r"(?<![\w/.~-])crystal((?:\.[a-z_]+)+)(?![\w(-])")
PLACEHOLDER = re.compile(r"/(NAME|PACKAGE|acme|notebook)\b")
EXAMPLES = {"crystal/spool.py", "tests/test_spool.py"}  # what an agent edits, in docs/reference/session-summary.md
SOURCES = sorted([*(ROOT / "crystal").rglob("*.py"), *(ROOT / "relay_worker").rglob("*.py")])


def missing_paths(text: str) -> list[str]:
    named = (path for path in PATH.findall(text) if path not in EXAMPLES and not PLACEHOLDER.search(path))
    return [path for path in named if not any(ROOT.glob(path.rstrip("/")))]


def missing_modules(text: str) -> list[str]:
    """Dotted names whose first word is a package of ours, and that are neither a module nor a name in one."""
    return [f"crystal{name}" for name in MODULE.findall(text) if not _is_there(name.split(".")[1:])]


def _is_there(parts: list[str]) -> bool:
    package = ROOT / "crystal" / parts[0]
    if not package.is_dir() and not package.with_suffix(".py").exists():
        return True  # crystal.db, crystal.fish
    place = ROOT.joinpath("crystal", *parts)
    if place.is_dir() or place.with_suffix(".py").exists():
        return True
    files = [place.parent / "__init__.py", place.parent.with_suffix(".py")]
    return any(re.search(rf"\b{parts[-1]}\b", file.read_text("utf-8")) for file in files if file.exists())


@each_row("page", PAGES)
def test_a_page_names_what_is_there(page: Path) -> None:
    text = page.read_text("utf-8")
    assert missing_paths(text) + missing_modules(text) == []


@pytest.mark.slow
def test_the_code_names_pages_and_tests_that_are_there() -> None:
    wrong = {path.relative_to(ROOT).as_posix(): missing_paths(path.read_text("utf-8")) for path in SOURCES}
    assert {path: names for path, names in wrong.items() if names} == {}


@each_row(
    ("text", "missing"),
    [
        ("`crystal/wiring/search.py`", ["crystal/wiring/search.py"]),
        ("`crystal/search/engine.py`, docs/adr/0003-redaction-rules.md.", []),
        ("~/.config/crystal/config.toml, /home/you/crystal/bin/crystal", []),
        ("`tests/test_hook.py`", ["tests/test_hook.py"]),
        ("`crystal/store/sync/mirror*.py`", []),
        ("`crystal.search.wishes`", ["crystal.search.wishes"]),
        ("`crystal.errors.CrystalError`, `crystal.text.fence`, crystal.db", []),
    ],
)
def test_what_is_missing_is_found(text: str, missing: list[str]) -> None:
    assert missing_paths(text) + missing_modules(text) == missing
