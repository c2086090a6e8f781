"""Make the picture of `crystal tui`: a year of made-up conversations, searched and opened.

Run it in a checkout, by hand:

    python docs/pictures/tui.py
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent)]

from crystal.app.context import open_reader  # noqa: E402
from crystal.cli.tui.app import MemoryBrowser  # noqa: E402
from tests.support.command import crystal  # noqa: E402
from tests.support.web_memory import write_year  # noqa: E402

FONT_FACES = re.compile(r"@font-face \{.*?\}", re.DOTALL)
"""Textual's pictures load their font from the network."""


def main() -> None:
    """Make the picture."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary, ThreadPoolExecutor(1) as thread:
        home = Path(temporary) / "ada"
        home.mkdir()
        os.environ.update(HOME=str(home), CLAUDE_CONFIG_DIR=str(home / ".claude"), CRYSTAL_DEVICE="desk", TZ="UTC")
        write_year(home, datetime.now().astimezone())
        for words in (("init", "--yes", "--no-import"), ("backfill",)):
            assert crystal(*words).code == 0
        opened = open_reader()
        browser = MemoryBrowser(thread.submit(opened.__enter__).result(), thread, "retry with backoff timeout")
        picture = FONT_FACES.sub("", asyncio.run(_picture(browser))).replace("/home/ada/", "/home/you/")
        # What stands hundreds of times stands once, or short.
        picture = re.sub(r"terminal-\d+", "t", picture).replace(' shape-rendering="crispEdges"', "")
        picture = picture.replace("<style>", "<style>rect { shape-rendering: crispEdges }", 1)
        (HERE / "tui.svg").write_text(picture, encoding="utf-8")
        thread.submit(opened.__exit__, None, None, None).result()


async def _picture(browser: MemoryBrowser) -> str:
    """Open the first hit, and return the screen as SVG."""
    async with browser.run_test(size=(120, 30)) as pilot:
        for key in ("enter", "enter"):
            await pilot.pause(0.5)
            await browser.workers.wait_for_complete()
            await pilot.press(key)
        await pilot.pause(0.5)
        await browser.workers.wait_for_complete()
        await pilot.pause(0.2)
        return browser.export_screenshot(title="crystal tui")


if __name__ == "__main__":
    main()
