"""The tables in docs/how-to/ say of each agent and each store what the code and the tests do."""

import re
from pathlib import Path

from crystal.config.harnesses import CLAUDE_CODE, HARNESSES
from crystal.install.live.mechanisms import MECHANISMS
from tests.e2e.agents import AGENTS
from tests.e2e.test_lives_of_agents import LIVES
from tests.support import agent_samples as samples

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
PAGE = (PAGES / "agents.md").read_text("utf-8")
ROWS = {line.split("|")[1].strip(): line.split("|")[2:-1] for line in PAGE.splitlines() if line.startswith("| ")}
KEPT = {"tool": "tool", "thinking": "thoughts", "subagent": "subagent", "summary": "summar|compact|compress"}
"""How the table calls what the samples show, by the beginning of a role."""
IN_OTHER_TESTS = {
    "aider": {"thoughts"},
    "cline": {"subagent"},
    "copilot-cli": {"summar|compact|compress"},
    "roo-code": {"summar|compact|compress"},
    "vscode-chat": {"subagent"},
}
"""What is kept by other tests than the samples: real programs, and files that the tests write."""


def test_every_agent_has_a_row_with_its_variables() -> None:
    for harness in (one for one in HARNESSES.values() if not one.is_store):
        assert harness.title in ROWS, f"docs/how-to/agents.md lacks a row for {harness.title}"
        variables = {place.variable for place in harness.places if place.variable}
        missing = [name for name in variables if name not in "".join(ROWS[harness.title])]
        assert missing == [], harness.title


def test_the_rows_say_when_an_agent_is_captured_and_which_real_programs_ran() -> None:
    for harness in (one for one in HARNESSES.values() if not one.is_store and not one.is_export):
        _, _, captured, _, _, checked = ROWS[harness.title]
        is_live = harness.name in {CLAUDE_CODE, *MECHANISMS}
        assert captured.strip() == ("at each turn" if is_live else "at each sync"), harness.title
        for agent in (one for one in AGENTS if one.name == harness.name):
            name, _, version = agent.packages[-1].rpartition("@")
            assert "real program" in checked, name
            assert re.search(rf"\b{re.escape('.'.join(version.split('.')[:2]))}\b", ROWS[harness.title][0]), (
                name,
                version,
            )


def test_what_a_row_says_is_kept_is_in_the_samples() -> None:
    for harness in samples.sampled():
        sessions, turns = samples.expected(harness)
        row = ROWS[HARNESSES[harness].title]
        kept = row[3 if len(row) == 6 else 2].replace("summaries of thoughts", "thoughts").replace("every branch", "")
        roles = {turn["role"] for turn in turns} | {"subagent" for turn in turns if turn["subagent"]}
        shown = {word: any(role.startswith(start) for role in roles) for start, word in KEPT.items()}
        shown["model"] = any(session["models"] for session in sessions)
        shown["branch"] = any(session["branch"] for session in sessions)
        told = {word: re.search(word, kept) is not None for word in shown}
        assert {word for word in told if told[word] != shown[word]} == IN_OTHER_TESTS.get(harness, set()), harness


def test_the_page_names_the_programs_that_compact_and_start_subagents_in_tests() -> None:
    told = re.search(r"compact a conversation \((.+)\) and start a subagent \((.+)\)\.", PAGE)
    assert told
    compacting = [life.name for life in LIVES if life.compacted is not None]
    helped = [life.name for life in LIVES if life.helper is not None]
    for words, names in zip(told.groups(), (compacting, helped), strict=True):
        assert words.replace("Codex", "Codex CLI").split(", ") == sorted(HARNESSES[name].title for name in names)


def test_every_store_has_a_row_with_its_variables() -> None:
    page = (PAGES / "migrate.md").read_text("utf-8")
    for store in (one for one in HARNESSES.values() if one.is_store):
        assert f"| `{store.name}` |" in page
        assert [place.variable for place in store.places if f"`{place.variable}`" not in page] == []
