"""Measure how often a model applies decisions of earlier sessions, with crystal and without.

    python benchmarks/applied.py --url http://127.0.0.1:11434/v1 --model NAME [--key-variable NAME]
    python benchmarks/applied.py --claude claude

33 sessions are captured in a temporary HOME: in each the user states one decision that nobody can guess. Then the
model gets 33 tasks, twice. With crystal it has the standing instructions and the tool ``crystal_search``, exactly as
``crystal init`` gives them, and must look by itself; without, only the task. A decision counts as applied if the answer
has what the row's pattern asks for; ``applied.tsv`` has the rows. The model's server gets the tasks and what the search
finds, nothing else of yours.

The project's tests run this against a server and a program of their own, which prove that decisions are planted, found
and counted. They say nothing about models: no figure is claimed until somebody has run it with one.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from crystal.install.clients.entry_text import GUIDANCE
from crystal.mcp.catalog import TOOLS

ROWS = Path(__file__).with_name("applied.tsv")
SEARCH = next(tool for tool in TOOLS if tool.name == "crystal_search")
MAX_CALLS = 4
SECONDS = 300


class Row(NamedTuple):
    """A decision, a task in which it matters, and the pattern of an answer that applies it."""

    decision: str
    task: str
    applied: str


class Said(NamedTuple):
    """What a model answered, and whether it searched before."""

    text: str
    has_looked: bool


Ask = Callable[[str, bool], Said]
"""Answers a task, with crystal or without."""


def plant(home: Path, project: Path, rows: list[Row]) -> dict[str, str]:
    """Capture a session for each decision; return the environment of the memory."""
    folder = home / ".claude" / "projects" / "p"
    folder.mkdir(parents=True)
    for at, row in enumerate(rows):
        session, lines = str(uuid.UUID(int=at + 1)), []
        for turn, (role, text) in enumerate((("user", row.decision), ("assistant", "Understood."))):
            content: Any = text if role == "user" else [{"type": "text", "text": text}]
            when = f"2026-11-{1 + at % 20:02d}T10:00:{turn:02d}.000Z"
            line = {"type": role, "uuid": str(uuid.UUID(int=1000 + 2 * at + turn)), "timestamp": when}
            message = {"role": role, "content": content}
            lines.append({**line, "cwd": str(project), "sessionId": session, "message": message})
        (folder / f"{session}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    provider = os.environ.get("CRYSTAL_EMBEDDING_PROVIDER", "embedded")
    places = {"HOME": str(home), "LDM_HOME": str(home / "ldm"), "CLAUDE_CONFIG_DIR": str(home / ".claude")}
    env = {**places, "CLAUDECODE": "1", "CRYSTAL_EMBEDDING_PROVIDER": provider, "PATH": os.defpath}
    crystal(env, project, "init", "--yes", "--import", "--wait")
    listed = crystal(env, project, "sessions", "--json", "--limit", "1000").count('"project"')
    if listed < len(rows):
        sys.exit(f"only {listed} of {len(rows)} sessions were captured")
    return env


def crystal(env: dict[str, str], project: Path, *words: str) -> str:
    """Run a command in the memory; return what it prints, which is fenced for an agent."""
    done = subprocess.run(
        [sys.executable, "-m", "crystal", *words], env=env, cwd=project, capture_output=True, text=True, check=False
    )
    return done.stdout or done.stderr


def ask_server(url: str, model: str, key: str | None, search: Callable[[str], str]) -> Ask:
    """Return how a server with OpenAI's chat completions answers."""
    client = httpx.Client(timeout=SECONDS, headers={"Authorization": f"Bearer {key}"} if key else {})
    tool = {"name": SEARCH.name, "description": SEARCH.description, "parameters": SEARCH.input}

    def ask(task: str, with_crystal: bool) -> Said:
        messages: list[dict[str, Any]] = [{"role": "system", "content": GUIDANCE}] if with_crystal else []
        messages.append({"role": "user", "content": task})
        body: dict[str, Any] = {"model": model, "messages": messages}
        if with_crystal:
            body["tools"] = [{"type": "function", "function": tool}]
        for _ in range(MAX_CALLS):
            reply = client.post(f"{url.rstrip('/')}/chat/completions", json=body).raise_for_status().json()
            said = reply["choices"][0]["message"]
            calls = said.get("tool_calls") or []
            if not calls:
                break
            messages.append(said)
            for call in calls:
                found = search(str(json.loads(call["function"]["arguments"]).get("query", "")))
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": found})
        return Said(said.get("content") or "", any(one["role"] == "tool" for one in messages))

    return ask


def ask_claude(program: str, env: dict[str, str], project: Path) -> Ask:
    """Return how ``claude -p`` answers; its own login is used, and hooks of crystal that are installed stay silent."""
    server = {"command": sys.executable, "args": ["-m", "crystal", "mcp"], "env": env}

    def ask(task: str, with_crystal: bool) -> Said:
        (project / "CLAUDE.md").write_text(GUIDANCE if with_crystal else "", "utf-8")
        servers = json.dumps({"mcpServers": {"crystal": server} if with_crystal else {}})
        command = [
            program,
            "-p",
            task,
            "--output-format",
            "stream-json",
            "--verbose",
            "--strict-mcp-config",
            "--mcp-config",
            servers,
        ]
        tool = f"mcp__crystal__{SEARCH.name}"
        given: dict[str, Any] = {"cwd": project, "env": {**os.environ, "CRYSTAL_INTERNAL": "1"}, "timeout": SECONDS}
        done = subprocess.run([*command, "--allowedTools", tool], capture_output=True, text=True, check=True, **given)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        result = next((str(line.get("result")) for line in lines if line.get("type") == "result"), "")
        return Said(result, f'"name": "{tool}"' in json.dumps(lines))

    return ask


def count(rows: list[Row], ask: Ask) -> dict[bool, tuple[int, int]]:
    """Return with crystal and without how many decisions were applied, and how often the model looked."""
    found = {}
    for with_crystal in (True, False):
        answers = [(row, ask(row.task, with_crystal)) for row in rows]
        applied = sum(re.search(row.applied, said.text) is not None for row, said in answers)
        found[with_crystal] = applied, sum(said.has_looked for _, said in answers)
    return found


def main(options: argparse.Namespace) -> int:
    with ROWS.open(encoding="utf-8", newline="") as file:
        rows = [Row(**row) for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)][: options.tasks]
    with tempfile.TemporaryDirectory() as folder:
        home, project = Path(folder) / "home", Path(folder) / "project"
        project.mkdir()
        env = plant(home, project, rows)
        if options.claude:
            ask = ask_claude(options.claude, env, project)
        else:
            key = os.environ.get(options.key_variable) if options.key_variable else None
            ask = ask_server(
                options.url, options.model, key, lambda query: crystal(env, project, "search", query, "-n", "5")
            )
        for with_crystal, (applied, looked) in count(rows, ask).items():
            name = "with crystal" if with_crystal else "without"
            print(f"{name:13} {applied:2} of {len(rows)} decisions applied, searched before {looked} answers")
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url")
    parser.add_argument("--model", default="")
    parser.add_argument("--key-variable")
    parser.add_argument("--claude", metavar="PROGRAM")
    parser.add_argument("--tasks", type=int, default=33)
    chosen = parser.parse_args()
    if not (chosen.url and chosen.model) and not chosen.claude:
        parser.error("give --url and --model, or --claude PROGRAM")
    sys.exit(main(chosen))
