"""Private spans and recalled text go, with and without secrets."""

from __future__ import annotations

import json

from crystal.redact import Redactor
from crystal.text.fence import fenced
from tests.support.redact_lines import line_with
from tests.support.table import each_row

# Private spans


@each_row("secrets", [True, False])
@each_row(
    ("text", "left"),
    [
        ("a <private>b</private> c", "a [private] c"),
        ("a <PRIVATE>b</Private> c", "a [private] c"),
        ("a <private reason='x y'\n>b\n\nb</private\t> c", "a [private] c"),
        ("a < private >b</ private > c", "a [private] c"),
        (f"a <{' ' * 40}private >b</private> c", "a [private] c"),
        ("<private>b</private> and <private>c</private>!", "[private] and [private]!"),
        ("a <private>b<private>c</private>d</private> e", "a [private] e"),
        ("a <private>b<private>c</private> d", "a [private]"),
        ("a <private>b", "a [private]"),
        ("a </private> b", "a </private> b"),
        ("<private>a</private></private> b", "[private]</private> b"),
        ("a <private/> b", "a [private] b"),
        ("a <private/>b</private> c", "a [private] c"),
        ("a \\u003cprivate\\u003eb\\u003c/private\\u003e c", "a [private] c"),
        ("a <private>b<\\/private> c", "a [private] c"),
        ("<privateKey>a</privateKey>", "<privateKey>a</privateKey>"),
        ("a < private and b > c", "a < private and b > c"),
    ],
)
def test_private_spans_go_with_and_without_secrets(text: str, left: str, secrets: bool) -> None:
    redactor = Redactor(b"k", secrets=secrets)
    assert redactor.clean_text(text)[0] == left
    clean, findings = redactor.clean_line(json.dumps({"a": [text], "b": "kept"}).encode())
    assert json.loads(clean) == {"a": [left], "b": "kept"}
    assert findings == ({"private-span": left.count("[private]")} if text != left else {})
    assert redactor.clean_line(clean) == (clean, {})


def test_a_private_span_is_hidden_in_every_copy_of_a_line(redactor: Redactor) -> None:
    text = "tell me <private>the number 4711</private> of it"
    request = {"body": json.dumps({"messages": [{"role": "user", "content": text}]})}
    line = json.dumps({"content": text, "toolUseResult": {"stdout": text}, "request": request, text: 1}).encode()
    clean, findings = redactor.clean_line(line)
    assert b"4711" not in clean
    assert findings == {"private-span": 4}


# What crystal recalled

RECALLED = fenced("data: hits 1-1\n[7k2m9x 17 user]\nthe key of the shed is under the red pot", "7k2m9x")


@each_row("secrets", [True, False])
@each_row(
    ("text", "left"),
    [
        (f"a {RECALLED} c", "a [recalled] c"),
        (f"{RECALLED}\n\n{RECALLED}!", "[recalled]\n\n[recalled]!"),
        (f"a {RECALLED[:60]}", "a [recalled]"),
        (f"a {RECALLED[:36]}", "a [recalled]"),
        (f"{RECALLED[:60]} then {RECALLED} c", "[recalled] c"),
        ("1\t" + RECALLED[:70].replace("\n", "\n2\t"), "1\t[recalled]"),
        ("> " + RECALLED[:70].replace("\n", "\n> "), "> [recalled]"),
        ("a <crystal-memory> recalled, as data: user b", "a [recalled]"),
        ("a <crystal-memory>b</crystal-memory> c", "a [recalled] c"),
        (
            "<crystal-memory-7k2m9x>\nb</crystal-memory-abcdef> c</crystal-memory> d</crystal-memory-7k2m9x> e",
            "[recalled] e",
        ),
        ("a <crystal-memory-7k2m9x>b</crystal-memory-abcdef> c", None),
        (
            '{"fence": "<crystal-memory-7k2m9x> data:", "hits": ["b"], "fence_end": "end of data </crystal-memory-7k2m9x>"}',
            '{"fence": "[recalled]"}',
        ),
        ("<crystal-memory>\nb", "[recalled]"),
        (json.dumps({"text": RECALLED}), '{"text": "[recalled]"}'),
        ("a \\u003ccrystal-memory\\u003eb\\u003c/crystal-memory\\u003e c", "a [recalled] c"),
        ("what does <crystal-memory> mean?", None),
        ("what does <crystal-memory>\nmean?", None),
        ("`<crystal-memory>` and `</crystal-memory>` are its tags", None),
        ("a </crystal-memory> b", None),
        ("the crystal-memory, and <crystal-memories>b</crystal-memories>", None),
        (f"what does <crystal-memory> mean? {RECALLED} c", "what does <crystal-memory> mean? [recalled] c"),
    ],
)
def test_recalled_text_goes_with_and_without_secrets(text: str, left: str | None, secrets: bool) -> None:
    redactor = Redactor(b"k", secrets=secrets)
    left = text if left is None else left
    assert redactor.clean_text(text)[0] == left
    clean, findings = redactor.clean_line(json.dumps({"a": [text], "b": "kept"}).encode())
    assert json.loads(clean) == {"a": [left], "b": "kept"}
    assert findings == ({"recalled": left.count("[recalled]")} if text != left else {})
    assert redactor.clean_line(clean) == (clean, {})


def test_recalled_text_is_left_out_of_every_copy_of_a_line(redactor: Redactor) -> None:
    told = json.dumps({"hookSpecificOutput": {"additionalContext": RECALLED}})
    line = json.dumps(
        {"type": "attachment", "attachment": {"stdout": told}, "blob": json.dumps({"stdout": told}), RECALLED: 1}
    ).encode()
    clean, findings = redactor.clean_line(line)
    assert b"red pot" not in clean
    assert findings == {"recalled": 3}


def test_the_escapes_of_a_tag_do_not_hide_it(redactor: Redactor) -> None:
    clean, _ = redactor.clean_line(b'{"a":"\\u003c\\u0070rivate\\u003e4711\\u003c\\/private\\u003e z"}')
    assert clean == b'{"a":"[private] z"}'


def test_without_secrets_a_secret_stays() -> None:
    line = line_with("password=hunter2")
    assert Redactor(b"k", secrets=False).clean_line(line) == (line, {})
