"""A public name stands for one thing."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCES = sorted(path for name in ("crystal", "relay_worker") for path in (ROOT / name).rglob("*.py"))


def test_no_two_public_classes_have_one_name() -> None:
    places = defaultdict[str, list[str]](list)
    for path in SOURCES:
        for name in re.findall(r"^class ([A-Za-z]\w*)", path.read_text(encoding="utf-8"), re.MULTILINE):
            places[name].append(path.relative_to(ROOT).as_posix())
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


ONE_SUBJECT = set(
    "__main__ about access agents app assist blame candidates capture changes codex context device devices engine errors export files"
    " forget gemini_cli handoff handover late markdown memories mirror models opencode past pi privacy progress projects"
    " reader reading rebuild recall reflect request roles search sessions settings snapshots sources status"
    " stores timeline timer turns usage validity vault verify watch work".split()
)
"""Names of several modules: a layer has its part of one subject, as cli, app and store do. Others need another name."""


def test_modules_of_one_name_are_about_one_subject() -> None:
    stems = [path.stem for path in SOURCES if path.stem != "__init__"]
    shared = {stem for stem in stems if stems.count(stem) > 1}
    assert shared == ONE_SUBJECT, f"new: {shared - ONE_SUBJECT}, no longer shared: {ONE_SUBJECT - shared}"
