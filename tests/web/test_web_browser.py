"""Claims of the page in a real browser: it can be read and used, by keyboard alone too, and no text of it runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime, timezone
from importlib.resources import files
from pathlib import Path

import pytest
from playwright.sync_api import expect

from crystal.app.context import open_machine
from crystal.store.capture.hook_runs import add_hook_runs
from crystal.store.memories.learned import ReflectorRun, add_run
from tests.support.browser import Watched, entered, find_browser, shift_of
from tests.support.command import crystal
from tests.support.exports import SESSION, remember, start_and_import
from tests.support.kept_home import KeptHome
from tests.support.web_hostile import hostile_texts
from tests.support.web_memory import BRIEF, MEMORIES, write_year
from tests.support.web_page import serving

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_browser() is None, reason="no Chromium or Chrome on this machine"),
]
NOW = datetime(2026, 11, 20, 18, tzinfo=timezone.utc)
SIZES = {320: 640, 1280: 800, 3840: 2160}
AXE = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"], "resultTypes": ["violations"]}
CONTRAST = ["color-contrast", "link-in-text-block"]  # takes most of the time; colours do not depend on the width
COLOURS = {"runOnly": {"type": "rule", "values": CONTRAST}}
LAYOUT = {**AXE, "rules": {name: {"enabled": False} for name in CONTRAST}}
CHECKS = {320: {"dark": LAYOUT}, 1280: {"light": AXE, "dark": COLOURS}, 3840: {"light": LAYOUT}}
IS_FENCE_READ_FROM_THE_LEFT = """() => {
  const text = document.querySelector(".said.big").firstChild, range = document.createRange();
  const left = (at) => { range.setStart(text, at); range.setEnd(text, at + 1); return range.getBoundingClientRect().left; };
  return left(text.data.indexOf("`")) < left(text.data.indexOf("s"));
}"""
RUN_AXE = "(options) => axe.run(document, options).then((found) => found.violations)"  # what passes is a long list
LEARNED = ("Never mock the database in tests.", "Fine.", "We pin dependencies exactly.", "Fine.",
           "I prefer tabs over spaces.", "Fine.", "Always use the staging server.", "Fine.")  # fmt: skip
SHIFTS = (
    "new PerformanceObserver((list) => { for (const one of list.getEntries()) window.shifted = (window.shifted ?? 0)"
    " + (one.hadRecentInput ? 0 : one.value); }).observe({ type: 'layout-shift', buffered: true });"
)


@pytest.fixture
def served(home) -> Iterator[str]:
    with serving() as link:
        yield link


@pytest.fixture
def inside(browser, served) -> Iterator[Watched]:
    with_browser = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    with_browser.add_init_script(SHIFTS)
    yield entered(with_browser.new_page(), served)
    with_browser.close()


@pytest.fixture
def inside_review(home, browser) -> Iterator[Watched]:
    """The review, with four memories to review."""
    remember(home, LEARNED)
    assert crystal("reflect", "--now").code == 0
    with serving() as link:
        watched = entered(browser.new_page(), link)
        watched.page.goto(f"{watched.base}/review")
        yield watched
        watched.page.close()


def make_year(home: Path) -> str:
    """Remember a year of conversations; return the id of one that has something of everything."""
    session = write_year(home, NOW, sessions=16)
    start_and_import()
    for text, category, project in MEMORIES:
        crystal("remember", text, "--category", category, *(("--project", project) if project else ()))
    assert crystal("reflect", "--now").code == 0
    with open_machine() as machine:
        add_hook_runs(machine.store, [(at, "Stop", 20.0 + at % 7) for at in range(50)])
        add_run(machine.store, ReflectorRun(machine.now(), 10**8, 9, 9, usd=2345.6, asked=12_345, unusable=1_234))
    return session


@pytest.fixture(scope="module")
def kept_year(tmp_path_factory) -> KeptHome[str]:
    return KeptHome(tmp_path_factory.mktemp("year"), make_year)


@pytest.fixture
def year(kept_year, monkeypatch) -> str:
    kept_year.put_back(monkeypatch)
    return kept_year.made


def addresses(session: str) -> list[str]:
    ident = json.loads(crystal("memories", "--json").out)["memories"][0]["id"]
    return ["/", "/?day=2026-11-20", "/search", "/search?q=retry+timeout", f"/search?session={session}",
            f"/session/{session}", f"/session/{BRIEF}", "/memories",
            f"/memory/{ident}", "/review", "/usage", "/health", "/settings", "/forget", "/nothing"]  # fmt: skip


@pytest.mark.parametrize("width", SIZES)
def test_every_view_can_be_used_by_everybody_at_every_width(year, inside, width):
    axe = files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")
    page = inside.page
    page.set_viewport_size({"width": width, "height": SIZES[width]})
    assert page.locator("a", has_text="everything").bounding_box()["y"] < 400, (
        "projects are at hand, not below all days"
    )
    for path in addresses(year):
        page.goto(inside.base + path)
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true })")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        page.evaluate(axe)
        for scheme, rules in CHECKS[width].items():
            page.emulate_media(color_scheme=scheme)
            found = page.evaluate(RUN_AXE, rules)
            assert not found, (path, scheme, [(one["id"], one["nodes"][0]["html"]) for one in found])
    assert [one for one in inside.problems if "404" not in one] == []


def test_nothing_moves_while_a_page_loads(year, inside):
    page = inside.page
    for path in addresses(year):
        for width, height in SIZES.items():
            page.set_viewport_size({"width": width, "height": height})
            # What moves does so each time; once, on a busy machine, one load moved, and nobody found out why.
            assert any(shift_of(page, inside.base + path) < 0.01 for _ in range(2)), (path, width)


def test_500_hostile_texts_are_shown_and_none_runs_or_loads(home, browser):
    texts = list(hostile_texts(500))
    remember(home, texts)
    for text in texts[:40]:
        crystal("remember", text)
    with serving() as link:
        watched = entered(browser.new_page(), link)
        page, shown = watched.page, ""
        for start in range(0, 500, 100):
            page.goto(f"{watched.base}/session/{SESSION}?from={start}")
            page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true })")
            shown += page.locator(".turns").inner_text()
            for link_to in page.locator(".turns a[href^='http']").all()[:20]:
                link_to.hover()
        for path in "/ /search?q=script+evil+example+img&limit=300 /memories /health /settings /forget".split():
            page.goto(watched.base + path)
            assert not page.title().startswith("ran")
        page.goto(f"{watched.base}/forget?query=evil")
        page.locator("main .primary").click()
        page.wait_for_url("**/forget/preview")
        assert page.locator("li.card").count() > 100
        assert (watched.problems, page.title()) == ([], "Forget: preview · crystal")
        assert len(re.findall(r"\b\d+ ", shown)) >= 500
        assert shown.count("<script>") > 50
        page.close()


def test_the_keyboard_is_enough(year, inside):
    page = inside.page
    page.goto(f"{inside.base}/?day=2026-11-20")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip", "Tab begins at the beginning"
    page.keyboard.press("?")
    assert page.locator("#keys").is_visible()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Space")
    page.keyboard.press("Escape")
    assert not page.locator("#keys").is_visible()
    page.reload()
    page.keyboard.press("j")
    assert page.locator("[data-item].at, dialog[open]").count() == 0, "letters are switched off"
    page.locator("#keys-button").click()
    page.get_by_label("Single letters are keys").check()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    assert page.locator("[data-item].at").count() == 1
    page.keyboard.press("Enter")
    page.wait_for_url("**/session/*")
    assert page.locator(".turns details[open]").count() == 0
    page.keyboard.press("x")
    assert page.locator(".turns details:not([open])").count() == 0
    page.keyboard.press("x")
    assert page.locator(".turns details[open]").count() == 0
    while not page.locator("[data-item].at details").count():
        page.keyboard.press("j")
    page.keyboard.press("Enter")
    assert page.locator("[data-item].at details[open]").count() == 1
    for key, path in (
        ("m", "/memories"),
        ("r", "/review"),
        ("u", "/usage"),
        ("h", "/health"),
        ("e", "/settings"),
        ("t", "/"),
        ("s", "/search"),
    ):
        page.keyboard.press("g")
        page.keyboard.press(key)
        page.wait_for_url(inside.base + path)
    page.keyboard.press("/")
    page.keyboard.type("retry with backoff?j")
    page.locator(".hits li").nth(2).wait_for()
    assert page.locator("#keys").is_hidden(), "a key in a field is a letter"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url("**/session/*#focus")
    assert page.locator("article.focus").is_visible()
    page.keyboard.press("Tab")
    assert inside.problems == []


def test_search_shows_the_hits_of_the_last_letters_only(year, inside):
    page, asked = inside.page, []
    page.on("request", lambda request: asked.append(request.url) if "part=1" in request.url else None)
    page.goto(f"{inside.base}/search?project=shop")
    page.locator("#q").press_sequentially("price service slow", delay=15)
    page.wait_for_url("**price+service+slow**")
    told = json.loads(crystal("search", "price service slow", "--project", "shop", "-n", "20", "--json").out)["hits"]
    expect(page.locator(".hits li")).to_have_count(len(told))
    links = page.locator(".hits a.card").evaluate_all("(all) => all.map((one) => one.getAttribute('href'))")
    assert links == [f"/turn/{hit['id']}" for hit in told]
    assert len(asked) < len("price service slow"), "letters typed together are one search"
    page.reload()
    assert page.locator(".hits li").count() == len(told), "the address has the search"
    assert inside.problems == []


def test_without_its_script_the_page_works_too(year, browser, served):
    without = browser.new_context(java_script_enabled=False)
    page = without.new_page()
    page.goto(served)
    page.wait_for_url(f"{served.partition('/open')[0]}/")
    page.locator("#q").fill("retry")
    page.locator("#q").press("Enter")
    assert page.locator(".hits li").count() > 0
    page.locator(".hits a.card").first.click()
    assert page.locator("article.focus").is_visible()
    without.close()


def test_a_memory_is_changed_archived_and_brought_back(year, inside):
    page = inside.page
    page.goto(f"{inside.base}/memories")
    page.locator("a.card", has_text="just ship").click()
    is_inside = "[...document.querySelectorAll('.trio p')].every((one) => one.scrollWidth <= one.clientWidth)"
    assert page.evaluate(is_inside), "no field reaches over the next one"
    page.locator("#text").fill("This project deploys with `just ship`, on Mondays.")
    page.locator("#key").fill("deploy")
    page.get_by_role("button", name="Save").click()
    page.wait_for_load_state()
    assert crystal("get", "--key", "deploy").out.strip().endswith("on Mondays.")
    assert "never by hand" in page.locator("main").inner_text()
    page.get_by_role("button", name="Archive", exact=True).click()
    page.wait_for_load_state()
    assert crystal("get", "--key", "deploy").code == 1
    page.get_by_role("button", name="Take out of the archive").click()
    page.wait_for_load_state()
    assert crystal("get", "--key", "deploy").code == 0
    ident = json.loads(crystal("remember", "استخدم دائمًا\n```sh", "--json").out)["memory"]["id"]
    page.goto(f"{inside.base}/memory/{ident}")
    assert page.evaluate(IS_FENCE_READ_FROM_THE_LEFT)
    page.goto(f"{inside.base}/settings")
    page.locator("#pattern").fill("/home/ada/secret")
    page.get_by_role("button", name="Add").click()
    page.get_by_role("button", name="Remove /home/ada/secret").click()
    page.wait_for_load_state()
    assert "/home/ada/secret" not in crystal("config").out
    assert inside.problems == []


def test_a_review_needs_one_key_for_each_memory(home, inside_review):
    page = inside_review.page
    page.set_viewport_size({"width": 320, "height": 400})
    page.reload()
    expect(page.locator("[data-review] .at")).to_be_visible()
    assert page.evaluate("() => scrollY") == 0  # the beginning of the page is seen
    page.set_viewport_size({"width": 1280, "height": 720})
    shown = page.locator("[data-review] p.said").all_inner_texts()
    assert sorted(shown) == sorted(LEARNED[::2])
    for number, key in enumerate("ewny"):
        expect(page.locator("[data-review] > li")).to_have_count(4 - number)
        expect(page.locator("[data-review] .at")).to_be_visible()  # the script has begun to listen
        page.keyboard.press(key)
        if key == "e":
            page.keyboard.type(" y, n and w are letters here")
            page.keyboard.press("Escape")
            page.keyboard.press("y")
    page.get_by_text("Nothing to review.").wait_for()
    every = json.loads(crystal("memories", "--status", "all", "--json").out)["memories"]
    told = {one["text"]: one["source"].partition(" ")[0] for one in every}
    assert told == {f"{shown[0]} y, n and w are letters here": "reviewed", shown[1]: "learned", shown[2]: "refused",
                    shown[3]: "reviewed"}  # fmt: skip
    assert inside_review.problems == []


def test_a_session_is_copied_printed_and_linked_to(year, inside):
    page = inside.page
    page.goto(f"{inside.base}/session/{year}")
    page.locator("[data-copy]").click()
    expect(page.locator("[data-copy]")).to_have_text("Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("---\nid: ")
    assert "```python" in copied
    page.route("**/markdown/**", lambda route: route.abort())
    page.locator("[data-copy]").click()
    expect(page.locator("[data-copy]")).to_contain_text("The server has stopped")
    inside.problems.clear()  # the request that failed
    direction = "(one) => { one.closest('.said').dir = 'rtl'; return getComputedStyle(one).direction }"
    assert page.locator(".said pre code").first.evaluate(direction) == "ltr", "code is read from left to right"
    page.emulate_media(media="print", color_scheme="dark")
    assert not page.locator(".bar").is_visible()
    background = "getComputedStyle(document.querySelector('.turn.user')).backgroundColor"
    assert page.evaluate(background) == "rgb(228, 241, 239)", "paper is white, and text on it black"
    assert page.locator(".turn.user").first.is_visible()
    page.emulate_media(media="screen", color_scheme="light")
    inside_subagent = page.locator(".inner article .facts a").last.get_attribute("href")
    page.goto(inside.base + inside_subagent)
    assert page.locator("article.focus").is_visible(), "a link unfolds the subagent"
    assert page.locator(".diff .added").count() == 2
    assert inside.problems == []


def test_a_second_browser_is_not_let_in_by_the_same_link(year, browser, served):
    entered(browser.new_context().new_page(), served)
    other = browser.new_context().new_page()
    assert other.goto(served).status == 403
    assert "This link was used before" in other.content()
    base = served.partition("/open")[0]
    assert other.goto(f"{base}/").status == 403
    assert other.goto(f"{base.replace('127.0.0.1', 'localhost')}/").status == 403
    hostile = browser.new_context().new_page()
    hostile.route("http://evil.example/", lambda route: route.fulfill(
        content_type="text/html",
        body=f"<form method=post action='{base}/forget/confirm'><input name=query value=retry></form>"
        f"<img src='{base}/static/icon.svg'><script>document.forms[0].submit()</script>",
    ))  # fmt: skip
    hostile.goto("http://evil.example/")
    hostile.wait_for_url(f"{base}/forget/confirm")
    assert "This page is locked" in hostile.content()
