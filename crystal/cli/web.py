"""Implement ``crystal web``: show the memory as a page in the browser."""

from __future__ import annotations

import os
import sys
import threading
import webbrowser
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from crystal.cli import render
from crystal.cli.forget import REASONS, kept_words, outcome, proof_words
from crystal.cli.options import flag, option
from crystal.cli.values import whole_number
from crystal.text.harmless import harmless

FILTERS: Mapping[str, Callable[..., Any]] = {
    "agent": render.agent_title, "branch": render.shown_branch, "count": render.count_words,
    "file_words": render.file_words, "kept_words": kept_words, "lasting": render.lasting, "price": render.price,
    "validity": render.validity_words, "harmless": harmless,
    "outcome": outcome, "plain": render.one_line, "proof_words": proof_words, "reason": REASONS.get,
    "size": render.size_words, "speaker": render.speaker,
}  # fmt: skip
"""Functions of the command line that the page's templates use, by their names in the templates."""


def web(
    port: Annotated[str | None, option("Its port; 0 for any free one.", "PORT")] = None,
    no_open: Annotated[bool, flag("Print the link, and open no browser.", "--no-open")] = False,
) -> None:
    """Show the memory as a page in the browser, on this machine alone. Runs until Ctrl-C.

    The link opens the page once, in one browser; nothing needs a network.
    """
    from crystal.app.context import open_reader
    from crystal.web.app import serve

    with open_reader():  # raises if there is no memory yet
        pass

    def ready(link: str) -> None:
        render.say(link)
        sys.stdout.flush()
        opens = not no_open and _has_windows()
        if opens:  # in a thread: some browsers return only when they are closed
            threading.Thread(target=webbrowser.open, args=(link,), daemon=True).start()
        verb = "opening" if opens else "open"
        render.say(f"crystal: {verb} this link in your browser; Ctrl-C ends it", stream=sys.stderr)

    serve(FILTERS, None if port is None else whole_number(port, "--port"), ready)


def _has_windows() -> bool:
    """Return True unless the only browser is one in this terminal, as over SSH."""
    is_named = any(os.environ.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"))
    return is_named or not sys.platform.startswith("linux")
