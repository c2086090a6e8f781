"""Make the pictures of the page: a year of made-up conversations, and every view of `crystal web` in a real browser.

Run it in a checkout, by hand; it needs Chromium:

    python docs/pictures/web.py [FOLDER]

Without a folder it writes the pictures of docs/how-to/page.md; with one, every view at three widths, light and dark.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import uuid
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(ROOT)]

from crystal.app.context import open_machine  # noqa: E402
from crystal.sessions.reading import sessions  # noqa: E402
from crystal.store.capture.hook_runs import add_hook_runs  # noqa: E402
from crystal.store.sessions.contexts import Injection, add_injection  # noqa: E402
from tests.support.browser import chromium  # noqa: E402
from tests.support.command import crystal  # noqa: E402
from tests.support.docs_sample import call_block, result_block, text_block, write_session  # noqa: E402
from tests.support.web_memory import MEMORIES, write_year  # noqa: E402
from tests.support.web_page import serving  # noqa: E402

SIZES = {320: 640, 1280: 800, 3840: 2160}
PICTURES = {
    "timeline": "light",
    "search": "dark",
    "session": "light",
    "about": "dark",
    "memories": "dark",
    "review": "light",
    "usage": "dark",
    "health": "light",
    "settings": "dark",
}


def main() -> None:
    """Make the pictures."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary) / "ada"
        home.mkdir()
        os.environ.update(
            HOME=str(home), CLAUDE_CONFIG_DIR=str(home / ".claude"), CRYSTAL_DEVICE="desk", CRYSTAL_AGENT_ID="cc-desk",
            TZ="UTC",
            PYTHON_KEYRING_BACKEND="keyring.backends.fail.Keyring",
        )  # fmt: skip
        session = write_year(home, datetime.now().astimezone())
        _write_work(home, datetime.now().astimezone())
        for words in (("init", "--yes", "--no-import"), ("backfill",)):
            done = crystal(*words)
            assert done.code == 0, done.err
        for text, category, project in MEMORIES:
            crystal("remember", text, "--category", category, *(("--project", project) if project else ()))
        _learn()
        take(session, folder)


def _write_work(home: Path, now: datetime) -> None:
    """Write two sessions that edit some files: in the first, tests fail and are mended."""
    failed = "Exit code 1\nsrc/prices.py:9: error: unsupported operand type for +: 'Decimal' and 'float'"
    first = [("user", "Use Decimal for all amounts, please: the sums in prices.py are off by a cent.")]
    first += _edits("cart.py", "tests/test_prices.py", "stock.py")
    first += [("assistant", call_block("Bash", command="pytest -q")), ("user", result_block("Bash", failed))]
    first += [("assistant", text_block("A float is left in prices.py because the tax rate is read from JSON."))]
    first += _edits("prices.py")
    first += [("assistant", call_block("Bash", command="pytest -q")), ("user", result_block("Bash", "72 passed"))]
    second = [("user", "Cache the prices for a minute."), *_edits("prices.py", "cache.py", "tests/test_prices.py")]
    for days, said in ((20, first), (6, second)):
        path = (
            home / ".claude" / "projects" / "-home-you-shop" / f"{uuid.uuid5(uuid.NAMESPACE_URL, f'work{days}')}.jsonl"
        )
        write_session(path, iter(said), "/home/ada/shop", now - timedelta(days=days))


def _edits(*names: str) -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    for name in names:
        call = call_block("Edit", file_path=f"/home/ada/shop/{name}", old_string="0.0", new_string="Decimal(0)")
        found += [("assistant", call), ("user", result_block("Edit", f"{name} has been updated."))]
    return found


def _learn() -> None:
    """Let crystal have learned and told something, and the hook have run for a while."""
    random = Random(2)
    while crystal("reflect", "--now").code == 4:  # a worker is busy
        time.sleep(1)
    told = [one["id"] for one in json.loads(crystal("memories", "--json").out)["memories"]]
    with open_machine() as machine:
        for one in sessions(machine.stores, limit=30)[0]:
            picked = tuple(random.sample(told, min(4, len(told))))
            add_injection(machine.store, Injection(one.started_at, one.id, "startup", len(told), picked, 1, 300))
        runs = [(machine.now() - 60_000 * at, "Stop", 18 + random.expovariate(0.25)) for at in range(200, 0, -1)]
        add_hook_runs(machine.store, runs)


def views(session: str) -> dict[str, str]:
    """Return the address of each view."""
    yesterday = datetime.now().astimezone() - timedelta(days=1)
    return {
        "timeline": "/", "search": "/search?q=retry+with+backoff+timeout", "session": f"/session/{session}",
        "unfolded": f"/session/{session}", "memories": "/memories", "memory": "/memories", "health": "/health",
        "review": "/review", "usage": "/usage", "about": "/about?thing=prices.py",
        "settings": "/settings", "forget": "/forget?query=webhook", "day": f"/?day={yesterday:%Y-%m-%d}",
        "empty": "/search",
    }  # fmt: skip


def take(session: str, folder: Path | None) -> None:
    """Open each view in the browser and write its picture."""
    if folder is None:
        wanted = [(name, scheme, 1280) for name, scheme in PICTURES.items()]
    else:
        folder.mkdir(exist_ok=True)
        wanted = [(name, scheme, width) for name in views(session) for scheme in ("light", "dark") for width in SIZES]
    with serving() as link, chromium() as browser:
        base = link.partition("/open")[0]
        page = browser.new_context().new_page()
        page.goto(link)
        page.wait_for_url(base + "/")
        for name, scheme, width in wanted:
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size({"width": width, "height": SIZES[width]})
            page.goto(base + views(session)[name])
            if name == "memory":
                page.locator("a.card").first.click()
                page.wait_for_url("**/memory/*")
            if name == "unfolded":
                page.keyboard.press("x")
            path = HERE / f"web-{name}.png" if folder is None else folder / f"{name}-{width}-{scheme}.png"
            page.screenshot(path=path, full_page=name == "unfolded")


if __name__ == "__main__":
    main()
