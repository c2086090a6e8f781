"""What was done here before reaches the model at the moment of action, once; with assist off nothing differs."""

from __future__ import annotations

import json

import pytest

from crystal.text.fence import HEADER
from tests.e2e.fake_anthropic import Use
from tests.support.whole_memory import wait_until

pytestmark = pytest.mark.usefixtures("_modern")

REASON = "I keep three retries because the queue drops a message after the fourth attempt."
OLD, NEW = "RETRIES = 3  # attempts for each message", "RETRIES = 7  # attempts for each message"
READ = Use("Bash", {"command": "cat settings.local"})


def let_sessions_work(client, model, memory):
    """One session decides something and cures an error; the next one changes the line and meets the error."""
    (client.project / "setup.sh").write_text("echo made > settings.local\n")
    file = str(client.project / "worker.py")
    write = Use("Write", {"file_path": file, "content": f"{OLD}\n"})
    steps = [[REASON, write], [READ], [Use("Bash", {"command": "sh setup.sh"})], [READ], ["It works."]]
    model.when("begin now", *steps)  # what is told has only the beginning of the prompt, and so not this key
    first = client.ask(f"how often do we retry? settle it for the queue{'.' * 200} begin now")
    memory.settle()
    for path in (memory.data / "context").glob("*.facts"):
        path.unlink()
    memory.crystal("sync")
    memory.settle()
    (client.project / "settings.local").unlink()
    edit = Use("Edit", {"file_path": file, "old_string": OLD, "new_string": NEW})
    model.when("raise it", [Use("Read", {"file_path": file})], [edit], [READ], ["It is 7 now."])
    before = len(model.requests)
    second = client.ask("raise it to 7")
    memory.settle()
    return first.session, second.session, [model.texts_sent(at) for at in range(before, len(model.requests))]


def test_an_edit_and_a_failed_command_are_told_once_what_was_done_here_before(client, model, memory):
    memory.crystal("config", "set", "assist.mode", "on")
    first, second, requests = let_sessions_work(client, model, memory)
    assert REASON in requests[-1]
    assert "settle it for the queue" in requests[-1]
    assert "the agent ran" in requests[-1]
    assert "sh setup.sh" in requests[-1]
    assert requests[-1].count(HEADER) == 2
    assert REASON not in requests[0]
    assert first[:8] in requests[-1]

    def is_noted() -> bool:
        entries = json.loads(memory.crystal("context", "--log", "--json"))["told"]
        return [entry["why"] for entry in entries if entry["session_id"] == second] == [{"edit": 1, "failure": 1}]

    wait_until(is_noted, "the log of what was told", seconds=20)
    assert "assist    2 facts" in memory.crystal("usage")
    assert not {path for path in memory.files_with(HEADER) if path.name.endswith(".zst")}
    memory.verify()


def test_with_assist_off_no_hook_is_there_and_nothing_is_told(client, model, memory):
    before = (client.config / "settings.json").read_bytes()
    memory.crystal("config", "set", "assist.mode", "on")
    assert (client.config / "settings.json").read_bytes() != before
    memory.crystal("config", "set", "assist.mode", "off")
    assert (client.config / "settings.json").read_bytes() == before
    *_, requests = let_sessions_work(client, model, memory)
    assert not any(HEADER in request for request in requests)
    assert not list(memory.data.glob("context/*")) + list(memory.data.glob("told/*"))
