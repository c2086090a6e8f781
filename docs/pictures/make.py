"""Make the pictures of the documentation: real programs on a real terminal, and what stood on it.

Run it in a checkout, by hand; it needs tmux, git and npm, or a Claude Code that is named in CRYSTAL_E2E_CLAUDE:

    python docs/pictures/make.py

Two homes in a temporary folder, a laptop and a desktop, with a relay between them: the published Claude Code, its hooks
and MCP server put in by `crystal init`, `crystal` in a shell. Two things are played:

- The model. A server on loopback says what it is told here. What the second agent quotes is not: its words are taken
  from the result of its own call of crystal_search, as that reached the model.
- Last week. The laptop's session is held just now, and before crystal is set up there, seven days are taken from every
  time in its transcript. It is then imported as any past session is.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(ROOT), str(HERE)]  # the real client is run as the tests run it

from terminal import Screen, draw  # noqa: E402

from tests.e2e.client import Client, find_client  # noqa: E402
from tests.e2e.fake_anthropic import Block, FakeAnthropic, Step, Use  # noqa: E402
from tests.support.docs_sample import write_sample  # noqa: E402
from tests.support.two_machines import RelayProcess  # noqa: E402
from tests.support.whole_memory import Memory, wait_until  # noqa: E402

WEEK = timedelta(days=7)
PROBLEM = "Some customers are charged twice. The payment webhook comes in twice, I think. How do we stop that?"
DECISION = (
    "The provider sends an event again when we take longer than 5 seconds. "
    "I keep each event's id in the table webhook_events, unique, "
    "and answer 200 without doing anything when it is known."
)
QUESTION = "Refunds come in over a webhook too. How did we handle events that come twice?"
ANSWER = (
    "You decided that on {day}, on the {device}:\n\n> {text}\n\n"
    "I do the same for refunds: their event ids go into `webhook_events` too, and a known one is answered with 200."
)
REGRET = "Acme pays 30 % less than the others until March. Does a discount for one customer need a table?"
ADVICE = "No: a column discount in the table customers is enough, 0.30 for Acme."
WORDS = "payment webhook sent twice, what was decided"
RECALLED = re.compile(r"\[\w+ \w+ assistant · (?P<day>[\d-]+) \S+ (?P<device>\w+)\]\n(?P<text>[^<\[]*)\n[<\[]")


class Model(FakeAnthropic):
    """The model on loopback. The second agent's answer is made of what its search gave it."""

    def step_for(self, body: dict[str, Any]) -> Step:
        """As the tests' model, but quoting the hit where an answer asks for it."""
        step = super().step_for(body)
        if not isinstance(step, Sequence):
            return step
        return [self._quoting(block, body) for block in step]

    def _quoting(self, block: Block, body: dict[str, Any]) -> Block:
        if not isinstance(block, str) or "{" not in block:
            return block
        found = next(filter(None, map(RECALLED.search, self._results(body))), None)
        if found is None:
            raise RuntimeError(f"the search of the second agent did not find the decision: {body['messages'][-1]}")
        day = datetime.strptime(found["day"], "%Y-%m-%d").replace(tzinfo=timezone.utc)
        return block.format(day=f"{day.day} {day:%B}", device=found["device"], text=found["text"])

    @staticmethod
    def _results(body: dict[str, Any]) -> Iterator[str]:
        """The texts of the hits that tools gave, as the model was told them."""
        for message in body["messages"]:
            for block in message["content"] if isinstance(message["content"], list) else []:
                if block.get("type") == "tool_result":
                    told = block["content"]
                    text = told if isinstance(told, str) else "".join(part.get("text", "") for part in told)
                    yield text


class Person(Client):
    """Claude Code as somebody uses it who works in ~/shop and lets it use the memory unasked."""

    @property
    def project(self) -> Path:
        """Where it is started."""
        return self.home / "shop"

    def command(self, *arguments: str) -> list[str]:
        """The command line: as one types it."""
        return [str(self.program), *arguments]

    def prepare(self, *more_projects: Path) -> None:
        """A home with a repository, and the first questions answered."""
        self.home.mkdir()
        super().prepare(*more_projects)
        settings = {"permissions": {"allow": ["mcp__crystal"], "defaultMode": "default"}}
        (self.config / "settings.json").write_text(json.dumps(settings), "utf-8")
        for words in (["init", "-q", "-b", "main"], ["remote", "add", "origin", "https://example.org/shop.git"]):
            subprocess.run(["git", *words], cwd=self.project, check=True)


class Place(Memory):
    """A machine: a home, a name, Claude Code and crystal."""

    def __init__(self, name: str, folder: Path, model: Model, program: Path) -> None:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        extra = {"CRYSTAL_DEVICE": name, "TZ": "UTC", "PATH": path, "PYTHONWARNINGS": "ignore"}
        self.client = Person(program, folder / name, model.base_url, extra)
        self.client.prepare()
        super().__init__(self.client.home, self.client.env())

    def type(self, *words: str, stdin: str) -> None:
        """Run a command of crystal that reads something."""
        command = [sys.executable, "-m", "crystal", *words]
        subprocess.run(command, env=self.env, cwd=ROOT, input=stdin, text=True, check=True, capture_output=True)

    @contextmanager
    def shell(self, size: tuple[int, int]) -> Iterator[Screen]:
        """A shell in ~/shop."""
        command = ["env", "PS1=$ ", "bash", "--norc", "--noprofile"]
        with Screen(command, self.client.project, self.env, size) as screen:
            screen.wait_for(lambda: "$" in screen.text(), "the shell")
            yield screen

    def talk(self, name: str, prompt: str, end: str, title: str) -> None:
        """Ask Claude Code something on its own screen, and keep what stands there when it has answered."""
        with Screen(self.client.command(), self.client.project, self.env, (88, 30)) as screen:
            screen.wait_for(lambda: "❯" in screen.text(), "the prompt")  # noqa: RUF001
            screen.type(prompt)
            screen.wait_for(lambda: end in screen.text(), "the answer")
            screen.wait_for(lambda: "esc to interrupt" not in screen.text(), "the end of the turn")
            self.keep(name, screen, title, f"{title}: {prompt}", until="✻")
            screen.type("/exit")
            screen.wait_for(lambda: not screen.is_alive(), "its end")

    def keep(self, name: str, screen: Screen, title: str, said: str, until: str = "") -> None:
        """Write what stands on a screen as a picture, down to the last line that has ``until``."""
        lines = screen.coloured().replace(str(self.home), "~").splitlines()
        end = max(at for at, line in enumerate(lines) if until in line)
        shown = "\n".join(lines[: end + 1])
        if "/tmp" in shown or "/root" in shown:  # noqa: S108
            raise RuntimeError(f"a path of this machine is on the picture:\n{shown}")
        (HERE / f"{name}.svg").write_text(draw(shown, title, said), "utf-8")
        print(f"docs/pictures/{name}.svg")


def back(client: Client, by: timedelta) -> None:
    """Take the same time from every line of every transcript, as if all of it had been said then."""

    def earlier(match: re.Match[str]) -> str:
        then = datetime.fromisoformat(match[2].replace("Z", "+00:00")) - by
        return f"{match[1]}{then.isoformat(timespec='milliseconds').replace('+00:00', 'Z')}"

    for path in client.transcripts():
        text = path.read_text("utf-8")
        path.write_text(re.sub(r'("timestamp":")(\d{4}-\d\d-\d\dT[\d:.]+Z)', earlier, text), "utf-8")
        then = path.stat().st_mtime - by.total_seconds()
        os.utime(path, (then, then))


def last_week(laptop: Place, model: Model) -> None:
    """The first session, and one that will be regretted: the real client, on the laptop."""
    model.when("charged twice", [DECISION])
    laptop.talk("last-week", PROBLEM, "is known.", "Claude Code, on the laptop, last week")
    model.when("until March", [ADVICE])
    laptop.client.ask(REGRET)
    back(laptop.client, WEEK)


def pair(desktop: Place, laptop: Place, relay: RelayProcess) -> None:
    """One memory on both machines, and Claude Code on the desktop that may ask it."""
    token = relay.token("home", "home")
    desktop.type("init", "--yes", "--import", "--client", "claude-code", "--role", "home", "--relay", relay.url,
                 "--token-stdin", stdin=token)  # fmt: skip
    laptop.crystal("init", "--yes", "--import")
    laptop.type("relay", "join", stdin=desktop.crystal("relay", "pair", "--offline", "--name", "laptop"))

    def has_come() -> bool:
        laptop.run("relay", "sync")
        desktop.run("relay", "poll")
        return "unique" in desktop.run("search", "webhook_events").stdout

    wait_until(has_come, "the desktop to have what was said on the laptop")


def recall(desktop: Place, model: Model) -> None:
    """Today's session, on the desktop: the agent looks it up."""
    model.when(
        "Refunds come in",
        ["I look that up in the memory.", Use("mcp__crystal__crystal_search", {"query": WORDS, "limit": 3})],
        [ANSWER],
    )
    desktop.talk("recall", QUESTION, "answered with 200", "Claude Code, on the desktop, today")
    desktop.settle()


def search(desktop: Place) -> None:
    """The same, found by a person."""
    with desktop.shell((92, 40)) as screen:
        screen.type('crystal search "customers charged twice" -n 2')
        screen.wait_for(lambda: screen.text().rstrip().endswith("\n$"), "the answer")
        desktop.keep("search", screen, "~/shop", "crystal search finds what was said on another machine")


def forget(desktop: Place) -> None:
    """Something is forgotten: what goes is shown, asked for, and proved."""
    with desktop.shell((100, 40)) as screen:
        screen.type("crystal forget --query Acme --prove")
        screen.wait_for(lambda: "[y/N]" in screen.text(), "the question")
        screen.press("y", "Enter")
        screen.wait_for(lambda: screen.text().rstrip().endswith("\n$"), "the end")
        desktop.keep("forget", screen, "~/shop", "crystal forget shows what goes, asks, and proves that it is gone")


def main() -> int:
    """Make them all."""
    cache = Path(os.environ.get("CRYSTAL_E2E_CACHE") or Path.home() / ".cache" / "crystal-e2e")
    program = find_client({"CRYSTAL_E2E": "1", **os.environ}, cache)
    with tempfile.TemporaryDirectory(prefix="crystal-pictures-", ignore_cleanup_errors=True) as name, Model() as model:
        folder = Path(name)
        relay = RelayProcess(folder / "relay")
        relay.start()
        try:
            desktop, laptop = (Place(each, folder, model, program) for each in ("desktop", "laptop"))
            write_sample(desktop.home, datetime.now(timezone.utc))
            last_week(laptop, model)
            pair(desktop, laptop, relay)
            search(desktop)
            recall(desktop, model)
            forget(desktop)
            laptop.settle()
            desktop.settle()
        finally:
            relay.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
