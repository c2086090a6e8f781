"""Claims of the pages: they say what the commands say, every text is words, and actions do what the commands do."""

from __future__ import annotations

import json
import re
from datetime import datetime, timezone
from pathlib import Path

import pytest

from crystal.app.context import open_machine, open_reader
from crystal.app.memories import remember as keep
from crystal.sessions.reading import find_target, read, read_page, sessions
from crystal.web.app import VIEWS
from crystal.web.pages import timeline
from crystal.web.pages.health import plot
from crystal.web.pages.search import LIMIT
from crystal.web.pages.session import PER_PAGE
from tests.support.command import crystal
from tests.support.examples import part_of
from tests.support.exports import SESSION, exported, remember, remember_samples, start_and_import, transcript_line
from tests.support.homes import live_in
from tests.support.web_client import Client, Elements
from tests.support.web_hostile import hostile_texts
from tests.support.web_memory import write_year


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose memory has the samples; its tests only add to it."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        live_in(home, patch)
        remember_samples(home)
    return home


@pytest.fixture
def samples(sampled: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    live_in(sampled, monkeypatch)
    return sampled


MAIN_PAGES = [view.path for view in VIEWS]


def checked(page: str) -> Elements:
    """Return the elements of a page of which nothing can run or load but its own script and style."""
    found = Elements(page)
    assert [one.get("src") for one in found.named("script")] == ["/static/app.js"]
    assert [one.get("href") for one in found.named("link")] == ["/static/icon.svg", "/static/app.css"]
    for tag, attributes in found.found:
        assert tag not in ("img", "iframe", "object", "embed", "video", "style", "base"), tag
        assert not [name for name in attributes if name.startswith("on") or name in ("style", "srcdoc", "formaction")]
        assert str(attributes.get("href", "/")).startswith(("/", "#", "https://", "http://", "mailto:"))
    assert len({one["id"] for _, one in found.found if "id" in one}) == sum("id" in one for _, one in found.found)
    return found


def hits_of(page: str) -> list[str]:
    return re.findall(r'class="card" href="(/(?:turn|memory)/[^"]+)"', page)


def test_every_page_shows_hostile_texts_as_words(home):
    texts, count = list(hostile_texts(60)), len(part_of(range(20), 4))
    remember(home, texts)
    for text in texts[:count]:
        crystal("remember", text)
    client = Client()
    memories = re.findall(r"/memory/(mem-\w+)", client.get("/memories").text)
    assert len(memories) == count
    paths = [*MAIN_PAGES, "/search?q=script+img+evil", f"/session/{SESSION}", f"/memory/{memories[0]}", "/forget"]
    for path in paths:
        answer = client.get(path)
        assert answer.status_code == 200, path
        checked(answer.text)
    said = checked(client.get(f"/session/{SESSION}").text).text
    assert all("onerror" in said and payload in said for payload in ("<script>", "<iframe", "<svg"))
    hostile = f"/search?q={'%22%3E%3Cscript%3E'}&project=%3Cscript%3E&role=user"
    checked(client.get(hostile).text)
    checked(client.get("/session/%3Cscript%3E").text)
    checked(client.send_form("/forget/preview", query="script evil example").text)


def test_the_hits_are_those_of_the_command_line(samples):
    crystal("remember", "the parser reads lines")
    client = Client()
    for query, words in (
        ("parser", ()),
        ("agent", ("--role", "assistant")),
        ("parser", ("--since", "2020-01-01")),
    ):
        told = json.loads(crystal("search", query, "-n", str(LIMIT), "--json", "--all", *words).out)["hits"]
        values = dict(zip([word.removeprefix("--") for word in words[::2]], words[1::2], strict=True))
        page = client.get("/search", params={"q": query, **values}).text
        expected = [f"/memory/{hit['uuid']}" if hit["category"] else f"/turn/{hit['id']}" for hit in told]
        assert hits_of(page) == expected
        assert told, query
        assert page.count("found by") == len(told)
        part = client.get("/search", params={"q": query, "part": "1", **values}).text
        assert hits_of(part) == expected
        assert "<html" not in part


def test_a_facet_narrows_and_is_taken_back(samples):
    client = Client()
    facets = re.findall(r'<a href="(/search\?[^"]*role=[^"&]+[^"]*)"', client.get("/search?q=the").text)
    assert facets
    for address in facets:
        page = client.get(address.replace("&amp;", "&")).text
        assert 0 < len(hits_of(page)) <= LIMIT
        assert 'aria-current="true"' in page
    assert client.get("/search?q=x&role=nobody").status_code == 400
    assert client.get("/search?q=x&since=nonsense").status_code == 400


def test_a_hit_leads_to_its_turn_in_its_session(home):
    remember(home, [f"turn {number} about {'xylophone' if number == 333 else 'nothing'}" for number in range(500)])
    client = Client()
    [first, *_] = hits_of(client.get("/search?q=xylophone").text)
    moved = client.get(first)
    assert (moved.status_code, moved.headers["location"]) == (303, f"/session/{SESSION}?at={first[6:]}#focus")
    page = client.get(moved.headers["location"]).text
    [focused] = re.findall(r'<article id="t\d+" class="turn \w+ focus".*?</article>', page, re.DOTALL)
    assert "xylophone" in focused
    assert f"turns {333 // PER_PAGE * PER_PAGE + 1}–" in page
    assert client.get("/turn/99999999").status_code == 404
    assert client.get("/turn/x").status_code == 404


def test_the_pages_of_a_session_hold_each_turn_once(samples):
    write_year(samples, datetime(2026, 11, 20, tzinfo=timezone.utc), sessions=3)
    remember(samples, [f"line {number}" for number in range(3 * PER_PAGE)])
    start_and_import()
    with open_reader() as machine:
        store = machine.store
        longest_first = sorted(sessions([store], limit=1000)[0], key=lambda one: -one.turns)
        for one in part_of(longest_first, 8):
            target = find_target([store], one.id)
            whole = read([store], target).turns
            for size in (1, 3, PER_PAGE):
                starts = range(0, one.turns, size) if size > 1 else range(0, one.turns, 7)
                pages = [read_page([store], target, start=start, limit=size) for start in starts]
                assert all(page.turns == whole[page.start : page.start + size] for page in pages)
                assert {page.total for page in pages} == {one.turns}
            for turn in whole[::5]:
                page = read_page([store], find_target([store], f"h{turn.hit}"), start=None, limit=10)
                assert [shown.hit for shown in page.turns if shown.focus] == [turn.hit]


def test_a_page_after_the_last_is_the_last(home):
    remember(home, ["the only line"])
    page = Client().get(f"/session/{SESSION}?from=9999999").text
    assert "the only line" in page
    assert f"crystal handoff {SESSION} --to claude-code<" in page
    assert crystal("handoff", SESSION, "--to", "claude-code", "--dry-run", "--project", str(home)).code == 0


def test_older_days_show_every_session_once(home, monkeypatch):
    monkeypatch.setattr(timeline, "PER_PAGE", 4)
    count = 15
    folder = home / ".claude" / "projects" / "w"
    folder.mkdir(parents=True)
    for number in range(count):
        name = f"{number:08x}-0000-4000-8000-000000000000"
        line = json.loads(transcript_line("hello", 0, session=name))
        line["timestamp"] = f"2026-{10 - number % 3:02d}-{1 + number % 27:02d}T1{number % 9}:00:00.000Z"
        line["cwd"] = f"/home/{number}/shop"
        (folder / f"{name}.jsonl").write_text(json.dumps(line) + "\n")
    start_and_import()
    client, path, shown, dates = Client(), "/", [], []
    while path:
        page = client.get(path).text
        shown += re.findall(r'href="/session/([^"]+)"', page)
        dates += re.findall(r'<time datetime="([^"]+)"', page)
        older = re.search(r'rel="next" href="([^"]+)"', page)
        path = older and older[1].replace("&amp;", "&")
    assert len(shown) == len(set(shown)) == count
    assert dates == sorted(set(dates), reverse=True)
    assert f"{count} sessions" in client.get("/").text
    assert client.get("/").text.count('href="/?project=shop"') == 1, "all folders of one name are one choice"
    assert f"{count} sessions" in client.get("/?project=shop").text
    other = client.get("/?project=other&day=2026-10-01").text
    assert "0 sessions on 0 days" in other, "the map and its sum are of the project"
    assert 'href="/?project=other">All days' in other
    assert "All days" not in client.get("/").text
    assert "All days" in client.get("/?before=1795168800000").text, "older days lead back"
    one_day = client.get(f"/?day={dates[3]}").text
    assert re.findall(r'<time datetime="([^"]+)"', one_day) == [dates[3]]
    assert "Nothing is from this time" in client.get("/?day=2020-01-01").text
    assert client.get("/?day=nonsense").status_code == 400


def test_a_day_is_told_the_latest_first(home):
    remember(home, ["hello"])
    begun = 1_795_168_800_000
    with open_machine() as machine:
        assert machine.store.value("SELECT ts FROM turns") == begun
        for minutes in (-5, 5):
            one = keep(machine, f"{minutes} minutes after it")
            machine.store.execute(
                "UPDATE memories SET updated_at = ? WHERE uid = ?", (begun + 60_000 * minutes, one.id)
            )
    page = Client().get("/").text
    places = [page.index(words) for words in (">5 minutes", f"/session/{SESSION}", ">-5 minutes")]
    assert places == sorted(places)


def test_copying_gives_what_export_writes(home, tmp_path):
    remember(home, list(hostile_texts(10)))
    exported(tmp_path / "out", "markdown")
    [file] = [path for path in (tmp_path / "out").glob("*.md") if path.name != "index.md"]
    copied = Client().get(f"/markdown/{SESSION}")
    assert copied.headers["content-type"].startswith("text/plain")
    assert copied.text == file.read_text("utf-8").removesuffix("\n")


def test_health_names_a_gap_of_the_ledger(home):
    remember(home, ["one", "two"])
    client = Client()
    assert client.get("/health").text.count('<b class="bad">') == 0
    with open_machine() as machine:
        machine.store.execute("UPDATE segments SET stop = stop - 1")
    assert client.get("/health").text.count('<b class="bad">') == 1


def test_the_plot_fits_its_drawing():
    assert plot([1.0]) is None
    for durations in ([1.0, 2.0], [0.0, 0.0], [50_000.0, 1.0], [9.99] * 200):
        found = plot(durations)
        assert found is not None
        points = [tuple(map(float, point.split(","))) for point in found.points.split()]
        assert len(points) == len(durations)
        assert all(0 <= x <= 600 and 0 <= y <= 120 for x, y in points)


def test_where_there_is_no_memory_the_page_says_how_to_begin(home):
    for path in MAIN_PAGES:
        answer = Client().get(path)
        assert answer.status_code == 503
        assert "crystal init" in answer.text


def test_an_unknown_page_and_a_bug_are_told_apart(home, monkeypatch):
    remember(home, ["one"])
    client = Client()
    assert client.get("/nothing").status_code == 404
    monkeypatch.setattr("crystal.app.timeline.timeline", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        client.get("/")
    assert "ZeroDivisionError" in Client(shows_bugs=True).get("/").text


def test_every_page_answers_the_question_for_a_part(home):
    remember(home, ["one"])
    client = Client()
    for path in [*MAIN_PAGES, f"/session/{SESSION}", "/turn/1", "/nothing", "/search?q=x&since=nonsense"]:
        whole, joint = client.get(path), "&" if "?" in path else "?"
        assert client.get(f"{path}{joint}part=1").status_code == whole.status_code, path
    failed = client.get("/search?q=x&since=nonsense&part=1").text
    assert "since is &#39;nonsense&#39;" in failed
    assert "<html" not in failed


def test_a_damaged_or_lost_database_is_told_with_the_command_that_repairs_it(home):
    remember(home, ["one"])
    client = Client()
    with open_reader() as machine:
        database = machine.places.db
    for content in (b"no database", database.read_bytes()[:8192] + b"\xff" * 8192, b"", None):
        for file in database.parent.glob("crystal.db*"):
            file.unlink()
        if content is not None:
            database.write_bytes(content)
        for path in ("/", "/search?q=one", "/search?q=one&part=1", "/memories", f"/session/{SESSION}"):
            answer = client.get(path)
            assert answer.status_code == 500, (path, content)
            assert "crystal verify --repair" in answer.text


@pytest.mark.slow
def test_a_link_leads_to_a_session_with_any_name(home):
    names = ["a?b#c", "50% off", "a b", "<b>", "é", '"x']
    folder = home / ".claude" / "projects" / "w"
    folder.mkdir(parents=True)
    for number, name in enumerate(names):
        line = json.loads(transcript_line("zebra", number)) | {"sessionId": name}
        (folder / f"{number}.jsonl").write_text(json.dumps(line) + "\n")
    start_and_import()
    client = Client()
    links = re.findall(r'href="(/session/[^"]+)"', client.get("/").text)
    links += [client.get(hit).headers["location"] for hit in hits_of(client.get("/search?q=zebra").text)]
    links += re.findall(r'href="(/session/[^"]+at=[^"]+)"', "".join(client.get(link).text for link in links))
    assert [link for link in links if client.get(link).status_code != 200] == []
    assert len(set(links)) == 2 * len(names)


def test_a_search_says_what_narrows_it_and_how_to_begin(home, ready):
    client = Client()
    empty = client.get("/search?q=hello&project=shop").text
    assert "Nothing is remembered yet" in empty
    assert 'href="/search?q=hello">search everything' in empty
    assert "crystal backfill" in client.get("/").text
    assert "vectors" not in empty
    assert "Last capture never" not in client.get("/health").text
    remember(home, [f"zebra {number}" for number in range(LIMIT + 1)])
    assert f"the first {LIMIT} hits" in client.get("/search?q=zebra").text
    for query in ("", "q=zebra&"):
        inside = client.get(f"/search?{query}session={SESSION}").text
        assert f"{SESSION}<span aria-hidden" in inside, "the session that is searched can be taken back"


def test_no_character_turns_the_reading_direction_or_moves_a_cursor(home):
    remember(home, ["user \u202eevil\u202c \x1b[31mred \u200b", "answer \u2066x\u2069", "```\n\u202ecode\n```"])
    client = Client()
    for path in (f"/session/{SESSION}", "/search?q=evil+red", "/"):
        page = client.get(path).text
        assert not re.search("[\u202a-\u202e\u2066-\u2069\x1b\u200b]", page), path
        assert "evil" in page
