"""The page of the words that reach agents has all of them, each with a reason."""

from __future__ import annotations

from pathlib import Path

from crystal.assist import facts
from crystal.install.clients.entry_text import GUIDANCE
from crystal.mcp.catalog import TOOLS

PAGES = Path(__file__).parents[2] / "docs" / "explanation"


def test_each_word_for_an_agent_stands_on_the_page_with_its_reason() -> None:
    page = (PAGES / "words-for-agents.md").read_text("utf-8")
    rows = [[cell.strip() for cell in line.split(" | ")] for line in page.splitlines() if line.startswith("| ")]
    assert all(len(cell.strip("| ")) > 2 for row in rows for cell in row)
    assert {tool.name: tool.description for tool in TOOLS} == {
        row[0].strip("|` "): row[1] for row in rows if row[0].startswith("| `crystal_")
    }
    _, *paragraphs = GUIDANCE.replace("\n- ", "\n\n- ").split("\n\n")
    told = " ".join(" ".join(part.strip().removeprefix("- ").split()) for part in paragraphs)
    begin = rows.index(["| sentence", "why it is there |"]) + 1
    assert told.split() == " ".join(row[0].strip("| ") for row in rows[begin : begin + 6]).split()


def test_each_sentence_of_assist_stands_on_its_page() -> None:
    page = " ".join((PAGES / "assist.md").read_text("utf-8").split())
    for name in ("WRITTEN", "ASKED", "WHY", "FAILED", "BEGUN", "LAST", "STATED", "TOUCHED", "FAILING", "WORKING"):
        words = getattr(facts, name).split("{")[0].split('"')[0].strip()
        assert words in page, name
