"""Claims of the markup: whatever a text says, it becomes words, never something that loads or runs."""

from __future__ import annotations

import time
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.web.markup import (
    MAX_CODE,
    MAX_MARKDOWN,
    MAX_STEPS,
    PAGE_SECONDS,
    TimeBudget,
    changes_of,
    code_of_file,
    markdown,
    marked,
)
from tests.support.examples import part_of
from tests.support.table import each_row
from tests.support.web_client import Elements
from tests.support.web_hostile import hostile_texts

ALLOWED = set(
    "a blockquote br code del em h1 h2 h3 h4 h5 h6 hr i li ol p pre s span strong table tbody td th thead tr ul mark".split()
)
ATTRIBUTES = {"href", "title", "rel", "target", "class", "tabindex", "start", "style"}
PIECES = ["<script>", "</pre>", "[a](", "javascript:", "![x](http://e/", ")", "```", "html\n", "<img src=x onerror=y>", "|", "\n", "\n\n",
          "- ", "> ", "`", "*", "&lt;", "\u202e", "\0", "data:text/html,", "<a href='", "https://e.example/", "---", "#", " "]  # fmt: skip


def check(html: str) -> Elements:
    page = Elements(html)
    for tag, attributes in page.found:
        assert tag in ALLOWED, (tag, html)
        assert set(attributes) <= ATTRIBUTES, (tag, attributes)
        assert tag in ("td", "th") or "style" not in attributes
        href = attributes.get("href")
        assert href is None or href.startswith(("http://", "https://", "mailto:")), href
    return page


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=5)), max_size=40).map("".join))
def test_markdown_makes_nothing_active(text):
    check(str(markdown(text, TimeBudget())))


def test_no_hostile_text_makes_anything_active():
    for text in part_of(hostile_texts(500), 80):
        check(str(markdown(text, TimeBudget())))
        check(str(markdown(f"```html\n{text}\n```", TimeBudget())))
        check(str(code_of_file(text, "x.html", TimeBudget())))
        assert (
            check(str(marked(text, [(0, 2)], 0, len(text)))).text == text.replace("\r\n", "\n").replace("\r", "\n")
            or "\0" in text
        )


@given(st.text(max_size=200), st.data())
def test_marked_text_is_the_text(text, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    spans = list(zip(cuts[::2], cuts[1::2], strict=False))
    whole = str(marked(text, spans, 0, len(text)))
    assert unescape(whole.replace("<mark>", "").replace("</mark>", "")) == text


@pytest.mark.slow
def test_no_text_takes_long():
    parts = ("[", "![", "[a](", "> ", "*a", "a*_", "`", "- ", "|", "<", "[x]: ", "`a``b")
    texts = [part * (MAX_MARKDOWN // len(part)) for part in parts] + [
        "![" * (MAX_STEPS // 30_000) + "*a" * 14_900,
        "[" * 770,
    ]
    begin = time.process_time()
    for text in texts:
        check(str(markdown(text, TimeBudget())))
    assert time.process_time() - begin < len(texts), "a second each, of the processor"


@pytest.mark.slow
def test_no_code_takes_long_to_colour():
    for language, part in (("java", "\n"), ("java", "a "), ("c", "\n"), ("markdown", "\n"), ("go", '"\\')):
        begin = time.process_time()
        markdown(f"```{language}\n{part * (MAX_CODE // len(part) - 1)}\n```", TimeBudget())
        assert time.process_time() - begin < 1.5, (language, part)


@pytest.mark.slow
def test_a_page_of_hostile_code_takes_as_long_as_its_time():
    for text in (f"```java\n{'a ' * 1_990}\n```", f"```go\n{chr(34) * 3_990}\n```", "[" * 770, "a*_" * 9_000):
        budget, begin = TimeBudget(), time.monotonic()
        shown = [str(markdown(text, budget)) for _ in range(100)]
        assert time.monotonic() - begin < 5 * PAGE_SECONDS, text[:20]
        assert all(check(one).text.strip() for one in shown)


def test_without_time_texts_are_shown_as_they_are_written():
    over = TimeBudget(end=0.0)
    assert str(markdown("**<b>**", over)) == '<pre class="plain" tabindex="0">**&lt;b&gt;**</pre>'
    assert str(code_of_file("import <os>", "x.py", over)) == "import &lt;os&gt;"
    call = "Edit: a\nold_string: one\ntwo\nnew_string: one"
    assert [line.sign for line in changes_of(call, over)[1]] == ["-", "-", "+"]


@each_row(("text", "expected"), [
    ("![cat](https://e.example/a.png)", '<span class="image">cat (https://e.example/a.png)</span>'),
    ("[x](https://e.example)", 'rel="noreferrer noopener" target="_blank">x</a>'),
    ("[main](src/main.py)", '<a title="src/main.py">main</a>'),
    ("[x](javascript:alert(1))", "[x](javascript:alert(1))"),
    ("<b>x</b>", "&lt;b&gt;x&lt;/b&gt;"), ("| a |\n|---|\n| b |", '<table tabindex="0">'),
    ("```python\nimport os\n```", '<span class="c-kn">import</span>'),
    ("```nosuch\n<b>\n```", "<code>&lt;b&gt;\n</code>"),
])  # fmt: skip
def test_images_and_links(text, expected):
    assert expected in str(markdown(text, TimeBudget()))


@each_row(("text", "signs"), [
    ("Edit: a.py\nold_string: one\ntwo\nnew_string: one\nthree\nreplace_all: False", " -+"),
    ("Edit: a.py\nold_string: \nnew_string: x", "+"),
    ("MultiEdit: a\nold_string: a\nnew_string: b\nold_string: c\nnew_string: d", "-+-+"),
    ("apply_patch: *** Begin Patch\n*** Update File: a\n@@\n-x\n+y\n*** End Patch", " @@-+@"),
    ("Bash: echo old_string", None), ("Edit: a\nold_string: only", None), ("", None),
])  # fmt: skip
def test_changes_of_files(text, signs):
    found = changes_of(text, TimeBudget())
    assert signs == (None if found is None else "".join(line.sign for line in found[1]))


@given(st.text("ab\n", max_size=60), st.text("ab\n", max_size=60))
def test_a_change_holds_both_sides(old, new):
    found = changes_of(f"Edit: f\nold_string: {old}\nnew_string: {new}", TimeBudget())
    assert found is not None
    sides = {"-": old.rstrip("\n"), "+": new.rstrip("\n")}
    for sign, text in sides.items():
        assert "\n".join(line.text for line in found[1] if line.sign in (sign, " ")) == text


def test_hostile_texts_are_many_and_different():
    assert len(set(hostile_texts(500))) == 500
