"""Claims of the page: it runs nothing but itself, no text breaks out of it, and sealed it tells nothing."""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import json
import re
import unicodedata
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.support.browser import Watched, chromium, find_browser
from tests.support.command import crystal
from tests.support.exports import SESSION, exported, remember

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "]]>\u2028\u2029 \0 \ud800",
    "<img src=//e onerror=alert(1)>",
    "😀é",
]
PASSPHRASE = "café au lait, deux croissants"
BLOCK = re.compile(r'<script type="text/plain" id="block-(\d+)">([A-Za-z0-9+/=]*)</script>')


class Elements(HTMLParser):
    """The elements of a page, and the text of its scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.texts.append("")

    def handle_data(self, data: str) -> None:
        if self.cdata_elem is not None:
            self.texts[-1] += data


def page_of(folder: Path) -> str:
    return (folder / "crystal.html").read_text("utf-8")


def blocks(page: str) -> dict[int, bytes]:
    return {int(number): base64.b64decode(data) for number, data in BLOCK.findall(page)}


def parsed(data: bytes) -> Any:
    return json.loads(gzip.decompress(data))


def sealed_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, passphrase: str = PASSPHRASE) -> str:
    monkeypatch.setattr("crystal.cli.export._read_passphrase", lambda: passphrase)
    exported(tmp_path / "sealed", "html", "--all", "--sealed")
    return page_of(tmp_path / "sealed")


def test_every_text_is_in_the_page_and_none_of_it_is_markup(home, tmp_path):
    remember(home, HOSTILE)
    exported(tmp_path / "out", "html")
    page = page_of(tmp_path / "out")
    found = blocks(page)
    index = parsed(found[0])
    assert (index["turns"], index["blocks"], index["sessions"][0]["id"]) == (5, [0], SESSION)
    shown = json.loads(crystal("show", SESSION, "--json").out)["turns"]
    assert [row[3] for row in parsed(found[1])] == [turn["text"] for turn in shown]
    assert [row[1] for row in parsed(found[1])][:2] == ["you", "Claude"]
    scripts = [attributes for tag, attributes in Elements(page).found if tag == "script"]
    assert [one.get("type") for one in scripts] == ["application/json", "text/plain", "text/plain", None]


def test_the_page_may_run_its_own_script_and_style_and_load_nothing(home, tmp_path):
    remember(home, ["one"])
    exported(tmp_path / "out", "html")
    elements = Elements(page_of(tmp_path / "out"))
    [policy] = [one["content"] for tag, one in elements.found if tag == "meta" and one.get("http-equiv")]
    rules = dict(rule.split(" ", 1) for rule in str(policy).split("; "))
    assert rules["default-src"] == "'none'"
    assert "unsafe" not in str(policy)
    style, script = elements.texts[0], elements.texts[-1]
    for rule, text in (("style-src", style), ("script-src", script)):
        assert rules[rule] == f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
    assert not [
        one
        for _, attributes in elements.found
        for one in attributes
        if one in ("src", "srcset", "style") or one.startswith("on")
    ]
    assert not re.search(r"innerHTML|insertAdjacent|document\.write|eval\(|https?:", script)


@pytest.mark.slow
def test_a_sealed_page_tells_nothing_and_opens_with_the_passphrase_alone(home, tmp_path, monkeypatch):
    remember(home, ["the word is xylophonium"])
    page = sealed_page(tmp_path, monkeypatch)
    assert SESSION not in page
    found = blocks(page)
    with pytest.raises(gzip.BadGzipFile):
        parsed(found[0])
    seal = json.loads(re.search(r'id="seal">(.*?)</script>', page)[1])
    assert seal["iterations"] >= 600_000

    @functools.cache
    def key_of(text: str) -> bytes:
        return hashlib.pbkdf2_hmac("sha512", text.encode(), base64.b64decode(seal["salt"]), seal["iterations"], 32)

    def opened(number: int, passphrase: str) -> Any:
        key = key_of(unicodedata.normalize("NFC", passphrase))
        return parsed(AESGCM(key).decrypt(number.to_bytes(12, "big"), found[number], b"crystal-page-1"))

    assert opened(0, PASSPHRASE)["sessions"][0]["id"] == SESSION
    assert opened(1, unicodedata.normalize("NFD", PASSPHRASE))[0][3] == "the word is xylophonium"
    with pytest.raises(InvalidTag):
        opened(0, "wrong")
    (tmp_path / "sealed").rename(tmp_path / "other")
    assert found[0] != blocks(sealed_page(tmp_path, monkeypatch))[0], "each page has a key of its own"


# ------------------------------------------------------------------------------------------------------ a real browser


@pytest.fixture
def browser():
    if find_browser() is None:
        pytest.skip("no Chromium or Chrome on this machine")
    with chromium() as found:
        yield Watched(found.new_page(), "file:")


ARTICLES = "[...document.querySelectorAll('article pre')].map((one) => one.textContent)"


@pytest.mark.slow
def test_a_browser_shows_each_text_and_runs_none(home, tmp_path, browser):
    remember(home, HOSTILE)
    exported(tmp_path / "out", "html")
    browser.open(tmp_path / "out" / "crystal.html", "#s0")
    shown = json.loads(crystal("show", SESSION, "--json").out)["turns"]
    browser.until(f"{ARTICLES}.length === 5")
    assert browser.run(ARTICLES) == [turn["text"] for turn in shown]
    assert browser.run("document.querySelectorAll('img, #turns script').length") == 0
    assert browser.problems == []


@pytest.mark.slow
def test_a_browser_stays_quick_with_100_000_turns(home, tmp_path, browser):
    from crystal.cli.render import agent_title, harmless, speaker
    from crystal.export import html
    from crystal.export.labels import Wording
    from crystal.sessions.reading import SessionSummary, ShownTurn

    def turns(_: object, session: str) -> Any:
        for at in range(50_000):
            yield ShownTurn(
                at,
                f"u{at}",
                0,
                ("user", "assistant", "tool_result")[at % 3],
                f"{at} " + "word " * 150 + f"end{at}{session}",
                at,
            )

    sessions = [
        SessionSummary(f"s{at}", f"session {at}", None, None, None, "a", "pi", "d", 0, 1, 50_000) for at in range(2)
    ]
    (tmp_path / "out").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(html, "stream_turns", turns)
        html.write_html(None, sessions, tmp_path / "out", Wording(speaker, agent_title, harmless), 0)
    browser.open(tmp_path / "out" / "crystal.html", "#s1")
    browser.until("!!document.querySelector('article')")
    browser.run("{ const e = document.getElementById('talk'); e.scrollTop = e.scrollHeight / 2 }")
    browser.until("[...document.querySelectorAll('article')].some((one) => Number(one.id.slice(1)) > 60000)")
    assert browser.run("document.querySelectorAll('article').length") < 400
    browser.run(
        "{ const e = document.getElementById('query'); e.value = 'end12345s0'; e.dispatchEvent(new Event('input')) }"
    )
    browser.until("document.getElementById('status').textContent === '1 message found'", 120)
    browser.run("document.querySelector('#hits a').click()")
    browser.until("document.querySelector('article.found')?.textContent.includes('end12345s0')")
    top = "document.querySelector('article.found')?.getBoundingClientRect().top"
    browser.until(f"{top} > -1 && {top} < innerHeight")
    assert browser.problems == []


@pytest.mark.slow
def test_a_browser_opens_a_sealed_page_and_says_if_the_passphrase_is_wrong(home, tmp_path, monkeypatch, browser):
    remember(home, ["the word is xylophonium"])
    sealed_page(tmp_path, monkeypatch)
    browser.open(tmp_path / "sealed" / "crystal.html", "#s0")
    browser.until("document.getElementById('lock')?.hidden === false")

    def attempt(passphrase: str) -> None:
        said = json.dumps(unicodedata.normalize("NFD", passphrase))
        browser.run(
            f"document.getElementById('passphrase').value = {said}; document.querySelector('#lock button').click()"
        )

    attempt("wrong")
    browser.until("document.getElementById('lock-note').textContent.startsWith('Wrong passphrase')")
    attempt(PASSPHRASE)
    assert browser.until(f"{ARTICLES}[0]") == "the word is xylophonium"
