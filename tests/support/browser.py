"""A real browser without a window: the system's Chromium, driven by Playwright."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--force-color-profile=srgb", "--font-render-hinting=none"]


def find_browser() -> str | None:
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Run a browser; ``find_browser`` says whether there is one."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=ARGUMENTS)
        yield browser
        browser.close()


class Watched:
    """A page, and everything of it that should not happen: dialogs, errors, violated policies, requests elsewhere."""

    def __init__(self, page: Page, base: str) -> None:
        self.page, self.base = page, base
        self.problems: list[str] = []
        page.on("dialog", self._dialog)
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("console", self._console)
        page.on("request", self._request)

    def open(self, path: Path, fragment: str = "") -> None:
        self.page.goto("about:blank")
        self.page.goto(path.as_uri() + fragment)

    def run(self, script: str) -> Any:
        """Return what an expression gives; it may be a promise."""
        return self.page.evaluate(script)

    def until(self, script: str, seconds: float = 30) -> Any:
        """Return what an expression gives as soon as that is something."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = self.run(script)
            if found:
                return found
            self.page.wait_for_timeout(50)
        raise AssertionError(f"not in {seconds} s: {script}; {self.problems}")

    def _dialog(self, dialog: Any) -> None:
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"console: {message.text}")

    def _request(self, request: Any) -> None:
        if not request.url.startswith((self.base, "about:", "data:")):
            self.problems.append(f"request: {request.url}")


def shift_of(page: Page, address: str) -> float:
    """Open a page; return how much of it moved until it stood still, if its context adds that up in ``shifted``."""
    page.goto(address)
    page.wait_for_timeout(50)
    return float(page.evaluate("window.shifted ?? 0"))


def entered(page: Page, link: str) -> Watched:
    """Return a page that came by the link of ``crystal web``."""
    base = link.partition("/open")[0]
    watched = Watched(page, base)
    page.goto(link)
    page.wait_for_url(f"{base}/")
    return watched
