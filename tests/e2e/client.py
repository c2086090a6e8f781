"""The real Claude Code, run as people run it: one prompt, a stream of prompts, or a terminal; in a home of its own."""

from __future__ import annotations

import json
import os
import queue
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.fake_anthropic import FakeAnthropic
from tests.e2e.programs import ENVIRON, NoClient, cache_folder, installed, run_to_end
from tests.support.whole_memory import wait_until

API_KEY = "sk-ant-test-not-a-key"
PACKAGE = "@anthropic-ai/claude-code"
VERSION = "2.1.332"
SECONDS = 60.0
PASSED_ON = ("PATH", "LANG", "TMPDIR", "PYTHON_KEYRING_BACKEND")


def find_client() -> Path:
    """Return the client's executable; installed with npm when it is asked for and not there yet.

    ``CRYSTAL_E2E_CLAUDE`` names an executable; ``CRYSTAL_E2E=1`` asks for the pinned version, or for that of
    ``CRYSTAL_E2E_VERSION``.

    Raises:
        NoClient: It was not asked for, or cannot be had.
        NoAnswer: It is there, and does not answer.
    """
    named = ENVIRON.get("CRYSTAL_E2E_CLAUDE")
    if named:
        path = Path(named).expanduser()
        if not os.access(path, os.X_OK):
            raise NoClient(f"CRYSTAL_E2E_CLAUDE is {named}, which is no program")
        return path.absolute()
    if ENVIRON.get("CRYSTAL_E2E", "0") in ("", "0"):
        raise NoClient("runs the real Claude Code; set CRYSTAL_E2E=1 to have it installed and run")
    wanted = ENVIRON.get("CRYSTAL_E2E_VERSION") or VERSION
    return installed("claude-code", [f"{PACKAGE}@{wanted}"], "claude", cache_folder(), _answers)


def _answers(program: Path) -> None:
    with tempfile.TemporaryDirectory() as home, FakeAnthropic() as model:
        model.when("are you there", ["Yes, I am."])
        client = Client(program, Path(home), model.base_url)
        client.prepare()
        assert client.ask("are you there").text == "Yes, I am."


def version(program: Path) -> str:
    """Return what the client says it is."""
    return run_to_end([program, "--version"], SECONDS, program.parent, os.environ).stdout.split(" ")[0].strip()


@dataclass(frozen=True)
class Answer:
    """What a run of ``claude -p`` gave."""

    session: str
    text: str
    is_error: bool


@dataclass
class Client:
    """Claude Code in one home folder, talking to one model.

    ``extra`` are environment variables for every run, ``settings`` what the user's settings held before crystal came.
    """

    program: Path
    home: Path
    base_url: str
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def config(self) -> Path:
        """The client's own folder."""
        return self.home / ".claude"

    @property
    def project(self) -> Path:
        """Where it is started."""
        return self.home / "project"

    def env(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment of a user of this home; nothing of the machine's own Claude Code gets into it."""
        kept = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        return {
            **kept,
            "HOME": str(self.home),
            "CLAUDE_CONFIG_DIR": str(self.config),
            "ANTHROPIC_BASE_URL": self.base_url,
            "ANTHROPIC_API_KEY": API_KEY,
            "DISABLE_TELEMETRY": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "IS_SANDBOX": "1",
            "NO_PROXY": "127.0.0.1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "TERM": "xterm-256color",
            **self.extra,
            **(more or {}),
        }

    def prepare(self, *more_projects: Path) -> None:
        """Answer the questions of the first start: they would need the network."""
        self.config.mkdir(exist_ok=True)
        trusted = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
        for folder in (self.project, *more_projects):
            folder.mkdir(exist_ok=True)
        answers = {
            "hasCompletedOnboarding": True,
            "theme": "dark",
            "bypassPermissionsModeAccepted": True,
            "customApiKeyResponses": {"approved": [API_KEY[-20:]], "rejected": []},
            "projects": {str(folder): trusted for folder in (self.project, *more_projects)},
        }
        (self.config / ".claude.json").write_text(json.dumps(answers), "utf-8")
        (self.config / "settings.json").write_text('{"skipDangerousModePermissionPrompt": true}\n', "utf-8")

    def command(self, *arguments: str) -> list[str]:
        """The command line."""
        return [str(self.program), "--dangerously-skip-permissions", *arguments]

    def prompt(self, prompt: str, *arguments: str) -> list[str]:
        """Return the command line that asks one thing."""
        return self.command("-p", prompt, "--output-format", "json", *arguments)

    def ask(
        self, prompt: str, *arguments: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> Answer:
        """Run ``claude -p`` to its end."""
        done = run_to_end(self.prompt(prompt, *arguments), SECONDS, cwd or self.project, self.env(env))
        try:
            told = json.loads(done.stdout)
        except ValueError:
            raise AssertionError(f"claude -p gave {done.stdout[-500:]!r} {done.stderr[-500:]!r}") from None
        assert done.stderr == "", "the user saw something on stderr"
        return Answer(told["session_id"], told.get("result") or "", bool(told.get("is_error")))

    def start(
        self, prompt: str, *arguments: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.Popen[str]:
        """Start ``claude -p`` and leave it running."""
        return subprocess.Popen(
            self.prompt(prompt, *arguments),
            cwd=cwd or self.project,
            env=self.env(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )

    def transcripts(self) -> list[Path]:
        """The sessions' files, oldest first."""
        return sorted((self.config / "projects").glob("*/*.jsonl"), key=lambda path: path.stat().st_mtime_ns)

    def lines(self) -> list[dict[str, Any]]:
        """Every line of every session's file, parsed."""
        files = [path.read_bytes().split(b"\n") for path in self.transcripts()]
        return [json.loads(line) for lines in files for line in lines[:-1]]


def kill(process: subprocess.Popen[str]) -> None:
    """End a client that we started, and what it started itself in its own session."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


class Stream:
    """A ``claude -p --input-format stream-json`` that takes one prompt after the other."""

    def __init__(self, client: Client, *arguments: str) -> None:
        command = client.command(
            "-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose", *arguments
        )
        self._process = subprocess.Popen(
            command,
            cwd=client.project,
            env=client.env(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )
        self._results: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        kill(self._process)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in iter(self._process.stdout.readline, ""):
            told = json.loads(line)
            if told.get("type") == "result":
                self._results.put(told.get("result") or "")

    def send(self, prompt: str) -> None:
        """Send a prompt, and do not wait."""
        message = {"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": prompt}]}}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def result(self) -> str:
        """What the next turn that ends has answered."""
        return self._results.get(timeout=SECONDS)

    def end(self) -> None:
        """Say that no prompt will follow, and wait for the client's own end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(timeout=SECONDS) == 0
        self._reader.join(SECONDS)


class Terminal:
    """Claude Code's own screen, in a tmux server of its own."""

    def __init__(self, client: Client, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        if shutil.which("tmux") is None:
            raise NoClient("the interactive client needs a terminal: tmux is not here")
        self._client = client
        self._socket = f"crystal-e2e-{uuid.uuid4().hex[:8]}"
        self._env = client.env({"LANG": "C.UTF-8", "TMUX_TMPDIR": "/tmp", **(env or {})})
        start = f"cd {shlex.quote(str(client.project))} && exec {shlex.join(client.command(*arguments))}"
        self._tmux("-f", os.devnull, "new-session", "-d", "-s", "it", "-x", "150", "-y", "50", start)
        self.wait_for(lambda: "❯" in self.screen(), "the prompt")

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self._tmux("kill-server")

    def _tmux(self, *arguments: str) -> str:
        return subprocess.run(
            ["tmux", "-L", self._socket, *arguments],
            env=self._env,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        ).stdout

    def screen(self) -> str:
        """What the user sees."""
        return self._tmux("capture-pane", "-p", "-t", "it")

    def is_alive(self) -> bool:
        """Whether the client runs."""
        return self._tmux("list-panes", "-t", "it", "-F", "#{pane_dead}").strip() == "0"

    def press(self, key: str) -> None:
        """Press one key, in tmux' words: Enter, Escape, C-c."""
        self._tmux("send-keys", "-t", "it", key)

    def type(self, text: str) -> None:
        """Type a line and send it, when the screen shows that it has arrived."""
        self._tmux("send-keys", "-t", "it", "-l", text)
        shown = "".join(text.split())[-20:]
        self.wait_for(lambda: shown in "".join(self.screen().split()), f"{text!r} to be typed")
        self.press("Enter")

    def ask(self, prompt: str, answer: str) -> None:
        """Type a prompt and wait until the turn has ended with an answer in the transcript."""
        self.type(prompt)
        self.wait_for_line(
            lambda line: line.get("type") == "assistant" and answer in json.dumps(line, ensure_ascii=False)
        )
        self.wait_until_idle()

    def wait_until_idle(self) -> None:
        """Wait until the client waits for a prompt."""
        self.wait_for(
            lambda: "esc to interrupt" not in self.screen() and "Stop hook" not in self.screen(), "the turn to end"
        )

    def wait_for_line(self, matches: Callable[[dict[str, Any]], bool]) -> None:
        """Wait for a line in any transcript."""
        self.wait_for(lambda: any(matches(line) for line in self._client.lines()), "a line in the transcript")

    def wait_for(self, holds: Callable[[], object], what: str) -> None:
        """Wait; says what is on the screen when it was in vain."""
        wait_until(holds, lambda: f"{what}; the screen shows:\n{self.screen()}")

    def interrupt(self) -> None:
        """Press Escape until the client has noticed; it overlooks a key now and then."""
        for _ in range(20):
            self.press("Escape")
            try:
                wait_until(self._is_interrupted, "the interruption", 1.5)
            except AssertionError:
                continue
            return
        raise AssertionError(f"Escape does nothing; the screen shows:\n{self.screen()}")

    def _is_interrupted(self) -> bool:
        return any("interrupted by user" in json.dumps(line.get("message")) for line in self._client.lines())

    def leave(self) -> None:
        """Type /exit and wait for the end."""
        self.type("/exit")
        self.wait_for(lambda: not self.is_alive(), "the client's end")
