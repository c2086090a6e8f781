"""A result has its tool's name, whichever of call and result was captured first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.capture_machine import line
from tests.support.command import crystal

SESSION = "aaaaaaaa-1111-4111-8111-111111111111"
CALLS = [{"type": "tool_use", "id": f"t{tool}", "name": tool, "input": {"a": "b"}} for tool in ("Bash", "Grep")]
RESULTS = [{"type": "tool_result", "tool_use_id": f"t{tool}", "content": f"by {tool}"} for tool in ("Bash", "Grep")]


def _line(role: str, ident: str, content: object, **more: object) -> bytes:
    message = {"role": role, "content": content}
    return line("", role=role, ident=ident, sessionId=SESSION, message=message, **more)


def _names(folder: Path) -> list[tuple[str, str | None]]:
    """Return (text, tool) of the results that ``export`` and ``show`` give, which are the same."""
    assert crystal("export", "--session", SESSION, "--as", "jsonl", "--to", str(folder)).code == 0
    lines = [json.loads(one) for one in (folder / "export.jsonl").read_text().splitlines()]
    exported = [turn for one in lines if one["type"] == "line" for turn in one["turns"]]
    shown = json.loads(crystal("show", SESSION, "--json").out)["turns"]
    said = [
        [(one["text"], one.get("tool")) for one in turns if one["role"] == "tool_result"] for turns in (exported, shown)
    ]
    assert said[0] == said[1]
    return said[0]


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_result_whose_call_is_imported_later_has_its_name(home: Path, tmp_path: Path, is_lost: bool) -> None:
    transcript = home / ".claude" / "projects" / "p" / f"{SESSION}.jsonl"
    transcript.parent.mkdir(parents=True)
    transcript.write_bytes(_line("user", "u1", "list it") + _line("assistant", "c1", CALLS))
    assert crystal("init", "--yes", "--no-import").code == 0
    for number, result in enumerate(RESULTS):
        with transcript.open("ab") as file:
            file.write(_line("user", f"r{number}", [result], parentUuid="c1" if number == 0 else "r0"))
            file.write(_line("assistant", f"s{number}", "done"))
    with transcript.open("ab") as file:
        file.write(_line("user", "r2", RESULTS, parentUuid="c1"))
    assert crystal("sync").code == 0
    assert {tool for _, tool in _names(tmp_path / "before")} == {None}
    assert crystal("backfill").code == 0
    if is_lost:
        for path in (home / ".ldm" / "memory").glob("crystal.db*"):
            path.unlink()
        assert crystal("verify", "--repair").code == 0
    named = [("by Bash", "Bash"), ("by Grep", "Grep"), ("by Bash", "Bash"), ("by Grep", "Grep")]
    assert _names(tmp_path / "after") == named
    assert crystal("verify").code == 0
