"""``claude -p``: everything said is kept, once, and nothing that nobody said."""

from __future__ import annotations

import json

import pytest

from tests.e2e.client import Client
from tests.e2e.fake_anthropic import Fail, FakeAnthropic, Think, Use
from tests.support.whole_memory import Memory, said


def test_the_first_turn_of_a_new_session_is_kept_by_the_hook_alone(client, model, memory):
    model.when("what is quartz", ["A mineral of silicon and oxygen."])
    answer = client.ask("what is quartz")
    memory.settle()
    assert answer.text == "A mineral of silicon and oxygen."
    assert memory.said(answer.session) == said(
        ("user", "what is quartz"), ("assistant", "A mineral of silicon and oxygen.")
    )
    memory.verify()


def test_thinking_and_tools_are_kept_with_their_results(client: Client, model: FakeAnthropic, memory: Memory) -> None:
    (client.project / "notes.txt").write_text("mica and feldspar\n")
    model.when(
        "look around",
        [Think("I should run echo."), "First a command.", Use("Bash", {"command": "echo from-the-shell"})],
        [Use("Read", {"file_path": str(client.project / "notes.txt")})],
        ["There is mica."],
    )
    client.ask("look around")
    memory.settle()
    kept = memory.said()
    assert {turn for turn in kept if turn[0] in ("user", "assistant", "thinking", "tool_call")} == {
        ("user", "look around"),
        ("thinking", "I should run echo."),
        ("assistant", "First a command."),
        ("assistant", "There is mica."),
        ("tool_call", "Bash: echo from-the-shell"),
        ("tool_call", f"Read: {client.project}/notes.txt"),
    }
    file, shell = sorted(memory.texts("tool_result"), key=lambda text: "shell" in text)
    assert shell == "from-the-shell"
    assert "mica and feldspar" in file
    assert set(kept.values()) == {1}
    memory.verify()


def test_resumed_sessions_go_on_where_they_stood(client: Client, model: FakeAnthropic, memory: Memory) -> None:
    for number in ("one", "two", "three"):
        model.when(f"question {number}", [f"Answer {number}."])
    first = client.ask("question one")
    client.ask("question two", "--resume", first.session)
    client.ask("question three", "--resume", first.session)
    memory.settle()
    expected = [
        (role, f"{word} {number}{dot}")
        for number in ("one", "two", "three")
        for role, word, dot in (("user", "question", ""), ("assistant", "Answer", "."))
    ]
    assert memory.said(first.session) == said(*expected)
    memory.verify()


def test_a_fork_copies_its_lines_and_they_are_kept_once(client: Client, model: FakeAnthropic, memory: Memory) -> None:
    model.when("the trunk", ["Trunk answer."])
    model.when("the branch", ["Branch answer."])
    trunk = client.ask("the trunk")
    branch = client.ask("the branch", "--resume", trunk.session, "--fork-session")
    memory.settle()
    assert branch.session != trunk.session
    assert len(client.transcripts()) == 2
    assert memory.said(trunk.session) == said(("user", "the trunk"), ("assistant", "Trunk answer."))
    assert memory.said(branch.session) == said(("user", "the branch"), ("assistant", "Branch answer."))
    memory.verify()
    assert memory.value("SELECT count(*) FROM turn_copies") == 2


def test_every_character_comes_through(client: Client, model: FakeAnthropic, memory: Memory) -> None:
    prompt = "Grüße 漢字 🎉 ünd so wéiter"
    answer = "👨‍👩‍👧 Ωμέγα \u2028 line\u2029para\u0085nel \u200f عربى e\u0301 \x1b[1m \ufeff end"
    model.when("Grüße", [answer])
    client.ask(prompt)
    memory.settle()
    assert memory.said() == said(("user", prompt), ("assistant", answer))
    memory.verify()


def test_a_long_answer_is_kept_to_its_last_character(client: Client, model: FakeAnthropic, memory: Memory) -> None:
    story = (
        "\n\n".join(f"Chapter {number}. " + "The crystal remembered everything. " * 20 for number in range(300))
        + "The end."
    )
    model.when("tell a story", [story])
    client.ask("tell a story")
    memory.settle()
    assert len(story) > 200_000
    assert memory.said() == said(("user", "tell a story"), ("assistant", story))
    memory.verify()


def test_a_subagent_in_the_background_is_kept_and_belongs_to_its_session(client, model, memory):
    task = {"description": "count stones", "prompt": "helper-task count the stones", "subagent_type": "general-purpose"}
    model.when("send a helper", ["I will.", Use("Agent", task)], ["The helper is on its way."])
    model.when("helper-task", [Think("Stones."), "There are seven stones."])
    model.when("<task-notification>", ["The helper says seven."])
    answer = client.ask("send a helper")
    memory.settle()
    assert memory.texts("user") == ["send a helper"]
    told = [] if not model.was_told("<task-notification>") else ["The helper says seven."]  # by newer clients
    assert memory.texts("assistant") == ["I will.", "The helper is on its way.", *told]
    assert memory.texts("subagent") == ["There are seven stones.", "helper-task count the stones"]
    assert memory.texts("thinking") == ["Stones."]
    assert memory.texts("tool_call") == [
        "Agent: helper-task count the stones\ndescription: count stones\nsubagent_type: general-purpose"
    ]
    assert memory.said() == memory.said(answer.session)
    assert memory.value("SELECT count(*) FROM turns WHERE subagent IS NOT NULL") == 3
    memory.verify()


def test_an_api_error_is_nobodys_turn_and_the_prompt_is_kept(client, model, memory):
    model.when("something bad", Fail(400, "the model says no"))
    assert client.ask("something bad").is_error
    memory.settle()
    assert memory.said() == said(("user", "something bad"))
    memory.verify()


@pytest.mark.usefixtures("_modern")
def test_the_hook_leaves_no_trace_but_the_clients_own_note_of_it(client, model, memory):
    model.when("hello", ["Hello."])
    client.ask("hello")  # it checks that stderr is empty
    memory.settle()
    lines = client.lines()
    assert not [line for line in lines if str(line.get("attachment", {}).get("type", "")).startswith("hook_")]
    summaries = [line for line in lines if line.get("subtype") == "stop_hook_summary"]
    assert [(line["hookErrors"], line["preventedContinuation"]) for line in summaries] == [([], False)]
    assert len(model.requests) == 1, "the hook made the model go on"
    memory.verify()


@pytest.mark.usefixtures("_modern")
def test_two_hooks_of_two_installations_keep_everything_once(client, model, memory):
    hooks = json.loads((client.config / "settings.json").read_text("utf-8"))["hooks"]
    text = json.dumps({"hooks": hooks}).replace("/crystal/hook/main.py", "/crystal/../crystal/hook/main.py")
    assert "/../crystal/" in text, "another command, or the client would run it once"
    (client.project / ".claude").mkdir()
    (client.project / ".claude" / "settings.json").write_text(text, "utf-8")
    model.when("twice", ["Once is enough."])
    answer = client.ask("twice")
    memory.settle()
    runs = [line for line in client.lines() if line.get("subtype") == "stop_hook_summary"]
    assert runs[0]["hookCount"] == 2
    assert memory.said(answer.session) == said(("user", "twice"), ("assistant", "Once is enough."))
    memory.verify()


def test_a_secret_of_a_prompt_is_nowhere_on_the_disk(client: Client, model: FakeAnthropic, memory: Memory) -> None:
    key = "sk-ant-api03-" + "Zx9Qw7Er5Ty3Ui1Op8As6Df4Gh2Jk0LmNbVcXzAaSsDdFfGgHhJjKkLl" + "-AAAA-" + "qP3kd8Fh2LwA"
    model.when("remember my key", [f"Your key is {key}.", Use("Bash", {"command": f"echo {key}"})], ["Done."])
    client.ask(f"remember my key {key} please")
    memory.settle()
    memory.verify()
    kept = memory.texts("user")[0]
    assert kept.startswith("remember my key [redacted:")
    assert kept.endswith("] please")
    mark = kept.removeprefix("remember my key ").removesuffix(" please")
    assert f"Your key is {mark}." in memory.texts("assistant"), "equality survives"
    assert memory.files_with(key) == []
    assert memory.files_with(key[20:60]) == []
    assert memory.files_with("remember my key"), "the search above looks at the right files"
