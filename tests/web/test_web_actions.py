"""Claims of the page's actions: they do what the commands do, and say what they did."""

from __future__ import annotations

import json
import re

from crystal.config.load import load_config
from crystal.web.app import VIEWS
from tests.support.command import crystal
from tests.support.exports import SESSION, remember
from tests.support.web_client import Client


def test_a_memory_is_edited_archived_and_brought_back(home):
    remember(home, ["one"])
    ident = crystal("remember", "we deploy on Fridays").out.split()[2].rstrip(":")
    client = Client()
    [seen] = re.findall(r'name="seen" value="(\d+)"', client.get(f"/memory/{ident}").text)
    fields = {"text": "we deploy on\r\nMondays", "category": "preference", "key": "deploy", "project": "", "seen": seen}
    assert client.send_form(f"/memory/{ident}/edit", **fields).status_code == 303
    assert client.send_form(f"/memory/{ident}/edit", **fields).status_code == 303, "the same again changes nothing"
    stale = client.send_form(f"/memory/{ident}/edit", **{**fields, "text": "we deploy on Tuesdays"})
    assert (stale.status_code, "changed meanwhile" in stale.text) == (400, True)
    assert f'<a href="/memory/{ident}">' in stale.text
    told = json.loads(crystal("memories", "history", ident, "--json").out)
    assert (told["memory"]["text"], told["memory"]["category"]) == ("we deploy on\nMondays", "preference")
    assert [was["text"] for was in told["history"]] == ["we deploy on Fridays"]
    page = client.get(f"/memory/{ident}").text
    assert "we deploy on Fridays" in page
    assert client.send_form(f"/memory/{ident}/deprecate").status_code == 303
    assert ident not in client.get("/memories").text
    assert "write one above" in client.get("/memories").text
    assert ident in client.get("/memories?status=deprecated").text
    narrowed = client.get("/memories?status=deprecated&project=nobody").text
    assert "No memory is in this selection" in narrowed
    assert re.search('aria-current="true">nobody<', narrowed)
    assert client.send_form(f"/memory/{ident}/restore").status_code == 303
    assert ident in client.get("/memories?category=preference").text
    assert client.send_form(f"/memory/{ident}/edit", **{**fields, "category": "nonsense"}).status_code == 400
    assert client.send_form("/memory/mem-000000000000/edit", text="x").status_code == 404


def test_something_is_remembered(home):
    remember(home, ["one"])
    client = Client()
    assert "write one above" in client.get("/memories").text
    added = client.send_form("/memories/add", text="we deploy\r\non Fridays", category="event", project="", key="when")
    assert "by you on" in client.get(added.headers["location"]).text
    [one] = json.loads(crystal("memories", "--json").out)["memories"]
    assert (one["text"], one["category"], one["key"]) == ("we deploy\non Fridays", "event", "when")
    assert one["project"] is None
    again = client.send_form("/memories/add", text="we deploy\non Fridays", category="event")
    assert again.headers["location"] == added.headers["location"], "known words are the same memory"
    assert client.send_form("/memories/add", text=" ").status_code == 400
    assert client.send_form("/memories/add", text="x", category="nonsense").status_code == 400


def test_forgetting_shows_first_then_proves(home):
    far = f"it is {'far ' * 90}xylophonium"
    remember(home, ["the word is xylophonium", "understood", far, "and something else"])
    (home / "notes").mkdir()
    (home / "notes" / "a.md").write_text("a glockenspiel")
    assert crystal("sources", "add", str(home / "notes")).code == 0
    client = Client()
    assert "<dt>notes, a source</dt><dd>1 file<" in client.get("/health").text
    assert "still found: 1 file of your sources" in client.send_form("/forget/preview", query="glockenspiel").text
    seen = client.send_form("/forget/preview", query="xylophonium").text
    assert "the word is xylophonium" in seen
    assert seen.count("the words are further on") == 1
    assert crystal("search", "xylophonium", "--all").out, "a preview changes nothing"
    [token] = re.findall(r'name="token" value="([^"]+)"', seen)
    stale = client.send_form("/forget/confirm", query="xylophonium", token="other").text
    assert "Nothing was forgotten yet: this preview differs" in stale
    assert json.loads(crystal("search", "xylophonium", "--all", "--json").out)["hits"]
    done = client.send_form("/forget/confirm", query="xylophonium", token=token).text
    assert "Forgotten, and proved" in done
    for page in (seen, done):
        assert "files of agents still have it; delete them yourself" in page
        assert page.count(f"{SESSION}.jsonl</code>") == 1
    again = client.send_form("/forget/confirm", query="xylophonium", token=token).text
    assert "Nothing of it is left" in again
    assert "Nothing was forgotten" not in again
    assert "xylophonium" not in client.get(f"/session/{SESSION}").text
    assert crystal("forget", "--query", "xylophonium", "--yes", "--prove").code == 1, "nothing is left to forget"
    empty = client.send_form("/forget/preview", query="xylophonium").text
    assert "Nothing was found" in empty
    assert 'href="/forget?query=xylophonium">Back' in empty
    for path, back in (
        ("/forget/preview", "/forget"),
        ("/settings/private/add", "/settings"),
        ("/memories/add", "/memories"),
    ):
        refused = client.send_form(path)
        assert (refused.status_code, f'href="{back}">Back to the form' in refused.text) == (400, True), path
    assert client.send_form("/forget/preview", before="nonsense").status_code == 400


def test_private_projects_are_kept_in_the_settings_file(home, monkeypatch):
    remember(home, ["one"])
    client = Client()
    for pattern in ("/secret", "**/client/**", "/secret"):
        assert client.send_form("/settings/private/add", pattern=pattern).status_code == 303
    assert load_config({}, home).private_projects == ("/secret", "**/client/**")
    page = client.get("/settings").text
    assert "config.toml" in page
    for pattern in re.findall(r'name="pattern" value="([^"]+)"', page):
        assert client.send_form("/settings/private/remove", pattern=pattern).status_code == 303
    assert load_config({}, home).private_projects == ()
    assert client.send_form("/settings/private/add", pattern=" ").status_code == 400
    monkeypatch.setenv("CRYSTAL_PRIVATE_PROJECTS", "~/other")
    assert client.send_form("/settings/private/add", pattern="~/x").status_code == 400


def test_a_forgotten_session_is_not_linked(home):
    remember(home, ["one"])
    client = Client()
    assert f'href="/session/{SESSION}"' in client.get("/health").text
    assert crystal("forget", "--session", SESSION, "--yes").code == 0
    for path in (view.path for view in VIEWS):
        assert f'href="/session/{SESSION}"' not in client.get(path).text, path
