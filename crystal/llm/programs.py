"""Models behind the user's own coding agent: ``claude -p`` and ``codex exec``, with the account that they have.

A call is no session of the user's, and is never recorded as one: the program is told to keep none and to run no hook,
works in an empty folder, and has no tool that a text could talk it into using. A program that does not know one of
these options refuses to start.

Source: docs/adr/0046-model-extractor.md.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

import orjson

from crystal.errors import CrystalError, ModelUnavailableError, NotConfiguredError
from crystal.llm.ask import Completion, Prompt, counted

SECONDS = 180.0
MAX_BYTES = 4 << 20
POLL_SECONDS = 0.05
MAX_OUTPUT_TOKENS = 4000
DEFAULT = "default"
"""Name of the model that the program chooses by itself."""

_OF_A_SESSION = ("CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SESSION_ID")
_CLAUDE = (
    "-p", "--output-format", "json", "--no-session-persistence", "--safe-mode", "--tools", "", "--strict-mcp-config",
    "--settings", '{"disableAllHooks": true}',
)  # fmt: skip
_CODEX = ("exec", "--json", "--ephemeral", "--ignore-user-config", "--ignore-rules", "--skip-git-repo-check", "-s",
          "read-only", "--color", "never", "-c", 'web_search="disabled"')  # fmt: skip
_CODEX_WITHOUT = ("hooks", "shell_tool", "unified_exec", "apps", "browser_use", "computer_use", "image_generation",
                  "multi_agent", "memories", "plugins")  # fmt: skip


@dataclass(frozen=True, slots=True)
class ProgramModel:
    """The model of a program on this machine; ``provider`` is the program's name, ``environ`` its environment."""

    provider: str
    model: str
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_seconds: float = SECONDS
    most_output_tokens: int = MAX_OUTPUT_TOKENS

    def complete(self, prompt: Prompt) -> Completion:
        """Run the program once, see ``LanguageModel``."""
        program = shutil.which(self.provider, path=self.environ.get("PATH"))
        if program is None:
            hint = f"install {self.provider}, or use a model here: crystal config set summary.provider ollama"
            raise NotConfiguredError(f"the program {self.provider} is not on the PATH", hint=hint)
        with TemporaryDirectory(prefix="crystal-ask-") as name:
            folder = Path(name)
            if self.provider == "claude":
                output = self._run([program, *self._claude(prompt)], prompt.user, folder)
                return _claude_answer(output)
            output = self._run([program, *self._codex(prompt, folder)], f"{prompt.system}\n{prompt.user}", folder)
            return _codex_answer(output)

    def _claude(self, prompt: Prompt) -> list[str]:
        return [*_CLAUDE, "--model", self.model, "--system-prompt", prompt.system]

    def _codex(self, prompt: Prompt, folder: Path) -> list[str]:
        chosen = [] if self.model == DEFAULT else ["-m", self.model]
        without = [part for name in _CODEX_WITHOUT for part in ("-c", f"features.{name}=false")]
        if prompt.schema is not None:
            (folder / "schema.json").write_bytes(orjson.dumps(prompt.schema))
            chosen += ["--output-schema", str(folder / "schema.json")]
        return [*_CODEX, *without, *chosen, "-"]

    def _run(self, command: list[str], text: str, folder: Path) -> bytes:
        """Return what the program prints; end it and all that it started if that takes too long or is too much."""
        (folder / "work").mkdir()
        kept = {name: value for name, value in self.environ.items() if name not in _OF_A_SESSION}
        environ = {**kept, "CRYSTAL_INTERNAL": "1"}
        with TemporaryFile() as given, TemporaryFile() as output:  # without names: a kill leaves no text
            given.write(text.encode("utf-8", "replace"))
            given.seek(0)
            try:
                process = subprocess.Popen(
                    command, stdin=given, stdout=output, stderr=subprocess.DEVNULL, cwd=folder / "work", env=environ,
                    start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                raise NotConfiguredError(f"{self.provider} cannot be started: {error.strerror}") from error
            problem = self._wait(process, output.fileno())
            if problem is not None:
                hint = f"does `{self.provider}` answer in a terminal? a newer version may be needed"
                raise ModelUnavailableError(f"{self.provider} {problem}", may_be_billed=True, hint=hint)
            output.seek(0)
            return output.read()

    def _wait(self, process: subprocess.Popen[bytes], output: int) -> str | None:
        """Wait for the end of the program, or end it; return what went wrong."""
        deadline, problem = time.monotonic() + self.timeout_seconds, None
        try:
            while process.poll() is None and problem is None:
                time.sleep(POLL_SECONDS)
                problem = "did not answer in time" if time.monotonic() > deadline else _excess(output)
        finally:
            if process.poll() is None:
                _end(process)
        failed = f"ended with exit code {process.returncode}" if process.returncode else None
        return problem or _excess(output) or failed


def _excess(output: int) -> str | None:
    return f"answered with more than {MAX_BYTES} bytes" if os.fstat(output).st_size > MAX_BYTES else None


def _end(process: subprocess.Popen[bytes]) -> None:
    if hasattr(os, "killpg"):
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def _claude_answer(output: bytes) -> Completion:
    """Return the answer of ``claude -p --output-format json``."""
    found = next(iter(_objects(output)), {})
    if found.get("is_error") or not isinstance(found.get("result"), str):
        raise _no_answer("claude")
    usage = found["usage"] if isinstance(found.get("usage"), dict) else {}
    read = [counted(usage.get(f"{kind}input_tokens")) for kind in ("", "cache_creation_", "cache_read_")]
    cost = found.get("total_cost_usd")
    usd = float(cost) if isinstance(cost, (int, float)) and 0 <= cost < 1000 else None
    tokens = None if read[0] is None else sum(one or 0 for one in read)
    return Completion(found["result"], tokens, counted(usage.get("output_tokens")), usd)


def _codex_answer(output: bytes) -> Completion:
    """Return the last message in the events of ``codex exec --json``."""
    text: str | None = None
    usage: dict[str, Any] = {}
    for event in _objects(output):
        item = event.get("item")
        if isinstance(item, dict) and item.get("type") == "agent_message" and isinstance(item.get("text"), str):
            text = item["text"]
        usage = event["usage"] if isinstance(event.get("usage"), dict) else usage
    if text is None:
        raise _no_answer("codex")
    return Completion(text, counted(usage.get("input_tokens")), counted(usage.get("output_tokens")))


def _objects(output: bytes) -> Iterator[dict[str, Any]]:
    for line in output.splitlines():
        try:
            found = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if isinstance(found, dict):
            yield found


def _no_answer(name: str) -> CrystalError:
    return ModelUnavailableError(
        f"{name} gave no answer", may_be_billed=True, hint=f"does `{name}` answer in a terminal?"
    )
