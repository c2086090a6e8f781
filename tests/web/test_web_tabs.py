"""Claims of the page in a real browser while the memory changes below it: by another tab, a writer, or its loss."""

from __future__ import annotations

import json
import subprocess
import sys
import threading

import pytest
from playwright.sync_api import expect

from crystal.app.context import open_machine
from tests.support.browser import Watched, entered, find_browser
from tests.support.command import crystal
from tests.support.exports import SESSION, remember, transcript_line
from tests.support.web_page import serving

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_browser() is None, reason="no Chromium or Chrome on this machine"),
]


def test_what_is_forgotten_in_one_tab_is_gone_in_the_other_and_proved(home, browser):
    remember(home, ["the word is xylophonium", "understood", "the word is glockenspiel", "fine"])
    with serving() as link:
        context = browser.new_context()
        first = entered(context.new_page(), link)
        second = Watched(context.new_page(), first.base)
        for tab in (first.page, second.page):
            tab.goto(f"{first.base}/forget?query=xylophonium")
            tab.locator("main .primary").click()
            tab.locator("text=the word is xylophonium").wait_for()
        first.page.route("**/forget/confirm", lambda route: route.fulfill(status=204))
        first.page.get_by_label("I know that this cannot be undone.").check()
        first.page.get_by_role("button", name="Forget for good").click()
        assert first.page.get_by_role("button", name="Forgetting, then searching").is_disabled()
        first.page.unroute("**/forget/confirm")
        first.page.go_back()
        first.page.locator("main .primary").click()
        for tab, title in ((first.page, "Forgotten, and proved"), (second.page, "Nothing was found")):
            tab.get_by_label("I know that this cannot be undone.").check()
            tab.get_by_role("button", name="Forget for good").click()
            tab.locator("h1", has_text=title).wait_for()
        second.page.goto(f"{first.base}/session/{SESSION}")
        assert "xylophonium" not in second.page.content()
        assert "glockenspiel" in second.page.content()
        assert (first.problems, second.problems) == ([], [])
        context.close()
    proof = json.loads(crystal("forget", "--query", "xylophonium", "--dry-run", "--json").out)
    assert proof["found"] is False
    assert json.loads(crystal("verify", "--json").out)["ok"] is True
    found = [path for path in (home / ".ldm").rglob("*") if path.is_file() and b"xylophonium" in path.read_bytes()]
    assert found == []


def test_two_tabs_read_while_the_store_is_written(home, browser):
    remember(home, ["one"])
    stop = threading.Event()
    failed: list[str] = []

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            path = home / ".claude" / "projects" / "w" / f"{number:08x}-1111-4000-8000-000000000000.jsonl"
            lines = [transcript_line(f"marimba {number} {at}", at, session=path.stem) for at in range(20)]
            path.write_text("".join(lines), "utf-8")
            words = [sys.executable, "-m", "crystal", "backfill", "--no-embed"]
            done = subprocess.run(words, check=False, capture_output=True, text=True)
            failed.extend([done.stderr] if done.returncode else [])

    writer = threading.Thread(target=write)
    with serving() as link:
        context = browser.new_context()
        tabs = [entered(context.new_page(), link)]
        tabs.append(Watched(context.new_page(), tabs[0].base))
        writer.start()
        try:
            for turn in range(10):
                for tab in tabs:
                    path = ("/", "/search?q=marimba", "/health", "/memories", f"/session/{SESSION}")[turn % 5]
                    assert tab.page.goto(tabs[0].base + path).status == 200
            tabs[0].page.goto(f"{tabs[0].base}/search?q=marimba")
            assert tabs[0].page.locator(".hits li").count() > 0, "what is written meanwhile is found"
        finally:
            stop.set()
            writer.join()
        assert [tab.problems for tab in tabs] == [[], []]
        context.close()
    assert failed == []


def test_a_search_as_you_type_says_why_it_fails(home, browser):
    remember(home, ["the word is zebra"])
    with open_machine() as machine:
        database = machine.places.db
    with serving() as link:
        watched = entered(browser.new_page(), link)
        page = watched.page
        page.goto(f"{watched.base}/search?q=zebra")
        for file in database.parent.glob("crystal.db*"):
            file.unlink()
        page.fill("#q", "zebras")
        expect(page.locator("#part")).to_contain_text("crystal verify --repair")
        expect(page.locator("a.card")).to_have_count(0)
    page.fill("#q", "zebra")
    expect(page.locator("#part")).to_have_text("The server has stopped. Start it again: crystal web")
    page.close()
