"""``crystal forget``: asks, shows, forgets, proves; and its exit codes."""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path

import pytest

from crystal.config.edit import set_value
from crystal.store.forget import forgotten_rows
from tests.support.capture_machine import keep_transcript
from tests.support.command import crystal
from tests.support.forgetting_machine import said
from tests.support.mcp_client import Tools
from tests.support.web_client import Client

pytestmark = pytest.mark.slow

S1 = str(uuid.UUID(int=1))
SECRET = "the quokka sleeps under the zanzibar bridge at seven"


@pytest.fixture(autouse=True)
def memory(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A memory of two lines; gives its folder."""
    monkeypatch.chdir(home)
    crystal("init", "--yes")
    set_value(home / ".config" / "crystal" / "config.toml", "embedding.provider", "none")
    keep_transcript(home, f"{S1}", said("what stands before it stays"), said(SECRET))
    crystal("sync")
    return home / ".ldm"


def held(memory: Path) -> bool:
    return any(b"quokka" in path.read_bytes() for path in memory.rglob("*") if path.is_file())


def test_nobody_there_to_be_asked_is_a_usage_error_and_nothing_happens(memory: Path) -> None:
    done = crystal("forget", "--query", "quokka")
    assert (done.code, done.out) == (2, "")
    assert "but there is no terminal" in done.err
    assert held(memory)
    assert crystal("forget", "--query", "unicorn").code == 1, "nothing is to be asked"


def test_a_preview_forgets_nothing(memory: Path) -> None:
    done = crystal("forget", "--query", "quokka", "--dry-run")
    assert done.code == 0
    assert "will be forgotten: 1 message" in done.out
    assert "the quokka sleeps" in done.out
    assert f"{S1}.jsonl" in done.out
    assert held(memory)


def test_no_on_a_terminal_forgets_nothing_and_yes_does(memory: Path) -> None:
    no = crystal("forget", "--query", "quokka", typed="n\n", terminal=True)
    assert (no.code, no.err.endswith("crystal: nothing was forgotten\n"), held(memory)) == (130, True, True)
    done = crystal("forget", "--query", "quokka", typed="y\n", terminal=True)
    assert done.code == 0, done.err
    assert "forgotten: crystal keeps nothing of it on this machine" in done.out
    assert not held(memory)


@pytest.fixture
def long_output(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long output elsewhere that has the word in its middle, which the index has not; and the memory is large."""
    monkeypatch.setattr(forgotten_rows, "LARGE_CHUNKS", 0)
    output = {"type": "tool_result", "tool_use_id": "t", "content": f"{'x ' * 4000}a quokka here{' y' * 4000}"}
    other = memory.parent / ".claude" / "projects" / "p" / f"{uuid.UUID(int=2)}.jsonl"
    other.write_bytes(said("", message={"role": "user", "content": [output]}))
    crystal("sync")


@pytest.mark.usefixtures("long_output")
def test_a_long_output_that_the_preview_did_not_list_is_asked_about(memory: Path) -> None:
    seen = crystal("forget", "--query", "quokka", typed="y\nn\n", terminal=True)
    assert "will be forgotten: 1 message" in seen.err
    assert "more messages have the words, in a part of a long output" in seen.err
    assert (seen.code, held(memory)) == (130, True)
    assert seen.err.endswith("crystal: nothing was forgotten\n")
    assert crystal("forget", "--query", "quokka", typed="y\ny\n", terminal=True).code == 0
    assert not held(memory)


@pytest.mark.usefixtures("long_output")
def test_an_agent_is_shown_such_an_output_first(memory: Path) -> None:
    tools = Tools()
    first = tools.data("crystal_forget", query="quokka")
    second = tools.data("crystal_forget", confirm=first["token"])
    assert (first["items_in_all"], second["items_in_all"], second["is_done"]) == (1, 2, False)
    assert held(memory)
    assert tools.data("crystal_forget", confirm=second["token"])["is_done"]
    assert not held(memory)


@pytest.mark.usefixtures("long_output")
def test_the_page_shows_such_an_output_first(memory: Path) -> None:
    client, token = Client(), re.compile(r'name="token" value="([^"]+)"')
    [first] = token.findall(client.send_form("/forget/preview", query="quokka").text)
    page = client.send_form("/forget/confirm", query="quokka", token=first).text
    [second] = token.findall(page)
    assert "Nothing was forgotten yet: this preview differs" in page
    assert (first != second, held(memory)) == (True, True)
    assert "Forgotten, and proved" in client.send_form("/forget/confirm", query="quokka", token=second).text
    assert not held(memory)


def test_yes_and_prove_in_json(memory: Path) -> None:
    done = crystal("forget", "--query", "quokka", "--yes", "--prove", "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert told["forgotten"]["done"] is True
    assert told["forgotten"]["messages"] == 1
    assert told["proof"]["proved"] is True
    assert [item["because"] for item in told["items"]] == ["asked"]
    assert not held(memory)
    assert crystal("verify").code == 0


def test_a_transcript_that_still_has_it_is_named_once(memory: Path) -> None:
    done = crystal("forget", "--query", "quokka", "--yes", "--prove")
    assert "proved: " in done.out
    assert done.out.count(f"{S1}.jsonl") == 1


def test_nothing_found_is_exit_code_1(memory: Path) -> None:
    done = crystal("forget", "--query", "unicorn", "--yes")
    assert done.code == 1
    assert "nothing matches" in done.err
    assert crystal("forget", "--before", "2001-01-01", "--yes").code == 1
    assert held(memory)


def test_what_does_not_exist_is_not_found(memory: Path) -> None:
    for words in (["99999"], ["h99999"], ["mem-0123456789ab"], ["--session", "zz"], ["--project", "none"]):
        assert crystal("forget", *words, "--yes").code == 1, words
    assert crystal("forget", "--yes").code == 2
    assert held(memory)


def test_off_and_on_know_nothing_of_what_was_forgotten() -> None:
    crystal("forget", "--session", S1, "--yes")
    assert crystal("--status").out == "capture is on\n"
    assert crystal("--off", "--session", S1).code == 0
    assert crystal("--on", "--session", S1).code == 0
    assert crystal("--status").out == "capture is on\n"


def test_a_purge_deletes_the_names_as_well(memory: Path) -> None:
    crystal("forget", "--query", "quokka", "--yes")
    assert (memory / "forgotten.json").exists()
    assert crystal("uninstall", "--purge", "--yes").code == 0
    assert not memory.exists()
