"""A public name stands for one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCES = sorted(path for name in ("crystal", "relay_worker") for path in (ROOT / name).rglob("*.py"))


def test_no_two_public_classes_have_one_name() -> None:
    places = defaultdict[str, list[str]](list)
    for path in SOURCES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path.relative_to(ROOT).as_posix())
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
