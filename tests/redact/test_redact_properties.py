"""What crystal.redact promises for every input, tried on inputs that nobody would think of."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crystal.redact import Redactor
from crystal.redact.prefilter import secret_hints, secret_prefilter
from crystal.redact.private import private_spans
from crystal.redact.recalled import recalled_spans
from crystal.redact.spans import MARKER
from crystal.redact.views import unescaped
from crystal.redact.work_limit import RedactionWork
from crystal.text.fence import HEADER, closing, fenced, opening
from tests.support import redact_samples as samples
from tests.support.examples import examples
from tests.support.table import each_row

REDACTOR = Redactor(b"a key of this machine")

PIECES = [
    *"password PASSWORD token api_key SECRET pass key auth pwd name value cookie".split(),
    *"= : == => ( ) [ ] { } < > / // :// @ & ; - -- _ .".split(),
    *(": ", '": "', "': '", ", ", '"', "'", "`", "\n", "\t", " ", "\x00", "\x1b[31m", "\x1b[0m"),
    *r"\ \\ \" \n \u0070 \u003c \/".split(),
    *("<crystal-memory>", "</crystal-memory>", "<crystal-memory>\nrecalled, as data: ", "[recalled]"),
    *("<private>", "</private>", "<private/>", "< PRIVATE a='b'>", "[private]", "[redacted:password:0123abcd]"),
    *"[redacted: hunter2 P@ssw0rd! swordfish get_password() None str é \ud800 漢字".split(),
    *("\u2028", "postgres://ada:", "Bearer ", "Basic ", "Authorization: ", "Cookie: a=", "curl -u ada:"),
    *("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "A" * 20, "a1B2c3D4" * 4, "0123456789abcdef" * 2),
    *"sk- AKIA eyJ".split(),
    *(make(3) for make in samples.FORMATS.values()),
]
TEXTS = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=4)), max_size=14).map("".join)
NAMED = st.tuples(
    st.sampled_from(
        "password DB_PASSWORD --password apiKey X_TOKEN secret STRIPE_KEY pass <password dbPass auth".split()
    ),
    st.sampled_from(
        ["=", ": ", '": "', " = ", "='", ': "', " := ", " => '", "', '", " ", ">", ":\n  ", ": |\n  ", '"] = "']
    ),
    st.one_of(TEXTS, st.text("aB3$. /+'\\\"", max_size=24)),
    st.sampled_from(["", "\n", '"', "'", " x", ",", ")", "</password>"]),
).map("".join)
KEYS = st.one_of(st.sampled_from(["password", "token", "apiKey", "name", "value", "uuid", "text"]), TEXTS)
LEAVES = st.one_of(TEXTS, st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False))
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=12,
)


def shape(value: Any) -> Any:
    """Return the value with every string, keys too, replaced by a mark: its structure alone."""
    if isinstance(value, dict):
        return ["object", *((shape(inner)) for inner in value.values())]
    if isinstance(value, list):
        return ["list", *(shape(inner) for inner in value)]
    return "a string" if isinstance(value, str) else value


def pairs(line: bytes) -> Any:
    """Read JSON and keep keys that stand twice."""

    def kept(items: list[tuple[str, Any]]) -> dict[str, Any]:
        return {f"{number} {key}": value for number, (key, value) in enumerate(items)}

    return json.loads(line, object_pairs_hook=kept)


@pytest.mark.slow
@examples(40)
@given(VALUES, st.booleans(), st.booleans())
def test_valid_json_stays_valid_json_of_the_same_structure(value: Any, plain: bool, compact: bool) -> None:
    text = json.dumps(value, ensure_ascii=plain, separators=(",", ":") if compact else None)
    line = text.encode("utf-8", "surrogatepass")
    clean, findings = REDACTOR.clean_line(line)
    assert "unprocessable" not in findings
    if findings:
        decoded = clean.decode("utf-8", "surrogatepass")
        assert shape(pairs(decoded.encode("utf-8", "surrogatepass"))) == shape(pairs(line))
    else:
        assert clean is line
    assert REDACTOR.clean_line(clean) == (clean, {})


@pytest.mark.slow
@examples(60)
@given(st.one_of(TEXTS, NAMED))
@example("password=abc[redacted:password:0123abcd]def")
@example("<private>[private]")
def test_cleaning_twice_is_cleaning_once(text: str) -> None:
    clean, findings = REDACTOR.clean_text(text)
    assert "unprocessable" not in findings
    assert REDACTOR.clean_text(clean) == (clean, {})
    assert bool(findings) == (clean != text)


@pytest.mark.slow
@examples(40)
@given(
    st.one_of(st.binary(max_size=200), TEXTS.map(lambda text: text.encode("utf-8", "surrogatepass"))),
    st.binary(max_size=8),
)
def test_no_bytes_at_all_make_it_fail(line: bytes, more: bytes) -> None:
    for tried in (line, more + line, line + more, b'{"a":"' + line + b'"}', b'{"password":"' + line + more):
        clean, findings = REDACTOR.clean_line(tried)
        assert "unprocessable" not in findings
        assert REDACTOR.clean_line(clean) == (clean, {})


@pytest.mark.slow
@examples(40)
@given(
    st.sampled_from(sorted(samples.FORMATS)),
    st.integers(0, 50),
    st.integers(0, 3),
    st.text(st.characters(exclude_categories=["L", "N"]), max_size=20),
    st.text(st.characters(exclude_categories=["L", "N"], exclude_characters="-_"), max_size=20),
    st.booleans(),
)
def test_a_secret_goes_whatever_stands_around_it(
    name: str, seed: int, levels: int, before: str, after: str, plain: bool
) -> None:
    secret = samples.FORMATS[name](seed)
    text = f"{before} {secret}{after}"
    for _ in range(levels):
        text = json.dumps([{"a": [text]}], ensure_ascii=plain)
    line = json.dumps({"content": text}, ensure_ascii=plain).encode("utf-8", "surrogatepass")
    clean, findings = REDACTOR.clean_line(line)
    assert findings
    assert secret.encode() not in clean
    assert secret not in str(findings)


@pytest.mark.slow
@examples(40)
@given(TEXTS, TEXTS, TEXTS, st.integers(0, 3))
def test_a_private_span_goes_whatever_stands_around_it(before: str, inside: str, after: str, levels: int) -> None:
    inside = inside.replace("<", "").replace("u003", "")
    text = f"{before}<private>4711-{inside}</private>{after}"
    line = json.dumps({"content": samples.nested(text, levels)}).encode()
    for redactor in (REDACTOR, Redactor(b"k", secrets=False)):
        assert b"4711-" not in redactor.clean_line(line)[0]


@pytest.mark.slow
@examples(60)
@example(None, "password=password\\/", False)
@given(VALUES, st.one_of(TEXTS, NAMED), st.booleans())
def test_the_first_look_lets_everything_through_that_the_rules_find(value: Any, text: str, plain: bool) -> None:
    thorough = Redactor(b"k")
    thorough._may_hold = lambda *_: True
    quick = Redactor(b"k")
    line = json.dumps(value, ensure_ascii=plain).encode("utf-8", "surrogatepass")
    for tried in (
        line,
        text.encode("utf-8", "surrogatepass"),
        json.dumps({"password": text, "token": [text]}).encode(),
    ):
        assert thorough.clean_line(tried) == quick.clean_line(tried)


@pytest.mark.slow
@examples(60)
@given(TEXTS, st.booleans(), st.data())
def test_a_view_leads_back_to_its_source(text: str, plain: bool, data: st.DataObject) -> None:
    source = json.dumps(text, ensure_ascii=plain).encode("utf-8", "surrogatepass")[1:-1]
    view = unescaped(source)
    if view is None or not view.text:
        return
    start = data.draw(st.integers(0, len(view.text) - 1))
    end = data.draw(st.integers(start + 1, len(view.text)))
    ((begin, stop),) = view.lead_back([(start, end)])
    part = unescaped(source[begin:stop])
    assert view.text[start:end] in (source[begin:stop] if part is None else part.text)


@pytest.mark.slow
@examples(40)
@given(TEXTS, st.one_of(TEXTS, NAMED), TEXTS, st.integers(0, 4), st.booleans(), st.booleans())
def test_what_was_recalled_goes_whatever_it_is_and_stands_in(
    before: str, inside: str, after: str, levels: int, plain: bool, closed: bool
) -> None:
    told = fenced(f"data: shed {inside} pot", "7k2m9x")
    text = before + (told + after if closed else told.removesuffix(closing("7k2m9x")))
    for _ in range(levels):
        text = json.dumps([{"a": [text]}], ensure_ascii=plain)
    line = json.dumps({"content": text}, ensure_ascii=plain).encode("utf-8", "surrogatepass")
    for redactor in (REDACTOR, Redactor(b"k", secrets=False)):
        clean, findings = redactor.clean_line(line)
        assert b"shed" not in clean
        assert b" pot" not in clean
        assert findings
        assert redactor.clean_line(clean) == (clean, {})


TAGS = ["<crystal-memory>", "</crystal-memory>"]
TAGS += [tag(nonce) for tag in (opening, closing) for nonce in ("7k2m9x", "abcdef")]


@examples(40)
@given(st.lists(st.sampled_from([*TAGS, HEADER, "data:", "`", "a", "<", "\n", " "]), max_size=12).map("".join))
def test_recalled_spans_begin_and_end_with_tags_and_never_overlap(text: str) -> None:
    raw = text.encode()
    spans = recalled_spans(raw, RedactionWork(len(raw)))
    assert all(raw.startswith(b"<crystal-memory", start) for start, _ in spans)
    for start, end in spans:
        tag = raw[start + 1 : raw.index(b">", start) + 1]
        assert raw.endswith(b"</" + tag, 0, end) or end == len(raw)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))


def test_private_spans_never_overlap_and_are_in_order() -> None:
    @examples(40)
    @given(st.lists(st.sampled_from(["<private>", "</private>", "<private/>", "a", "<", ">", "\n"]), max_size=12))
    def check(parts: list[str]) -> None:
        raw = "".join(parts).encode()
        spans = private_spans(raw, RedactionWork(len(raw)))
        assert all(start < end for start, end in spans)
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))

    check()


@each_row("make", samples.FORMATS.values())
def test_a_marker_is_all_that_is_left_of_a_secret(make: Callable[[int], str]) -> None:
    clean, _ = REDACTOR.clean_text(make(11))
    assert MARKER.fullmatch(clean.encode())


@pytest.mark.slow
@examples(60)
@given(st.lists(st.tuples(TEXTS | NAMED, st.sampled_from(list(samples.FORMATS))), min_size=2, max_size=6), st.data())
def test_a_huge_line_is_read_in_windows_as_it_would_be_whole(said: list[tuple[str, str]], data: st.DataObject) -> None:
    """The windows of the test are small, but share more than the longest stretch in it: the block of a key."""
    filler = st.integers(0, 3_000).map(lambda size: ("the quick brown fox jumps. " * 120)[:size])
    text = "".join(f"{text}{data.draw(filler)} {samples.FORMATS[kind](3)} \n" for text, kind in said)
    key = "\n".join(["-----BEGIN PRIVATE KEY-----", *["a1B2c3D4" * 8] * 12, "-----END PRIVATE KEY-----", ""])
    text += data.draw(filler) + key + data.draw(filler) + key
    for line in (json.dumps({"text": text}).encode(), text.replace("\n", " ").encode("utf-8", "surrogatepass")):
        whole = REDACTOR.clean_line(line)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("crystal.redact.windows.LARGE", 6_000)
            patch.setattr("crystal.redact.lines.LARGE", 6_000)
            patch.setattr("crystal.redact.windows.SHARED", 3_000)
            assert Redactor(b"a key of this machine").clean_line(line) == whole


@given(st.sampled_from(sorted({hint for group in secret_hints() for hint in group})).flatmap(st.from_regex))
def test_the_first_look_lets_through_whatever_one_of_its_hints_finds(text: bytes) -> None:
    text = text.replace(b"\v", b"\t")  # RE2 takes the vertical tab for no space
    assert secret_prefilter()(text.replace(b"\x1b", b"\t"), 4096)  # a colour may end with the first letter of a hint
