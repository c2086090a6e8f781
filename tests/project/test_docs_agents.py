"""The table of docs/how-to/agents.md names every agent that crystal reads, and the folders that it looks in."""

from pathlib import Path

from crystal.config.harnesses import HARNESSES

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "agents.md"


def test_every_agent_has_a_row_with_its_variables() -> None:
    rows = {line.split("|")[1].strip(): line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")}
    for harness in HARNESSES.values():
        variables = {place.variable for place in harness.places if place.variable}
        missing = [name for name in variables if name not in rows[harness.title]]
        assert missing == [], harness.title
