"""``claude -p``: everything said is kept, once, and nothing that nobody said."""

from __future__ import annotations

from tests.e2e.client import Client
from tests.e2e.fake_anthropic import FakeAnthropic, Think, Use
from tests.e2e.memory import Memory, said


def test_the_first_turn_of_a_new_session_is_kept_by_the_hook_alone(
    client: Client, model: FakeAnthropic, memory: Memory
) -> None:
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
        ("user", "look around"), ("thinking", "I should run echo."), ("assistant", "First a command."),
        ("assistant", "There is mica."), ("tool_call", "Bash: echo from-the-shell"),
        ("tool_call", f"Read: {client.project}/notes.txt"),
    }
    shell, file = memory.texts("tool_result") if "shell" in memory.texts("tool_result")[0] else memory.texts("tool_result")[::-1]
    assert shell == "from-the-shell"
    assert "mica and feldspar" in file
    assert set(kept.values()) == {1}
    memory.verify()
