"""What was done here before reaches the model at the moment of action, once; with assist off nothing differs."""

from __future__ import annotations

import json
import re

import pytest

from crystal.text.fence import HEADER
from tests.e2e.client import Stream, Terminal
from tests.e2e.fake_anthropic import Pause, Use
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
    made = [*(memory.data / "context").glob("*.facts")]
    for path in made:
        path.unlink()
    memory.crystal("sync")
    wait_until(lambda: all(path.exists() for path in made), "the facts of the project")
    memory.settle()
    (client.project / "settings.local").unlink()
    edit = Use("Edit", {"file_path": file, "old_string": OLD, "new_string": NEW})
    model.when("raise it", [Use("Read", {"file_path": file})], [edit], [READ], ["It is 7 now."])
    before = len(model.requests)
    second = client.ask("raise it to 7")
    memory.settle()
    return first.session, second.session, [model.texts_sent(at) for at in range(before, len(model.requests))]


def test_an_edit_a_failed_command_and_a_prompt_are_told_once_what_was_done_here_before(client, model, memory):
    memory.crystal("config", "set", "assist.mode", "on")
    memory.crystal("config", "set", "context.enabled", "false")
    first, second, requests = let_sessions_work(client, model, memory)
    assert REASON in requests[-1]
    assert "settle it for the queue" in requests[-1]
    assert "the agent ran" in requests[-1]
    assert "sh setup.sh" in requests[-1]
    assert requests[-1].count(HEADER) == 2
    assert REASON not in requests[0]
    assert first[:8] in requests[-1]
    model.when("what is this", ["It was made again."])
    client.ask("what is this\ncat: settings.local: No such file or directory")
    assert "the agent ran" in model.texts_sent(len(model.requests) - 1)

    def is_noted() -> bool:
        entries = json.loads(memory.crystal("context", "--log", "--json"))["told"]
        return [entry["why"] for entry in entries if entry["session_id"] == second] == [{"edit": 1, "failure": 1}]

    wait_until(is_noted, "the log of what was told", seconds=20)
    wait_until(lambda: "assist    3 facts" in memory.crystal("usage"), "the usage of what was told", seconds=20)
    assert not {path for path in memory.files_with(HEADER) if path.name.endswith(".zst")}
    memory.verify()


RULE = "From now on use three retries for the queue."
FAR = "." * 180
"""What is told has only the beginning of a request, and so not the key that the model answers to."""
CHECK = Use("Bash", {"command": "make lint"})
STATED, FAILS = f"The user had said: [{RULE}]", "failed when it ran last: [make lint]"


def only(memory, alone):
    """Let assist give facts at one moment alone."""
    for moment in ("prompt", "edit", "failure", "compaction", "subagent"):
        memory.crystal("config", "set", f"assist.{moment}", str(moment == alone).lower())
    memory.crystal("config", "set", "context.enabled", str(alone == "session").lower())
    memory.crystal("config", "set", "assist.mode", "on")


@pytest.mark.parametrize(
    ("alone", "told"), [("session", (1, 0, 1)), ("edit", (0, 1, 0)), ("failure", (0, 1, 0)), ("prompt", (0, 0, 1))]
)
def test_a_moment_that_is_set_alone_tells_its_fact_and_no_other(client, model, memory, alone, told):
    only(memory, alone)
    *_, requests = let_sessions_work(client, model, memory)
    model.when("what is this", ["It was made again."])
    client.ask("what is this\ncat: settings.local: No such file or directory")
    start, later = requests[0].count(HEADER), requests[-1].count(HEADER)
    assert (start, later - start, model.texts_sent(len(model.requests) - 1).count(HEADER)) == told
    if alone != "session":
        assert [REASON in requests[-1], "the agent ran" in requests[-1]] == [alone == "edit", alone == "failure"]


def work_is_compacted(client, model, memory):
    """A rule is stated and a check fails; then a subagent, a compaction, an edit, and a turn that is interrupted."""
    edit = Use("Write", {"file_path": str(client.project / "worker.py"), "content": f"{OLD}\n"})
    task = {"description": "count stones", "prompt": "helper-task count", "subagent_type": "general-purpose"}
    pause = Pause()
    model.when("good morning", ["Good morning."])
    model.when("begin now", [CHECK], [CHECK], ["I will keep to it."])
    model.when("send a helper", [Use("Agent", task)], ["It is on its way."])
    model.when("helper-task", ["There are seven stones."])
    model.when("<task-notification>", ["The helper says seven."])
    model.when("detailed summary of", ["<analysis>x</analysis><summary>They counted stones.</summary>"])
    model.when("edit it now", [edit], ["Done."])
    model.when("a long tale", ["Once upon a time", pause, "there was nothing more."])
    model.when("the next thing", ["About the next one."])
    with Terminal(client) as terminal:
        for key, answer in (("good morning", "Good morning."), ("begin now", "I will keep to it.")):
            terminal.ask(f"{RULE if key == 'begin now' else FAR} {key}", answer)
            memory.settle()
        terminal.ask(f"{FAR} send a helper", "The helper says seven.")
        memory.settle()
        terminal.type("/compact")
        terminal.wait_for_line(lambda line: line.get("subtype") == "compact_boundary")
        terminal.wait_until_idle()
        assert "hook" not in terminal.screen(), "the user sees no line of crystal"
        terminal.ask("edit it now", "Done.")
        terminal.type("a long tale")
        assert pause.reached.wait(30)
        terminal.interrupt()
        pause.go.set()
        terminal.ask("the next thing", "About the next one.")
        terminal.leave()
    memory.settle()
    sent = [re.sub(r'\\"(.*?)\\"', r"[\1]", model.texts_sent(at)) for at in range(len(model.requests))]
    helper = next(text for text in sent if "helper-task" in text and "send a helper" not in text)
    return helper, next(text for text in sent if "edit it now" in text), sent[-1]


def test_after_a_compaction_and_in_a_subagent_the_sessions_own_work_is_told_once(client, model, memory):
    memory.crystal("config", "set", "assist.mode", "on")
    memory.crystal("config", "set", "context.enabled", "false")
    helper, compacted, last = work_is_compacted(client, model, memory)
    assert [(text.count(STATED), text.count(FAILS)) for text in (helper, compacted, last)] == [(1, 1)] * 3
    assert "They counted stones." in compacted
    memory.verify()


@pytest.mark.parametrize(("alone", "told"), [("compaction", (0, 1, 1)), ("subagent", (1, 0, 0))])
def test_a_packet_is_given_at_the_moment_alone_that_is_set(client, model, memory, alone, told):
    only(memory, alone)
    assert tuple(text.count(STATED) for text in work_is_compacted(client, model, memory)) == told


def test_with_assist_off_no_hook_is_there_and_nothing_is_told(client, model, memory):
    before = (client.config / "settings.json").read_bytes()
    memory.crystal("config", "set", "assist.mode", "on")
    assert (client.config / "settings.json").read_bytes() != before
    memory.crystal("config", "set", "assist.mode", "off")
    assert (client.config / "settings.json").read_bytes() == before
    let_sessions_work(client, model, memory)
    model.when("detailed summary of", ["<analysis>x</analysis><summary>They counted stones.</summary>"])
    with Stream(client) as stream:
        for prompt in ("raise it", "/compact", "raise it"):
            stream.send(prompt)
            while not stream.result() and prompt != "/compact":
                pass
        stream.end()
    memory.settle()
    assert model.was_told("They counted stones.")
    assert not model.was_told(HEADER)
    assert not list(memory.data.glob("context/*")) + list(memory.data.glob("told/*"))
