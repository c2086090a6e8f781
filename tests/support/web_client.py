"""The page in this process: a client that came by the link, and the elements of what it gets."""

from __future__ import annotations

from html.parser import HTMLParser

from starlette.testclient import TestClient

from crystal.cli.web import FILTERS
from crystal.web.app import make_app
from crystal.web.security import Access
from tests.support.event_loop import shared_portal

BASE = "http://127.0.0.1:8642"
ORIGIN = {"origin": BASE, "sec-fetch-site": "same-origin"}


class Client(TestClient):
    """A browser on this machine. ``post`` sends what a form of the page sends."""

    def __init__(self, *, is_inside: bool = True, shows_bugs: bool = False) -> None:
        self.access = Access("crystal-8642")
        super().__init__(
            make_app(FILTERS, self.access),
            base_url=BASE,
            follow_redirects=False,
            raise_server_exceptions=not shows_bugs,
        )
        self.portal = shared_portal()
        if is_inside:
            assert self.get(f"/open?token={self.access.link}").status_code == 200

    def send_form(self, path: str, **fields: str):
        return self.post(path, data={"csrf": self.access.csrf, **fields}, headers=ORIGIN)


class Elements(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]
