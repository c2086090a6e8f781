"""``crystal tui``: searched, opened and left with the keyboard, at 80 columns and at 130."""

from __future__ import annotations

import asyncio
import html
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("textual")

from textual.widgets import Collapsible, Input, OptionList, Static

from crystal.app.context import open_reader
from crystal.cli.tui.app import MemoryBrowser
from crystal.cli.tui.reading import PER_PAGE
from crystal.store import Store
from tests.support.command import crystal
from tests.support.store_factory import NOW, add_turn
from tests.support.work_sessions import ERROR, cured

pytestmark = pytest.mark.slow

Steps = Callable[[MemoryBrowser, Callable[..., Awaitable[None]]], Awaitable[None]]


def browse(steps: Steps, size: tuple[int, int] = (130, 36), query: str = "") -> None:
    """Run the program without a terminal; ``press`` waits until all that a key begins has ended."""

    async def run(browser: MemoryBrowser) -> None:
        async with browser.run_test(size=size) as pilot:

            async def press(*keys: str, typed: str | None = None) -> None:
                if typed is not None:
                    browser.query_one(Input).value = typed
                await pilot.press(*keys)
                await pilot.pause(0.2)
                await browser.workers.wait_for_complete()
                await pilot.pause()

            await press()
            await steps(browser, press)

    with ThreadPoolExecutor(1) as thread:
        opened = open_reader()
        machine = thread.submit(opened.__enter__).result()
        try:
            asyncio.run(run(MemoryBrowser(machine, thread, query)))
        finally:
            thread.submit(opened.__exit__, None, None, None).result()


def rows(browser: MemoryBrowser) -> list[str]:
    options = browser.query_one(OptionList)
    return [str(options.get_option_at_index(at).prompt) for at in range(options.option_count)]


def title(browser: MemoryBrowser) -> str:
    return str(browser.query_one("#title", Static).render())


def page(browser: MemoryBrowser) -> str:
    shown = [str(one.render()) for one in browser.query_one("#conversation").query(Static)]
    return "\n".join([*shown, *(one.title for one in browser.query(Collapsible))])


def test_a_hit_is_found_as_it_is_typed_and_opened_in_its_conversation(store: Store) -> None:
    cured(store, "one", NOW)
    add_turn(store, "Use [bold]Decimal[/bold] for money\x1b[2J, says the \u202euser", session="two", ts=NOW + 500)

    async def steps(browser: MemoryBrowser, press: Callable[..., Awaitable[None]]) -> None:
        assert [row.splitlines()[1].split(" · ")[-1] for row in rows(browser)] == ["1 turn", "12 turns"]
        await press("slash", typed="decimal money")
        assert "Use [bold]Decimal[/bold] for money" in rows(browser)[0]
        await press("enter", "enter")
        assert "[bold]Decimal[/bold]" in page(browser)
        assert not {"\x1b", "\u202e"} & set(page(browser) + "".join(rows(browser)))
        await press("slash", typed="nothing has this wordq")
        assert "no text" in title(browser) or rows(browser) == [] or "close in meaning" in title(browser)

    browse(steps)
    browse(steps, (80, 24))


def test_memories_are_listed_and_answers_are_shown_as_markdown(store: Store) -> None:
    crystal("remember", "We deploy on Fridays", "--category", "event")
    answer = "# Plan\n\n1. use **Decimal** and `round`\n\n```py\nx = 1\n```\n\n[bold]\x1b[2J a\u202eb[/bold]"
    add_turn(store, "use **stars**", session="one", ts=NOW)
    add_turn(store, answer, session="one", ts=NOW + 1, role="assistant")

    async def steps(browser: MemoryBrowser, press: Callable[..., Awaitable[None]]) -> None:
        await press("enter")
        seen = html.unescape(browser.export_screenshot()).replace("\xa0", " ")
        assert "**stars**" in seen, "the user's words are as they were typed"
        assert "**Decimal**" not in seen
        for word in ("Decimal", "[bold]", "Plan"):
            assert word in seen
        assert "\u202e" not in seen
        assert "Quit" in seen, "the last key has its place, also in 80 columns"
        await press("m")
        assert (title(browser), [row.splitlines()[0] for row in rows(browser)]) == (
            "memories",
            ["We deploy on Fridays"],
        )
        await press("enter")
        assert "We deploy on Fridays" in page(browser)
        assert "event" in page(browser)

    browse(steps)
    browse(steps, (80, 24))


def test_blame_fix_and_history_of_what_is_in_sight(store: Store, tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    shop.mkdir()
    (shop / "cart.py").write_text("    return int(a) + b\n")
    cured(store, "one", NOW, str(shop))

    async def steps(browser: MemoryBrowser, press: Callable[..., Awaitable[None]]) -> None:
        first = rows(browser)
        await press("enter")
        assert "Edit call" in page(browser)
        await press("f")
        assert rows(browser)[0].startswith("/a/shop/cart.py")
        assert "edited" in rows(browser)[1]
        assert rows(browser)[2].splitlines()[1] == "succeeded"
        await press("b")
        assert title(browser).startswith("who wrote ")
        assert "line 1 " in rows(browser)[0]
        await press("enter")
        assert "Edit call" in page(browser)
        await press("a")
        assert [row.splitlines()[1].split(" ")[0] for row in rows(browser)] == ["fixed", "edited", "failed"]
        assert rows(browser)[0].startswith("edited cart.py · error: ")
        await press("escape")
        assert "Edit call" in page(browser), "where a was pressed"
        await press("escape")
        assert title(browser).startswith("who wrote "), "its list"
        await press("escape", "escape")
        assert rows(browser) == first, "the one before"
        await press("t")
        assert len(rows(browser)) == 2  # the day, and the session

    browse(steps)
    browse(steps, (80, 24))


def test_pages_folds_and_what_cannot_be_done_are_said(store: Store) -> None:
    for number in range(PER_PAGE + 5):
        add_turn(store, f"turn number {number}", session="long", ts=NOW + number)
    add_turn(store, "Bash: ls", role="tool_call", tool="Bash", session="long", ts=NOW + 1_000)

    async def steps(browser: MemoryBrowser, press: Callable[..., Awaitable[None]]) -> None:
        for key, words in (
            ("b", "no file"),
            ("f", "nothing failed"),
            ("a", "nothing to look up"),
            ("question_mark", "t days"),
        ):
            await press(key)
            assert words in title(browser)
        await press("enter")
        assert f"turns 1 to {PER_PAGE} of {PER_PAGE + 6} · n: next" in title(browser)
        await press("n")
        assert "Bash call" in page(browser)
        assert "turn number 0" not in page(browser)
        assert [one.collapsed for one in browser.query(Collapsible)] == [True]
        await press("x")
        assert [one.collapsed for one in browser.query(Collapsible)] == [False]
        await press("n")
        await press("p")
        assert "turns 1 to" in title(browser)
        await press("N")
        assert f"turns 7 to {PER_PAGE + 6} of " in title(browser)
        await press("P")
        assert "turns 1 to" in title(browser)
        store.execute("DELETE FROM chunks")
        await press("s", "enter")
        assert title(browser)

    browse(steps)


def test_the_list_is_in_sight_again_when_it_is_searched_or_gone_back_to(store: Store) -> None:
    cured(store, "one", NOW)

    async def steps(browser: MemoryBrowser, press: Callable[..., Awaitable[None]]) -> None:
        listed, shown = browser.query_one(OptionList), title(browser)
        await press("enter")
        assert (listed.display, title(browser) == shown) == (False, False)
        await press("slash")
        assert (listed.display, title(browser)) == (True, shown)
        await press("tab", "enter", "slash", typed="cannot add")
        assert (listed.display, "hits" in title(browser)) == (True, True)
        shown = title(browser)
        await press("enter", "enter", "escape")
        assert (listed.display, title(browser)) == (True, shown)

    browse(steps, (80, 24))


def test_what_was_in_sight_stays_when_all_unfolds(store: Store) -> None:
    for number in range(30):
        text = f"result {number}\n" + "a line of it\n" * 40
        add_turn(store, text, role="tool_result", tool="Bash", session="long", ts=NOW + number)

    async def steps(browser: MemoryBrowser, press: Callable[..., Awaitable[None]]) -> None:
        await press("slash", typed="result 3")
        await press("enter", "enter")
        pane = browser.query_one("#conversation")
        focus = browser.query_one(".focus")
        for _ in range(2):
            await press("x")
            assert pane.region.y <= focus.region.y < pane.region.bottom

    browse(steps, size=(80, 24))


def test_a_question_may_be_given_and_a_pipe_is_no_terminal(store: Store) -> None:
    cured(store, "one", NOW)

    async def steps(browser: MemoryBrowser, press: Callable[..., Awaitable[None]]) -> None:
        assert any(ERROR.format(NOW).splitlines()[1] in row for row in rows(browser))

    browse(steps, query="cannot add str to int")
    done = crystal("tui")
    assert (done.code, "needs a terminal" in done.err) == (2, True)


def test_an_empty_memory_says_what_to_do(store: Store) -> None:
    async def steps(browser: MemoryBrowser, press: Callable[..., Awaitable[None]]) -> None:
        assert (
            title(browser) == "sessions: Nothing is remembered yet. Use a coding agent for one turn, then search again."
        )
        assert "again." in html.unescape(browser.export_screenshot()), "nothing of it is cut"

    browse(steps, (80, 24))
