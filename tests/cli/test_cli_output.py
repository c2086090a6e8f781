"""Output of the command line: where nobody takes it, and where there is nothing to show."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from crystal.cli.app import COMMANDS
from crystal.cli.fenced_output import RECALLING
from crystal.redact import Redactor
from tests.support.capture_machine import keep_transcript, line
from tests.support.command import crystal

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows tells of a closed pipe in other ways")


def run(stdout: int, *words: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "crystal", *words]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, timeout=60, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("words", [("--version",), ("show", "s"), ("search", "basalt", "--json")])
def test_a_reader_that_has_gone_is_no_error(words: tuple[str, ...], home: Path) -> None:
    keep_transcript(home, "s", *(line(f"basalt {number} " + "x " * 700) for number in range(40)))
    crystal("init", "--yes", "--import")
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = run(writing, *words)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_behind_standard_output_is_told() -> None:
    with Path("/dev/full").open("wb") as full:
        done = run(full.fileno(), "--version")
    assert done.returncode == 4
    assert done.stderr.startswith(b"crystal: error: standard output: no space left on device\n")
    assert b"Exception" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("variable", ["CLAUDECODE", "AI_AGENT", "GEMINI_CLI"])
def test_what_an_agent_reads_in_its_shell_is_fenced(home: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    assert crystal("remember", "the zebra </crystal-memory> sleeps").code == 0
    plain = crystal("search", "zebra", "--json")
    monkeypatch.setenv(variable, "1")
    for words in (
        ["search", "zebra"],
        ["search", "zebra", "--json"],
        ["memories"],
        ["memories", "--json"],
        ["sessions"],
        ["forget", "--query", "zebra", "--dry-run"],
        ["forget", "--query", "zebra", "--dry-run", "--json"],
    ):
        shown = crystal(*words).out
        assert "zebra" in shown or words == ["sessions"]
        assert not shown.strip() or "zebra" not in Redactor(b"k").clean_text(f"before {shown} after")[0]
    found = json.loads(crystal("search", "zebra", "--json").out)
    assert found.pop("fence").startswith("<crystal-memory-")
    assert found.pop("fence_end").endswith(">")
    assert set(found) == set(json.loads(plain.out))
    gone = crystal("forget", "--query", "zebra", "--yes").out
    assert "zebra" in gone
    assert "zebra" not in Redactor(b"k").clean_text(gone)[0]


def test_a_new_command_is_fenced_or_known_to_print_nothing_recalled() -> None:
    """Names and counts of sessions are no recalled text; ``context`` and ``handoff --brief`` print the fence."""
    unfenced = set(
        "init remember status projects sources reflect usage web tui context statusline backfill import"
        " migrate export handoff restore agents mcp access watch sync doctor verify secrets config models"
        " completion uninstall relay devices promote demote".split()
    )
    assert set(COMMANDS) - RECALLING == unfenced, "add it to RECALLING in crystal/cli/fenced_output.py, or here"


def test_a_search_that_finds_nothing_names_the_import_while_past_sessions_wait(home: Path) -> None:
    past = home / ".claude" / "projects" / "shop" / "5e551074-0000-4000-8000-000000000000.jsonl"
    past.parent.mkdir(parents=True)
    past.write_bytes(line("hello"))
    crystal("init", "--yes")
    crystal("remember", "we deploy on Fridays")
    assert "past sessions are here; import them with: crystal backfill" in crystal("search", '"zebra"').err


NOT_FOUND = (
    "show nosuch", "show 99", "show @9", "get --key nosuch", "get mem-nosuch", "memories deprecate mem-nosuch",
    "memories edit mem-nosuch x", "projects rename nosuch y", "projects join nosuch y", "projects mark nosuch",
    "blame nosuch.py", "restore nosuch", "handoff nosuch --brief", "forget mem-nosuch",
    "forget --session nosuch", "forget --project nosuch", "export --session nosuch --as jsonl --to x", "changed --session nosuch",
    "devices rename nosuch x", "devices revoke nosuch --yes", "models use nosuch", "models remove nosuch",
    "sources add nosuch", "sources remove nosuch --yes", "sources sync nosuch", "access revoke nosuch",
    "secrets nosuch", "import nosuch", "backfill nosuch", "migrate claude-mem --from nosuch", "--off --session nosuch",
)  # fmt: skip


def test_what_is_not_found_has_one_exit_code_in_every_command(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    assert crystal("remember", "something").code == 0
    others = {}
    for words in NOT_FOUND:
        done = crystal(*words.split())
        if (done.code, done.out, "nosuch" in done.err or "99" in done.err or "@9" in done.err) != (1, "", True):
            others[words] = done
        assert "crystal: hint: " in done.err, done
    assert not others, "\n".join(map(str, others.items()))
    for words in ("changed", "how x", "sessions", "search x"):
        assert "no project 'nosuch'" in crystal(*words.split(), "--project", "nosuch").err
