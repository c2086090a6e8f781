"""Every code block of the documentation runs as a reader would run it, and every link leads somewhere."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import fromstring

import pytest

from crystal.cli.app import COMMANDS, app, load_command
from crystal.config.load import load_config
from tests.support.docs_blocks import ROOT, Block, agrees, blocks_of, install_shim, run_command, run_python, steps_of
from tests.support.docs_sample import write_sample
from tests.support.table import each_row

PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])
STARTS_WITH_A_MEMORY = "<!-- docs test: starts with a memory -->"
RUN = {"console", "python"}
HAS_RUN = re.compile(r"^```+(?:console|python)", re.MULTILINE)
CHECKED = {"toml", "json"}
# Shown, not run: output and file contents, pictures, the shape of other files, and (sh) what develops crystal itself.
SHOWN = {"", "text", "markdown", "sql", "dockerfile", "mermaid", "sh"}


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.fixture
def reader(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A person's home folder with two conversations in it, and nothing of crystal."""
    monkeypatch.delenv("CLAUDE_CONFIG_DIR")
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    for place in ("crystal.config.load.host_name", "crystal.install.setup_plan.host_name"):
        monkeypatch.setattr(place, lambda: "laptop")
    install_shim(home.parent / "bin", monkeypatch)
    (home / "shop").mkdir()
    write_sample(home, datetime.now(timezone.utc))
    monkeypatch.chdir(home)
    yield home
    monkeypatch.undo()
    time.tzset()


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if HAS_RUN.search(page.read_text("utf-8"))], ids=named)
def test_the_blocks_of_a_page_run_and_print_what_it_shows(page: Path, reader: Path) -> None:
    if STARTS_WITH_A_MEMORY in page.read_text("utf-8"):
        run_command("crystal init --yes --import", reader)
    names: dict[str, Any] = {}
    for block in blocks_of(page):
        if block.why_not is not None or block.language not in RUN:
            continue
        if block.language == "python":
            run_python(block, names)
            continue
        for step in steps_of(block):
            printed = run_command(step.command, reader)
            assert agrees(step.expected, printed), f"{block.place}: $ {step.command}\n{printed}"


@each_row("page", PAGES)
def test_what_is_not_run_says_why_and_names_commands_that_exist(page: Path, home: Path) -> None:
    for block in blocks_of(page):
        assert block.language in RUN | CHECKED | SHOWN, f"{block.place}: {block.language!r} is not run by any test"
        if block.language in RUN and block.why_not is not None:
            assert len(block.why_not) > 10, f"{block.place}: say why"
            check_words(block)
        elif block.language == "json":
            json.loads(block.text)
        elif block.language == "toml":
            file = home / f"{block.line}.toml"
            file.write_text(block.text)
            load_config({"CRYSTAL_CONFIG": str(file)}, home)


def check_words(block: Block) -> None:
    """The commands and options of crystal in a block that is not run are there."""
    if block.language == "python":
        compile(block.text, block.place, "exec")
        return
    for step in steps_of(block):
        for part in re.split(r"&&|;|\|", step.command):
            words = shlex.split(part)
            while words and "=" in words[0]:
                words.pop(0)
            if words and Path(words[0]).name == "crystal":
                check_options(words[1:], block)


def check_options(words: list[str], block: Block) -> None:
    command: Any = None
    name = next((word for word in words if not word.startswith("-")), None)
    if name is not None and name in COMMANDS:
        command = load_command(name)
        for word in words:
            command = getattr(command, "commands", {}).get(word, command)
    known = {
        option
        for parameter in (command.params if command else root_parameters())
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    for word in words:
        if word.startswith("-"):
            assert word.partition("=")[0] in known, f"{block.place}: crystal {name or ''} has no {word}"
        elif command is None:
            assert words[words.index(word) - 1].startswith("--"), f"{block.place}: there is no command {word}"


def root_parameters() -> list[Any]:
    import typer

    return list(typer.main.get_command(app).params)


# ----------------------------------------------------------------------------------------------------------- links

COMING: set[str] = set()
"""Pages that are being written."""

LINK = re.compile(r"(?<!!)\[[^\]\n]+\]\((?P<target>[^)\s]+)\)")


def without_code(text: str) -> str:
    return re.sub(r"`[^`\n]+`", "", re.sub(r"^(```+).*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL))


def anchors_of(page: Path) -> set[str]:
    """The names under which a page's headings are linked: as GitHub makes them."""
    text = re.sub(r"^(```+).*?^\1$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    names: list[str] = []
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        name = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        names.append(f"{name}-{names.count(name)}" if name in names else name)
    return set(names)


@each_row("page", PAGES)
def test_every_link_leads_somewhere(page: Path) -> None:
    for match in LINK.finditer(without_code(page.read_text("utf-8"))):
        target, _, anchor = match["target"].partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        there = (page.parent / target).resolve() if target else page
        if not there.exists() and there.is_relative_to(ROOT) and named(there) in COMING:
            continue
        assert there.exists(), f"{named(page)} links to {target}, which is not there"
        if anchor and there.suffix == ".md":
            assert anchor in anchors_of(there), f"{named(page)} links to {target}#{anchor}, which has no such heading"


PICTURE = re.compile(r"!\[(?P<said>[^\]\n]+)\]\((?P<target>[^)\s]+)\)")
A_MACHINE = re.compile(r"/tmp|/root|/Users/|/home/(?!you\b)|[-/]crystal-pictures")


@each_row("page", PAGES)
def test_every_picture_is_there_and_said_in_words(page: Path) -> None:
    for match in PICTURE.finditer(without_code(page.read_text("utf-8"))):
        assert (page.parent / match["target"]).is_file(), f"{named(page)} shows {match['target']}, which is not there"
        assert len(match["said"]) > 20, f"{named(page)}: say what {match['target']} shows"


@each_row("picture", sorted((ROOT / "docs").rglob("*.svg")))
def test_a_picture_is_small_and_names_no_machine(picture: Path) -> None:
    text = picture.read_text("utf-8")
    assert fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    assert len(text.encode()) < 60_000
    assert A_MACHINE.search(text) is None


def test_every_page_can_be_reached_from_the_index() -> None:
    seen: set[Path] = set()
    waiting = [ROOT / "docs" / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or not page.exists():
            continue
        seen.add(page)
        targets = LINK.findall(without_code(page.read_text("utf-8")))
        waiting += [
            (page.parent / target.partition("#")[0]).resolve()
            for target in targets
            if target.partition("#")[0].endswith(".md")
        ]
    assert {named(page) for page in (ROOT / "docs").rglob("*.md")} <= {
        named(page) for page in seen if page.is_relative_to(ROOT)
    }


@each_row("page", PAGES)
def test_a_line_of_prose_is_one_sentence(page: Path) -> None:
    text = re.sub(r"^(```+).*?^\1$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(("|", "-", "*", ">", "#", "<", " ", "[")) or re.match(r"\d+\. ", line):
            continue
        plain = re.sub(r"`[^`]*`|\[[^\]]*\]\([^)]*\)", "x", line)
        assert not re.search(r"[a-z)]{2,}[.!?] [A-Z]", plain), f"{named(page)}, about line {number}: {line}"
