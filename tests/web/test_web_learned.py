"""Claims of the review, of where memories came from, and of the figures: they do and say what the commands do."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from crystal.app.context import open_machine
from crystal.app.used_afterwards import find_used
from crystal.store.costs import DAY_MS, Cost, add_cost, spent_by_day
from crystal.store.memories.learned import ReflectorRun, add_run
from crystal.store.sessions.contexts import ASSIST, Injection, add_injection
from crystal.web.pages.health import bars
from tests.support.capture_machine import NOW, keep_transcript, line
from tests.support.command import crystal
from tests.support.exports import remember, start_and_import, transcript_line
from tests.support.table import each_row
from tests.support.web_client import Client

WORDS = (
    "Never mock the database in tests.", "We pin dependencies exactly.", "I prefer tabs over spaces.",
    "Always run just ship to deploy.",
)  # fmt: skip


@pytest.fixture
def learned(home: Path) -> dict[str, str]:
    """Ids of what was learned, by its words."""
    keep_transcript(home, "s1", *(line(text, at=NOW) for text in WORDS[:3]))
    start_and_import()
    assert crystal("reflect", "--now").code == 0
    found = json.loads(crystal("memories", "review", "--json").out)["learned"]
    return {one["memory"]["text"]: one["memory"]["id"] for one in found}


def seen_in(page: str, ident: str) -> str:
    """Return the version of a memory that a page of the review shows."""
    found = re.search(rf'action="/review/{ident}".*?name="seen" value="(\d+)"', page, re.DOTALL)
    return found[1] if found else ""


def decide(client, ident, **fields):
    return client.send_form(f"/review/{ident}", seen=seen_in(client.get("/review").text, ident), **fields)


def test_what_was_learned_is_kept_with_other_words_or_rejected(learned):
    client, (keep, wrong, never) = Client(), (learned[text] for text in WORDS[:3])
    page = client.get("/review").text
    assert [text in page for text in WORDS[:3]] == [True] * 3
    assert "3 memories learned" in page
    assert page.count('<span dir="auto">quartz</span><span dir="auto">/home/dev/quartz</span>') == 2
    assert decide(client, keep, verdict="nonsense").status_code == 400
    assert decide(client, keep, verdict="keep", text=" ").status_code == 400
    assert decide(client, keep, verdict="keep", text="Never mock\r\nany database.").status_code == 303
    assert decide(client, wrong, verdict="wrong", text="ignored").headers["location"] == f"/review?judged={wrong}"
    judged = [client.get(f"/review?judged={one}").text for one in (keep, wrong, "mem-000000000000", "")]
    assert [word in page for page, word in zip(judged, ("Kept: ", "Hidden; ", "Kept", "Hidden"), strict=True)] == [
        True, True, False, False,
    ]  # fmt: skip
    assert decide(client, never, verdict="never").status_code == 303
    assert "Nothing to review" in client.get("/review").text
    every = json.loads(crystal("memories", "--status", "all", "--json").out)["memories"]
    assert {(one["id"], one["status"], one["source"].partition(" ")[0], one["text"]) for one in every} == {
        (keep, "active", "reviewed", "Never mock\nany database."), (wrong, "deprecated", "learned", WORDS[1]),
        (never, "deprecated", "refused", WORDS[2]),
    }  # fmt: skip
    assert client.send_form("/review/mem-000000000000", verdict="keep").status_code == 404


def test_a_page_that_is_no_longer_true_decides_nothing(learned):
    client = Client()
    stale = client.get("/review").text
    for ident, verdict in ((learned[WORDS[1]], "keep"), (learned[WORDS[2]], "never")):
        assert decide(client, ident, verdict="wrong").status_code == 303
        refused = client.send_form(f"/review/{ident}", seen=seen_in(stale, ident), verdict=verdict, text=WORDS[1])
        assert (refused.status_code, "changed meanwhile" in refused.text) == (400, True)
    every = json.loads(crystal("memories", "--status", "deprecated", "--json").out)["memories"]
    assert {one["source"].partition(" ")[0] for one in every} == {"learned"}


def test_a_memory_names_the_turns_that_taught_it(learned):
    client, ident = Client(), learned[WORDS[0]]
    page = client.get(f"/memory/{ident}").text
    assert "It waits for your" in page
    assert 'value="keep">Keep' in page
    assert "archive" not in page, "it is in none"
    assert "said once" in page
    proposed = client.get("/memories?status=proposed").text
    assert ident in proposed
    assert ">archived</span>" not in proposed, "it waits"
    assert proposed.count(">proposed</span>") == 3
    [source] = re.findall(r'href="(/turn/[^"]+)"', page)
    moved = client.get(source)
    assert moved.status_code == 303
    focused = re.search(
        r'<article id="t\d+" class="turn user focus".*?</article>',
        client.get(moved.headers["location"]).text,
        re.DOTALL,
    )
    assert WORDS[0] in focused[0]
    assert client.get("/turn/s1").status_code == 404, "a session is no turn"


def test_a_session_whose_id_has_slashes_has_its_page(home):
    folder = home / ".claude" / "projects" / "w"
    folder.mkdir(parents=True)
    plain = transcript_line("the word is xylophone", 0)
    for number, name in enumerate(("ci/42/run #7?", "/tmp/a.b/markdown", "100% of a", "plain")):
        record = json.loads(plain) | {"sessionId": name, "uuid": f"{number:08x}-0000-4000-8000-000000000000"}
        (folder / f"{number}.jsonl").write_text(json.dumps(record) + "\n")
    start_and_import()
    with open_machine() as machine:
        for number, name in enumerate(("ci/42/run #7?", "/tmp/a.b/markdown", "100% of a")):
            machine.store.execute("UPDATE sessions SET session_id = ? WHERE session_id = ?", (name, str(number)))
    client = Client()
    links = re.findall(r'href="(/session/[^"]+)"', client.get("/").text)
    assert len(set(links)) == 4
    for link in links:
        page = client.get(link).text
        assert "the word is xylophone" in page, unquote(link)
        [copy] = re.findall(r'href="(/markdown/[^"]+)"', page)
        assert "the word is xylophone" in client.get(copy).text
        [turn] = re.findall(r'href="([^"]+)#focus"', page)
        assert 'turn user focus"' in client.get(turn).text


@each_row(("said", "used"), [
    ("I run just ship now", ["ship"]), ("nothing of it", []), ("Look at prices.py", ["file"]),
    ("the database is slow", []), ("Do not MOCK the database!", ["mock"]), ("", []),
])  # fmt: skip
def test_what_was_told_counts_as_used_if_its_own_words_are_said(said, used):
    told = {"mock": WORDS[0], "ship": WORDS[3], "file": "The timeout in prices.py is 5 s", "none": "is it"}
    assert find_used(told, [said]) == used


def test_costs_of_each_day_are_bars(home):
    remember(home, ["one"])
    client = Client()
    assert "Costs by day" not in client.get("/health").text
    with open_machine() as machine:
        now = machine.now()
        for days, usd in ((0, 0.5), (0, 0.5), (29, 2.0), (30, 9.0)):
            add_cost(machine.store, Cost(now - days * DAY_MS, "summary", "openai", "m", 1, 1, usd))
        spent = spent_by_day(machine.store, 0)
    today = now // DAY_MS
    assert spent == {today: 1.0, today - 29: 2.0, today - 30: 9.0}
    found = bars({day: usd for day, usd in spent.items() if day > today - 30}, today)
    assert [(bar.x, bar.height) for bar in found if bar.height] == [(0, 120.0), (580, 60.0)]
    page = client.get("/health").text
    assert page.count("<rect x=") == 30
    assert "$2.00</title>" in page
    assert "$9.00" not in page.partition("Costs by day")[2]


def test_the_figures_are_those_of_the_command(learned):
    with open_machine() as machine:
        now = machine.now()
        ids = [learned[WORDS[0]], learned[WORDS[1]], "mem-gone", "a-session"]
        add_injection(machine.store, Injection(now - 1, "s2", "startup", 9, tuple(ids), 5, 120))
        [(session,)] = machine.store.rows("SELECT session_id FROM sessions")
        add_injection(machine.store, Injection(NOW - 1, session, "startup", 9, tuple(ids), 5, 120))
        machine.store.execute("UPDATE turns SET ts = ?", (now,))
        machine.store.execute("UPDATE injection_logs SET at = ?", (now - 1,))
    day = json.loads(crystal("usage", "--json").out)["periods"]["24h"]
    assert (day["injections"], day["told"], day["used"], day["selected"]) == (2, 2, 2, 8)
    assert "used      100 %: words of 2 of 2 told memories came up later" in crystal("usage").out
    assert "Told unasked" not in Client().get("/usage").text
    with open_machine() as machine:
        add_injection(machine.store, Injection(now - 1, "s2", ASSIST, 3, ("fact", "other"), 0, 77))
    page = Client().get("/usage").text
    assert "Told unasked" in page
    assert "<dt>facts</dt><dd>2</dd>" in page
    assert "2 of 2" in page
    assert "8 of 18" in page


def test_what_a_model_was_asked_is_on_the_page_and_in_the_command(learned):
    assert "a model" not in Client().get("/usage").text
    with open_machine() as machine:
        add_run(machine.store, ReflectorRun(machine.now(), 1200, 1, 4, usd=0.0123, asked=3, unusable=1))
    assert "a model was asked 3 times, $0.0123; 1 answer of no use" in crystal("usage").out
    assert "3 for $0.0123" in Client().get("/usage").text
