"""The page's About view: the history of a thing, the files around it, and who wrote a file's lines."""

from __future__ import annotations

import re
from pathlib import Path

from crystal.app.context import default_paths, open_reader
from crystal.cli.tui.reading import lines_of
from crystal.mcp.handlers import ClientContext
from crystal.store import Store
from crystal.store.work.index import make_again
from crystal.web.pages.about import WIDTH
from tests.support.mcp_client import Tools
from tests.support.store_factory import NOW
from tests.support.web_client import Client, Elements
from tests.support.work_sessions import ERROR, cured, did

LONG = "management_of_many_committed_sums.py"
NEW = "    return add_up(a) + b"


def test_the_view_tells_the_history_and_who_wrote_the_lines_of_a_file_that_is_here(
    store: Store, tmp_path: Path
) -> None:
    shop = tmp_path / "shop"
    shop.mkdir()
    cured(store, "one", NOW, str(shop), new=NEW)
    cured(store, "two", NOW + 1_000, "/nowhere/other", new=NEW)
    for number, name in enumerate(("a/view.py", "b/view.py", f"c/{LONG}")):
        edit = {"file_path": f"{shop}/{name}", "old_string": "", "new_string": "view = True"}
        did(store, "one", NOW + 100 + 10 * number, "Edit", edit, "updated", str(shop))
    make_again(store)
    (shop / "cart.py").write_text(f"def total(a, b):\n{NEW}\n<script>alert(1)</script>\n")
    client = Client(shows_bugs=True)
    page = client.get("/about", params={"thing": "cart.py"}).text
    assert "What happened" in page
    assert "Show who wrote its lines" in page
    assert "fixed" in page
    assert [f">{name}</text>" in page for name in ("a/view.py", "b/view.py", f"{LONG[:27]}...")] == [True] * 3
    for x, anchor, name in re.findall(r'<text x="(\d+)" y="\d+" text-anchor="(\w+)">([^<]+)<', page):
        assert 0 <= int(x) + (1 if anchor == "start" else -1) * 8.2 * len(name) <= WIDTH, name
    links = {one.get("href") or "" for one in Elements(page).named("a")}
    assert f"/turn/one-{NOW + 10}" in links
    lines = client.get("/about", params={"thing": "cart.py", "project": "shop", "lines": "1"}).text
    assert "return add_up(a) + b" in lines
    assert "&lt;script&gt;" in lines
    assert "<script>alert" not in lines
    assert "no known session" in lines
    assert "Show who wrote" not in client.get("/about", params={"thing": "cart.py", "project": "other"}).text
    found = client.get("/about", params={"thing": ERROR.format(3).splitlines()[1]}).text
    assert ">error<" in found
    assert "edited cart.py" in found


def test_a_path_that_is_too_long_for_the_system_is_no_file(store: Store, tmp_path: Path) -> None:
    long = f"{tmp_path}/{'a' * 300}/cart.py"
    did(store, "one", NOW, "Edit", {"file_path": long, "old_string": "", "new_string": NEW}, "ok", str(tmp_path))
    make_again(store)
    assert "What happened" in Client(shows_bugs=True).get("/about", params={"thing": "cart.py", "lines": "1"}).text
    with open_reader() as machine:
        assert lines_of(machine, long, "cart.py").title == "about cart.py"
    assert "there is no file" in str(Tools(ClientContext(folder=str(tmp_path))).call("crystal_blame", file="a" * 300))


def test_a_file_outside_of_the_project_is_not_read(store: Store, tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    shop.mkdir()
    (tmp_path / "secret.py").write_text("hidden words\n")
    (shop / "cart.py").symlink_to(tmp_path / "secret.py")
    cured(store, "one", NOW, str(shop))
    page = Client(shows_bugs=True).get("/about", params={"thing": "cart.py", "lines": "1"}).text
    assert "hidden words" not in page
    assert "What happened" in page


def test_nothing_known_and_nothing_asked_say_what_to_do(store: Store) -> None:
    client = Client(shows_bugs=True)
    assert "Name a file" in client.get("/about").text
    cured(store, "one", NOW, "/a/shop")
    for thing in ("", "moon"):
        links = {one.get("href") for one in Elements(client.get("/about", params={"thing": thing}).text).named("a")}
        assert "/about?thing=cart.py" in links, "what was edited lately is a way on"
    elsewhere = client.get("/about", params={"thing": "cart.py", "project": "other"}).text
    assert 'href="/about?thing=cart.py">In every project<' in elsewhere
    nothing = client.get("/about", params={"thing": "<b>moon</b>\0"}).text
    assert "Nothing is known of it" in nothing
    assert "<b>moon" not in nothing
    (default_paths().data_dir / "x.bin").write_bytes(b"\0")
    assert client.get("/about", params={"thing": "x.bin", "lines": "1", "limit": "9" * 30}).status_code == 200
