"""Show what was learned, what sessions were told and what models cost, in a day, a week and a month."""

from __future__ import annotations

from crystal.app.context import Machine
from crystal.app.usage import usage
from crystal.web.responses import Page, RequestValues

TITLES = {"24h": "24 hours", "7d": "7 days", "30d": "30 days"}


def show(machine: Machine, params: RequestValues) -> Page:  # noqa: ARG001 - the interface's
    """Show the figures of ``crystal usage``."""
    return Page("usage.html", "Usage", {"usage": usage(machine), "titles": TITLES})
