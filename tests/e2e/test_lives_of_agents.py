"""A day with another agent's real program: what it wrote to its files is kept once, and the program notices nothing."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.e2e.agents import AGENTS
from tests.e2e.fake_models import Answer, FakeModels
from tests.e2e.programs import ENVIRON, NoClient
from tests.e2e.running_agents import Ended, Running, install_agent
from tests.support.whole_memory import Memory

COMMAND = "printf %s-%s quartz 42"
RESULT = "quartz-42"
FINISHED = {
    "what is quartz": Answer("A mineral of silicon and oxygen."),
    "what is basalt": Answer("A dark stone from a volcano."),
    "run the command": Answer("It printed a name and a number."),
    "what is marble": Answer("Limestone that was pressed."),
}
CUT = {
    "tell of granite": Answer("Granite begins deep below", never_ends=True),
    "tell of slate": Answer("Slate begins as fine mud", never_ends=True),
}


@dataclass(frozen=True)
class Life:
    """What one program can do.

    Attributes:
        name: Its name in ``AGENTS``.
        files: Where it keeps conversations, below the home.
        tool: Its tool that runs a command.
        arguments: What the tool takes.
        resume: The arguments that go on with the newest session, given its file; None if it cannot.
        fork: The arguments that begin a new one with what was said in it.
        ends: The signals that end it in the middle of an answer.
        helper: Its tool that starts a subagent, and what it takes; None if it has none here.
        compacted: What stands in its files once it has compacted a conversation; None if that is not tried here.
        compact: The prompt that makes it do so, where it does not by itself.
    """

    name: str
    files: str
    tool: str
    arguments: dict[str, object]
    resume: Callable[[Path], tuple[str, ...]] | None
    fork: Callable[[Path], tuple[str, ...]] | None = None
    ends: tuple[signal.Signals, ...] = (signal.SIGINT, signal.SIGKILL)
    helper: tuple[str, dict[str, object]] | None = None
    compacted: bytes | None = None
    compact: str | None = None


SUMMARY = "<analysis>Stones.</analysis><state_snapshot>They counted stones.</state_snapshot>"
SUMMARIZE = ("state_snapshot>", "detailed summary of the conversation so far")
HELP = "helper task: count the minerals"
STORY = "".join(f"Chapter {number}: mineral {number * 37} met crystal {number * 91}. " for number in range(700)).strip()
COUNTED: dict[str, object] = {"description": "count", "prompt": HELP, "subagent_type": "general"}
DESCRIBED: dict[str, object] = {"command": COMMAND, "description": "print"}
LIVES = (
    Life(
        "codex", ".codex/sessions/**/*.jsonl", "exec_command", {"cmd": COMMAND},
        lambda file: ("resume", file.stem[-36:]), lambda file: ("fork", file.stem[-36:]),
        helper=("multi_agent_v1:spawn_agent", {"message": HELP}), compacted=b'"type":"compacted"',
    ),
    Life(
        "gemini-cli", ".gemini/tmp/*/chats/**/*.json*", "run_shell_command", DESCRIBED, lambda _: ("-r", "latest"),
        helper=("invoke_agent", {"agent_name": "generalist", "prompt": HELP}),
        compacted=b"", compact="/compress",  # no word of its own; the summary is told by its role
    ),
    Life(
        "pi", ".pi/agent/sessions/*/*.jsonl", "bash", {"command": COMMAND},
        lambda _: ("-c",), lambda file: ("--fork", str(file)),
        compacted=b'"type":"compaction"',  # it has no subagents
    ),
    Life(
        "opencode", ".local/share/opencode/opencode.db*", "bash", DESCRIBED,
        lambda _: ("-c",), lambda _: ("-c", "--fork"),
        helper=("task", COUNTED), compacted=b'"mode":"compaction"',
    ),
    Life(
        "qwen-code", ".qwen/projects/*/chats/*.jsonl", "run_shell_command", {**DESCRIBED, "is_background": False},
        lambda _: ("-c",), lambda _: ("-c", "--fork-session"),
        helper=("agent", {**COUNTED, "subagent_type": "general-purpose"}),
        compacted=b'"chat_compression"', compact="/compress",
    ),
    Life(
        "copilot-cli", ".copilot/session-state/*/events.jsonl", "bash", DESCRIBED, lambda _: ("--continue",),
        helper=(
            "task",
            {"agent_type": "general-purpose", "name": "counter", "description": "count", "prompt": HELP, "mode": "sync"},
        ),
        compacted=b'"session.compaction_complete"', compact="/compact",
    ),
    Life(
        "droid", ".factory/sessions/*/*.jsonl", "Execute",
        {"command": COMMAND, "summary": "print", "timeout": 10, "riskLevel": "low", "riskLevelReason": "prints"},
        None, lambda file: ("--fork", file.stem),
    ),
    Life(
        "goose", ".local/share/goose/sessions/sessions.db*", "shell", {"command": COMMAND},
        lambda _: ("--resume",),  # it forks in its terminal alone
        helper=("delegate", {"instructions": HELP}),
        compacted=b"",  # no word of its own; the summary is told by its role
    ),
    Life(
        "openclaw", ".openclaw/agents/*/agent/openclaw-agent.sqlite*", "exec", {"command": COMMAND},
        lambda _: (),  # it goes on in the session of its key; it forks in its gateway alone
        ends=(signal.SIGINT,),  # what it has started goes on when it is killed
        compacted=b"",  # its word is compressed; the summary is told by its role
    ),
    Life(
        "cline", ".cline/data/sessions/*/*.messages.json", "run_commands", {"commands": [COMMAND]},
        None,  # it resumes in its terminal alone
        helper=("spawn_agent", {"systemPrompt": "You count.", "task": HELP}),
    ),
)  # fmt: skip


@pytest.fixture
def models() -> Iterator[FakeModels]:
    with FakeModels() as models:
        yield models


def running(life: Life, home: Path, models: FakeModels) -> Running:
    """Return the program in a home of its own."""
    agent = next(agent for agent in AGENTS if agent.name == life.name)
    try:
        program = install_agent(agent)
    except NoClient as reason:
        pytest.skip(str(reason))
    return Running(agent, program, home, models.url)


def newest_file(life: Life, home: Path) -> Path:
    return max(home.glob(life.files), key=lambda path: path.stat().st_mtime_ns)


def lead(life: Life, one: Running, models: FakeModels, after: Callable[[], object]) -> list[Ended]:
    """Lead a day's conversations, and say how each run ended. ``after`` is called after each."""
    quartz, basalt, command, marble = FINISHED
    file = lambda: newest_file(life, one.home)  # noqa: E731 - each time another
    steps: list[Callable[[], Ended]] = [
        lambda: one.go(quartz),
        lambda: one.go(basalt, life.resume(file()) if life.resume else ()),
        lambda: one.go(command),
        lambda: one.go(marble, life.fork(file()) if life.fork else ()),
        *(
            lambda prompt=prompt, end=end: one.cut_short(prompt, end, models.is_pausing)
            for prompt, end in zip(CUT, life.ends, strict=False)
        ),
    ]
    ends = []
    for step in steps:
        ends.append(step())
        after()
    one.close()
    return ends


@pytest.mark.parametrize("life", LIVES, ids=[life.name for life in LIVES])
def test_what_a_program_wrote_is_kept_once_and_it_works_as_without(life: Life, home: Path, models: FakeModels) -> None:
    for prompt, answer in (FINISHED | CUT).items():
        models.when(prompt, answer)
    models.when("run the command", Answer(FINISHED["run the command"].text, life.tool, life.arguments))
    with_crystal = running(life, home, models)
    memory = Memory(home, with_crystal.env())
    memory.crystal("init", "--yes", "--agent", life.name)

    ends = lead(life, with_crystal, models, memory.settle)

    assert [end.code for end in ends[: len(FINISHED)]] == [0] * len(FINISHED), ends
    proof = memory.verify()
    said = list(memory.said().elements())
    written = b"".join(path.read_bytes() for path in home.glob(life.files) if path.is_file())
    for prompt, answer in (FINISHED | CUT).items():
        for role, text in (("user", prompt), ("assistant", answer.text)):
            count = sum(text in one for who, one in said if who == role)
            assert count == 1 if text.encode() in written or prompt in FINISHED else count <= 1, (text, count, said)
    for role, text in (("tool_call", COMMAND), ("tool_result", RESULT)):
        assert sum(text in one for who, one in said if who == role) == 1, said
    assert proof["percent"] == 100.0

    bare = lead(life, running(life, home.with_name("bare"), models), models, lambda: None)
    # OpenClaw's launcher ends with one code or another when it is interrupted, as its child is sooner or later.
    told = len(FINISHED) if life.name == "openclaw" else None
    assert [end.code for end in bare[:told]] == [end.code for end in ends[:told]]
    # What a program that is ended still prints differs from run to run, and so does Cline's stream of events.
    if life.name != "cline":
        assert bare[: len(FINISHED)] == ends[: len(FINISHED)]


def said_after(
    life: Life, home: Path, models: FakeModels, steps: Sequence[tuple[str, bool]]
) -> tuple[list[tuple[str, str]], Counter[str]]:
    """Return what crystal has of some prompts, and how often the model said what. True: in the newest conversation.

    The program prints the same without crystal, and uninstalling gives it its configuration back.
    """
    if life.name != "goose" and ENVIRON.get("CRYSTAL_E2E") == "1":
        pytest.skip("takes minutes; set CRYSTAL_E2E=all to run it, too")
    with_crystal, bare = (running(life, place, models) for place in (home, home.with_name("bare")))
    memory, before = Memory(home, with_crystal.env()), with_crystal.configuration()
    memory.crystal("init", "--yes", "--agent", life.name)
    ends, told = [], Counter[str]()
    for one, after in ((with_crystal, memory.settle), (bare, lambda: None)):
        for prompt, is_resumed in steps:
            more = life.resume(newest_file(life, one.home)) if is_resumed and life.resume else ()
            ends.append(one.go(prompt, more))
            after()
        told = told or models.told.copy()
        models.begin_again()
        one.close()
    if life.name != "cline":  # its stream of events differs
        assert ends[: len(steps)] == ends[len(steps) :]
    assert {end.code for end in ends} == {0}, ends
    memory.verify()
    said = memory.said()
    memory.crystal("verify", "--repair")
    assert memory.said() == said, "reading the archive again changed it"
    memory.crystal("uninstall")
    assert {path: with_crystal.configuration().get(path) for path in before} == before
    return list(said.elements()), told


def count(said: list[tuple[str, str]], role: str, text: str) -> int:
    return sum(text in one for who, one in said if who == role)


@pytest.mark.parametrize("life", [life for life in LIVES if life.compacted is not None], ids=lambda life: life.name)
def test_a_compaction_loses_and_doubles_nothing(life: Life, home: Path, models: FakeModels) -> None:
    asked = ["what is quartz", "tell a long story", "what is basalt", "what is marble"]
    answers = {**FINISHED, "tell a long story": Answer(STORY, tokens=97_000)}
    if life.compact:
        asked.insert(2, life.compact)
        answers |= {life.compact: Answer("It is compressed.")}
    for prompt, answer in ({prompt: Answer(SUMMARY) for prompt in SUMMARIZE} | answers).items():
        models.when(prompt, answer)
    said, _ = said_after(life, home, models, [(prompt, number > 0) for number, prompt in enumerate(asked)])
    written = b"".join(path.read_bytes() for path in home.glob(life.files) if path.is_file())
    assert life.compacted in written if life.compacted else count(said, "summary", ""), "it did not compact"
    for prompt in asked:
        counts = count(said, "user", prompt), count(said, "assistant", answers[prompt].text)
        times = int(prompt != life.compact or life.name == "gemini-cli")  # Gemini asks its model that, too
        assert counts == (times, times), (prompt, [(who, one[:80]) for who, one in said])


@pytest.mark.parametrize("life", [life for life in LIVES if life.helper is not None], ids=lambda life: life.name)
def test_what_a_subagent_says_is_kept_once(life: Life, home: Path, models: FakeModels) -> None:
    assert life.helper
    models.when(HELP, "There are two minerals.")
    models.when("start somebody", Answer("I have asked around.", *life.helper, waits_for=HELP))
    said, told = said_after(life, home, models, [("start somebody", False)])
    assert (count(said, "user", "start somebody"), count(said, "tool_call", HELP)) == (1, 1), said
    # Gemini's subagent is asked again until it calls a tool; Qwen goes on when its subagent has ended.
    for role, text in (("assistant", "I have asked around."), ("subagent", "There are two minerals.")):
        assert count(said, role, text) == told[text] >= 1, (told, said)


OTHER_MODELS = {
    "codex": ("--model", "other-model"),
    "gemini-cli": ("-m", "gemini-2.5-pro"),
    "opencode": ("-m", "mock/other-model"),
}
"""The arguments that choose another model."""


@pytest.mark.parametrize("name", OTHER_MODELS)
def test_a_session_goes_on_after_a_day_with_another_model(name: str, home: Path, models: FakeModels) -> None:
    life = next(life for life in LIVES if life.name == name)
    for prompt, answer in FINISHED.items():
        models.when(prompt, answer)
    one = running(life, home, models)
    if (settings := home / ".config" / "opencode" / "opencode.json").exists():
        model = '"mock-model": {'
        settings.write_text(settings.read_text().replace(model, f'"other-model": {{"name": "Other"}}, {model}'))
    memory = Memory(home, one.env())
    memory.crystal("init", "--yes", "--agent", name)
    first, *others = list(FINISHED)
    assert one.go(first).code == 0
    memory.settle()
    flag, model = OTHER_MODELS[name]
    given = one.agent.arguments
    at = given.index(flag) if flag in given else len(given) - given.count("-p")
    one.agent = replace(one.agent, arguments=(*given[:at], flag, model, *given[at + 2 * (flag in given) :]))
    for prompt in others:
        a_day_ago = time.time() - 86_400
        for path in home.glob(life.files):
            os.utime(path, (a_day_ago, a_day_ago))
        memory.crystal("sync")
        assert life.resume
        assert one.go(prompt, life.resume(newest_file(life, home))).code == 0
        memory.settle()
    one.close()
    memory.verify()
    said = list(memory.said().elements())
    assert {
        (count(said, "user", prompt), count(said, "assistant", answer.text)) for prompt, answer in FINISHED.items()
    } == {(1, 1)}
    assert len(json.loads(memory.crystal("sessions", "--json"))["sessions"]) == 1
    used = [body.get("model") for body in models.requests if body.get("tools")]
    told = memory.value("SELECT group_concat(DISTINCT model) FROM turns WHERE role = 'assistant'")
    assert len(set(told.split(","))) == 2, (told, used)
