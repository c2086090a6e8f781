"""A day with another agent's real program: what it wrote to its files is kept once, and the program notices nothing."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.agents import AGENTS, Ended, Running, install_agent
from tests.e2e.client import NoClient
from tests.e2e.conftest import ENVIRON, cache_folder
from tests.e2e.fake_models import Answer, FakeModels
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
    """

    name: str
    files: str
    tool: str
    arguments: dict[str, object]
    resume: Callable[[Path], tuple[str, ...]] | None
    fork: Callable[[Path], tuple[str, ...]] | None = None
    ends: tuple[signal.Signals, ...] = (signal.SIGINT, signal.SIGKILL)


DESCRIBED = {"command": COMMAND, "description": "print"}
LIVES = (
    Life(
        "codex", ".codex/sessions/**/*.jsonl", "exec_command", {"cmd": COMMAND},
        lambda file: ("resume", file.stem[-36:]), lambda file: ("fork", file.stem[-36:]),
    ),
    Life("gemini-cli", ".gemini/tmp/*/chats/**/*.json*", "run_shell_command", DESCRIBED, lambda _: ("-r", "latest")),
    Life(
        "pi", ".pi/agent/sessions/*/*.jsonl", "bash", {"command": COMMAND},
        lambda _: ("-c",), lambda file: ("--fork", str(file)),
    ),
    Life(
        "opencode", ".local/share/opencode/opencode.db*", "bash", DESCRIBED,
        lambda _: ("-c",), lambda _: ("-c", "--fork"),
    ),
    Life(
        "qwen-code", ".qwen/projects/*/chats/*.jsonl", "run_shell_command", {**DESCRIBED, "is_background": False},
        lambda _: ("-c",), lambda _: ("-c", "--fork-session"),
    ),
    Life("copilot-cli", ".copilot/session-state/*/events.jsonl", "bash", DESCRIBED, lambda _: ("--continue",)),
    Life(
        "droid", ".factory/sessions/*/*.jsonl", "Execute",
        {"command": COMMAND, "summary": "print", "timeout": 10, "riskLevel": "low", "riskLevelReason": "prints"},
        None, lambda file: ("--fork", file.stem),
    ),
    Life(
        "goose", ".local/share/goose/sessions/sessions.db*", "shell", {"command": COMMAND},
        lambda _: ("--resume",),  # it forks in its terminal alone
    ),
    Life(
        "openclaw", ".openclaw/agents/*/agent/openclaw-agent.sqlite*", "exec", {"command": COMMAND},
        lambda _: (),  # it goes on in the session of its key; it forks in its gateway alone
        ends=(signal.SIGINT,),  # what it has started goes on when it is killed
    ),
    Life(
        "cline", ".cline/data/sessions/*/*.messages.json", "run_commands", {"commands": [COMMAND]},
        None,  # it resumes in its terminal alone
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
        program = install_agent(agent, ENVIRON, cache_folder())
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
