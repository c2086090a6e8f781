"""The tables in docs/how-to/ name every agent and every store that crystal reads, and the folders that it looks in."""

from pathlib import Path

from crystal.config.harnesses import HARNESSES

PAGES = Path(__file__).parents[2] / "docs" / "how-to"


def test_every_agent_has_a_row_with_its_variables() -> None:
    rows = {
        line.split("|")[1].strip(): line
        for line in (PAGES / "agents.md").read_text("utf-8").splitlines()
        if line.startswith("| ")
    }
    for harness in (one for one in HARNESSES.values() if not one.is_store):
        variables = {place.variable for place in harness.places if place.variable}
        missing = [name for name in variables if name not in rows[harness.title]]
        assert missing == [], harness.title


def test_every_store_has_a_row_with_its_variables() -> None:
    page = (PAGES / "migrate.md").read_text("utf-8")
    for store in (one for one in HARNESSES.values() if one.is_store):
        assert f"| `{store.name}` |" in page
        assert [place.variable for place in store.places if f"`{place.variable}`" not in page] == []
