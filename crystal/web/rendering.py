"""Render templates as HTML: every value is escaped unless ``markup.py`` made it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from crystal.app.context import now_ms
from crystal.export.labels import Wording
from crystal.timewords.parse import ago, clock, local
from crystal.web.responses import Page, address, session_address


class Renderer:
    """Renders pages.

    Args:
        filters: Functions of the command line, by name.
        csrf: The token that every form contains.
        views: The rows of the menu.
    """

    def __init__(self, filters: Mapping[str, Callable[..., Any]], csrf: str, views: Sequence[Any]) -> None:
        self.wording = Wording(filters["speaker"], filters["agent"], filters["harmless"])
        self._env = Environment(
            loader=PackageLoader("crystal.web"), autoescape=select_autoescape(default=True), undefined=StrictUndefined,
            trim_blocks=True, lstrip_blocks=True, auto_reload=False,
        )  # fmt: skip
        self._env.filters.update(filters)
        self._env.filters.update(ago=_ago, clock=_clock, day=_day, time=_time)
        self._env.globals.update(address=address, session_address=session_address, csrf=csrf, views=views)

    def whole(self, page: Page) -> str:
        """Return a page with the menu around it."""
        return self._env.get_template(page.template).render(page=page, **page.values)

    def part(self, page: Page) -> str:
        """Return only the block ``part``, which the page's script replaces; the whole page if it has no such block."""
        template = self._env.get_template(page.template)
        if "part" not in template.blocks:
            return self.whole(page)
        return "".join(template.blocks["part"](template.new_context({"page": page, **page.values})))

    def bare(self, template: str, **values: Any) -> str:
        """Return a page without the menu."""
        return self._env.get_template(template).render(**values)


def _ago(ms: int | None) -> str:
    return "never" if ms is None else ago(ms, now_ms())


def _clock(ms: int | None) -> str:
    return clock(ms, now_ms())


def _day(date: str) -> str:
    """Return a date (``2026-11-20``) in words; unchanged if the calendar does not have it."""
    try:
        found = datetime.fromisoformat(date)
    except ValueError:
        return date
    return f"{found:%A} {found.day} {found:%B %Y}"


def _time(ms: int) -> str:
    return f"{local(ms):%H:%M}"
