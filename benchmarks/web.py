"""Measure how soon the page answers: its views, searches and long sessions, beside the search alone.

    python benchmarks/web.py [--sizes 10000 500000] [--folder DIR] [--home DIR] [--queries 20]

One process serves and asks, over loopback. The stores are those of search.py with the embedded model's vectors; one
more session of 100,000 turns is put into each. With --home nothing is written, and the longest of the newest sessions
is read. Targets: each view in 200 ms and a search in 100 ms at the median. The exit code is 1 when one was missed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import filling
import httpx
import uvicorn
from search_process import this_machine
from search_questions import questions
from search_stores import Place, ready

from crystal.app.context import open_reader
from crystal.app.search import prepare_search
from crystal.cli.web import FILTERS
from crystal.model.recall import Filters
from crystal.search.engine import search
from crystal.serving.listening import listen
from crystal.sessions.reading import SessionSummary, sessions
from crystal.store.health.stats import counts
from crystal.web.app import VIEWS, make_app
from crystal.web.pages.search import LIMIT
from crystal.web.security import Access

FIRST_VIEW_MS, SEARCH_MS = 200, 100
LONG = 100_000


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--sizes", type=int, nargs="*", default=[10_000, 500_000])
    options.add_argument("--folder", type=Path, help="where stores are made and kept")
    options.add_argument("--home", type=Path, help="measure the memory of this home folder instead")
    options.add_argument("--queries", type=int, default=20)
    options.add_argument("--long", type=int, default=LONG, help="turns of the long session")
    given = options.parse_args()
    print(this_machine())
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        os.environ["HOME"] = temporary
        folder = given.folder or Path(temporary) / "stores"
        if given.home:
            os.environ["HOME"] = str(given.home.resolve())
            with open_reader() as machine:
                places = [Place(folder, counts(machine.store)["chunks"], 0)]
        else:
            places = [ready(Place(folder, size, 0), plain=False) for size in given.sizes]
        kept = [measure(place, given) for place in places]
    print("targets kept" if all(kept) else "a target was missed")
    return 0 if all(kept) else 1


def measure(place: Place, given: argparse.Namespace) -> bool:
    """Measure the page over one memory; return whether the targets were kept."""
    if not given.home:
        os.environ["CRYSTAL_DATA_DIR"] = str(place.crystal.parent)
    print(f"\n=== {place.chunks:,} chunks ===")
    begin = time.perf_counter()
    with serving() as browser:
        browser.get("/").raise_for_status()
        print(f"{'the first answer, with the start of the server':<52}{1000 * (time.perf_counter() - begin):9.0f} ms")
        views = {view.name: timed(given.queries, lambda path=view.path: browser.get(path)) for view in VIEWS}
        texts = [one.text for one in questions(Place(place.folder, place.chunks, 384), given.queries)]
        asked = {"the search alone": [], "a search as you type": []}
        for text in texts:
            asked["the search alone"] += timed(1, lambda text=text: ask(text))
            parameters = {"q": text, "part": "1"}
            asked["a search as you type"] += timed(1, lambda values=parameters: browser.get("/search", params=values))
        longest = long_session(place, 0 if given.home else given.long)
        pages = [
            timed(3, lambda at=at: browser.get(f"/session/{longest.id}?from={at}")) for at in (0, longest.turns // 2)
        ]
    for words, times in {**views, **asked, "a page of a long session": pages[0] + pages[1]}.items():
        print(f"{words:<52}{show(times)}")
    first = max(statistics.median(times) for times in (*views.values(), pages[0]))
    return first <= FIRST_VIEW_MS and statistics.median(asked["a search as you type"]) <= SEARCH_MS


@contextmanager
def serving() -> Iterator[httpx.Client]:
    """Serve in a thread, and give a browser that came by the link."""
    with listen(0, 0, "crystal web") as listening:
        access = Access("crystal-benchmark")
        config = uvicorn.Config(make_app(FILTERS, access), lifespan="off", log_level="error", access_log=False)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        base = f"http://127.0.0.1:{listening.getsockname()[1]}"
        try:
            with httpx.Client(base_url=base, timeout=600) as browser:
                browser.get(f"/open?token={access.link}").raise_for_status()
                yield browser
        finally:
            server.should_exit = True
            thread.join()


def ask(text: str) -> None:
    """Search as `crystal search` does."""
    with open_reader() as machine:
        search(*prepare_search(machine, text, LIMIT, Filters()))


def long_session(place: Place, turns: int) -> SessionSummary:
    """Put a session of many turns into the store if there is none; return the longest session."""
    with open_reader() as machine:
        longest = max(sessions([machine.store], limit=50)[0], key=lambda one: one.turns)
    if longest.turns < turns:
        filling.SESSION = turns
        filling.fill(place.crystal, turns)
        return long_session(place, turns)
    return longest


def timed(times: int, run: Callable[[], object]) -> list[float]:
    """Return how long something took each time, in ms."""
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        run()
        taken.append(1000 * (time.perf_counter() - begin))
    return taken


def show(times: list[float]) -> str:
    """Return the median and the 95th percentile."""
    ordered = sorted(times)
    return f"{statistics.median(ordered):9.1f} ms{ordered[round((len(ordered) - 1) * 0.95)]:9.1f} ms (95 %)"


if __name__ == "__main__":
    raise SystemExit(main())
