"""No text makes redaction slow: the work for each byte is bounded, whatever the text says. Counted, never timed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

if sys.version_info >= (3, 11):
    from re import _parser as sre_parse
else:
    import sre_parse

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crystal.redact import Redactor
from crystal.redact.formats import FORMATS, Format
from crystal.redact.prefilter import MIN_TOKEN_BYTES
from crystal.redact.regex_engines import compiled
from crystal.redact.work_limit import MIN_UNITS, UNITS_PER_BYTE, RedactionWork, TooDenseError
from tests.support.examples import examples
from tests.support.hostile_texts import ALPHABETS, FORMS, PREFIXES, WIDTHS, before_random, mixture, repeated, series
from tests.support.table import each_row

REDACTOR = Redactor(b"a key of this machine")
CALLS_PER_BYTE, MIN_CALLS = 2.5, 50_000
"""Calls of functions, in Python and in C, patterns included. Redaction cannot do work without them."""

RUNS = ["", " ", "\n", "a", "A1b2", "=", "'", "0123456789abcdef", "a" * 40 + "\n"]
HOSTILE = st.tuples(
    st.lists(st.sampled_from(PREFIXES), min_size=1, max_size=2).map("".join).filter(bool),
    st.sampled_from(RUNS),
    st.booleans(),
)
SIZES = (20, 60, 200)


def calls_of(*lines: bytes) -> int:
    """Return how many functions are called to clean the lines, beside compiling what is compiled at its first use."""
    redactor = Redactor(b"a key of this machine")
    calls = 0

    def count(_: FrameType, event: str, __: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    for line in set(lines):
        REDACTOR.clean_line(line)
    sys.setprofile(count)
    try:
        for line in lines:
            redactor.clean_line(line)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.slow
@examples(25)
@given(HOSTILE)
def test_the_work_for_a_text_of_any_prefix_repeated_is_in_proportion_to_its_size(case: tuple[str, str, bool]) -> None:
    prefix, run, opened = case
    text = (prefix + run) * (20_000 // len(prefix + run))
    text += " password=hunter2 http://a:hunter22@b curl -u ada:hunter22 x" * opened
    line = json.dumps({"a": text}).encode()
    assert calls_of(line) <= MIN_CALLS + CALLS_PER_BYTE * len(line)


RANDOM = (st.sampled_from(PREFIXES), st.sampled_from(sorted(ALPHABETS)), st.sampled_from(WIDTHS))


@pytest.mark.slow
@examples(50)
@given(*RANDOM)
def test_the_work_for_random_letters_behind_any_prefix_is_in_proportion_to_their_number(
    prefix: str, alphabet: str, width: int
) -> None:
    line = json.dumps({"a": before_random(prefix, alphabet, width, 20_000)}).encode()
    assert calls_of(line) <= MIN_CALLS + CALLS_PER_BYTE * len(line)


@pytest.mark.slow
@examples(50)
@given(*RANDOM, st.sampled_from(sorted(FORMS)))
def test_the_work_for_any_prefix_in_any_form_is_in_proportion_to_its_size(
    prefix: str, alphabet: str, width: int, form: str
) -> None:
    text = FORMS[form](before_random(prefix, alphabet, width, 10_000))
    line = json.dumps({"a": text}, ensure_ascii=False).encode()
    assert calls_of(line) <= MIN_CALLS + CALLS_PER_BYTE * len(line)


@pytest.mark.slow
@examples(50)
@example(series, 20)  # words of recovery phrases, each a string of its own
@given(st.sampled_from((mixture, series)), st.integers(0, 1 << 20))
def test_the_work_for_any_mixture_or_series_is_in_proportion_to_its_size(
    generate: Callable[[int, int], bytes], seed: int
) -> None:
    line = generate(seed, 30_000)
    assert calls_of(line) <= MIN_CALLS + CALLS_PER_BYTE * len(line)


@pytest.mark.slow
@each_row("row", FORMATS)
def test_no_format_reads_its_own_beginnings_more_than_a_few_times(row: Format) -> None:
    """Against what counting calls cannot see: a pattern that reads far and fails, at each place again."""

    def seconds(text: str) -> float:
        start = time.thread_time()
        for _ in compiled(row.pattern).finditer(text.encode()):
            pass
        return time.thread_time() - start

    for literal in row.literals:
        prefix = literal.decode()
        texts = [before_random(prefix, alphabet, 8, 30_000) for alphabet in ("mixed", "hexadecimal", "words")]
        for text in [repeated(prefix or "MDAw", 30_000), *texts]:
            assert any(seconds(text) < 0.015 for _ in range(3)), "500 nanoseconds for a letter"


def short_rows(prefix: str) -> list[str]:
    return [repeated(prefix, size) for size in SIZES]


@pytest.mark.slow
@examples(25)
@example('"api_key": "', False)  # JSON writes two bytes for some of its letters
@given(st.sampled_from(PREFIXES), st.booleans())
def test_short_lines_that_repeat_are_examined_once(prefix: str, plain: bool) -> None:
    rows = short_rows(prefix)
    lines = [row.encode() if plain else json.dumps({"a": row}).encode() for row in rows]
    assert calls_of(*lines * 200) <= calls_of(*lines) + 15 * len(lines) * 200


@pytest.mark.slow
@examples(25)
@given(st.sampled_from(PREFIXES), st.sampled_from(SIZES))
def test_the_work_for_many_lines_in_one_text_is_in_proportion_to_its_size(prefix: str, size: int) -> None:
    row = (prefix * size)[:size] + "\n"
    line = json.dumps({"a": row * (20_000 // size)}).encode()
    assert calls_of(line) <= MIN_CALLS + CALLS_PER_BYTE * len(line)


@pytest.mark.slow
@examples(25)
@example("echo ", 200)  # words of recovery phrases, this one in two languages
@example("AGE-SECRET-KEY-", 200)
@given(st.sampled_from(PREFIXES), st.sampled_from(SIZES))
def test_lines_of_a_transcript_with_a_new_short_text_each_cost_no_more_than_their_findings(
    prefix: str, size: int
) -> None:
    lines = [
        json.dumps(
            {"uuid": f"8f244c76-0000-4000-8000-{number:012x}", "a": (prefix * size)[:size] + f" {number}"}
        ).encode()
        for number in range(30)
    ]
    findings = sum(sum(REDACTOR.clean_line(line)[1].values()) for line in lines)
    assert calls_of(*lines) <= len(lines) * 600 + findings * 250 + CALLS_PER_BYTE * sum(map(len, lines))


def test_work_ends_when_the_share_and_the_reserve_are_spent() -> None:
    whole = RedactionWork(1000)
    part = RedactionWork(100, whole)
    part.spend(100 * UNITS_PER_BYTE + 1)
    assert (part.left, whole.left) == (0, 1000 * UNITS_PER_BYTE + MIN_UNITS - 1)
    with pytest.raises(TooDenseError):
        part.spend(whole.left + 1)


def test_a_string_with_too_many_secrets_to_examine_goes_whole_and_its_neighbours_stay() -> None:
    line = json.dumps({"a": "password=hunter2 " * 50_000, "b": "kept"}).encode()
    clean, findings = REDACTOR.clean_line(line)
    assert findings == {"dense": 1}
    assert json.loads(clean)["b"] == "kept"
    assert b"hunter2" not in clean
    assert REDACTOR.clean_line(clean) == (clean, {})


def records(count: int) -> list[dict[str, object]]:
    """Return records as a tool prints them, one of them with a password."""
    rows: list[dict[str, object]] = [
        {
            "id": n,
            "name": f"build of part {n}",
            "note": "the parser fails at line 12",
            "tags": ["a", "b"],
            "path": "src",
        }
        for n in range(count)
    ]
    rows[count // 2]["password"] = "hunter2x"
    return rows


JSON_IN_A_STRING: dict[str, Callable[[list[dict[str, object]]], str]] = {
    "a list": json.dumps,
    "indented": lambda rows: json.dumps(rows, indent=2),
    "lines": lambda rows: "\n".join(map(json.dumps, rows)),
    "JSON in JSON": lambda rows: json.dumps({"stdout": json.dumps(rows)}),
    "lines in JSON": lambda rows: json.dumps({"stdout": "\n".join(map(json.dumps, rows))}),
    "strings in a list": lambda rows: json.dumps([*map(json.dumps, rows)]),
}


@pytest.mark.slow
@each_row("form", JSON_IN_A_STRING)
def test_a_megabyte_of_json_in_a_string_loses_only_its_password(form: str) -> None:
    line = json.dumps({"content": JSON_IN_A_STRING[form](records(8_000))}).encode()
    clean, findings = REDACTOR.clean_line(line)
    assert len(line) > 1_000_000
    assert findings == {"password": 1}
    assert b"hunter2x" not in clean


def test_words_ids_and_times_stay_beside_short_strings_that_are_too_many_to_examine() -> None:
    kept = {
        "type": "tool_result",
        "uuid": "8f244c76-0000-4000-8000-00000000abcd",
        "timestamp": "2026-11-26T21:37:54.123Z",
        "tool_use_id": "toolu_01AbCdEfGhIjKlMnOpQrStUv",
    }
    line = json.dumps({"a": [f"password=hunter{n}x" for n in range(20_000)], **kept}).encode()
    clean, findings = REDACTOR.clean_line(line)
    assert findings["dense"] > 10_000
    assert b"hunter" not in clean
    assert json.loads(clean).items() >= kept.items()


def test_a_file_of_a_hundred_secrets_is_cleaned_one_by_one() -> None:
    clean, findings = REDACTOR.clean_text("".join(f"NAME_{n}_PASSWORD=hunter{n}x\n" for n in range(60)))
    assert findings == {"password": 60}
    assert clean.count("NAME_") == 60


def test_short_strings_are_examined_only_while_their_line_has_work_left() -> None:
    rows = [
        f'"key": "\\\\"hunter{n}\\\\" password=hunter{n} -u ada:hunter{n}x http://b:hunter{n}@c' for n in range(3000)
    ]
    line = json.dumps({"a": rows, "b": "kept"}).encode()
    assert calls_of(line) <= MIN_CALLS + 3 * CALLS_PER_BYTE * len(line)
    assert json.loads(REDACTOR.clean_line(line)[0])["b"] == "kept"


def test_keys_that_tell_of_nothing_cost_no_call_each() -> None:
    rows = [{f"k{n}x{n * 7919 % 10007}": "v"} for n in range(4000)]
    line = json.dumps({"a": rows, "b": "password=hunter2"}).encode()
    assert calls_of(line) < len(rows)


def test_keys_that_differ_in_a_number_are_judged_once() -> None:
    line = json.dumps({"a": [{f"my_token_{n}": 1} for n in range(4000)], "b": "password=hunter2"}).encode()
    assert calls_of(line) < 4000


def test_strings_with_a_tag_that_never_ends_cost_no_call_each() -> None:
    assert calls_of(json.dumps({"a": ["<private"] * 4000, "b": "password=hunter2"}).encode()) < 4000


@pytest.mark.slow
def test_a_long_text_of_tokens_in_random_letters_is_given_up_soon() -> None:
    line = json.dumps({"a": before_random("pa-", "base64", 200, 1_000_000)}).encode()
    assert calls_of(line) <= 0.05 * len(line)


def test_no_format_matches_in_a_string_that_is_not_looked_at_for_formats() -> None:
    certain = [row.pattern for row in FORMATS if b"(?P<none>)" not in row.pattern]
    assert len(certain) > 100
    assert min(sre_parse.parse(pattern).getwidth()[0] for pattern in certain) >= MIN_TOKEN_BYTES


PROGRAM = """
from crystal.redact import Redactor
from tests.support.hostile_texts import mixture
print([Redactor(b"a key of this machine").clean_line(mixture(seed, 40_000)) for seed in (0, 9, 16)])
"""


@pytest.mark.slow
def test_a_line_too_dense_to_examine_is_cleaned_alike_in_every_process() -> None:
    said = {
        subprocess.check_output([sys.executable, "-c", PROGRAM], env={**os.environ, "PYTHONHASHSEED": seed})
        for seed in ("1", "2", "3")
    }
    assert len(said) == 1


def test_source_code_full_of_patterns_is_read_once_and_not_again_at_each_level_of_escaping() -> None:
    code = r"    if ($line =~ /^\s*([\w\-]+)\s*:\s*(\d+)$/) { $found{$1} = lc('%41') . $2; }  # by hand" + "\n"
    text = code * 4000 + '$deep = "' + "\\" * 64 + '"; $header = "Authorization: Basic $user"; password=$x\n'
    assert REDACTOR.clean_text(text) == (text, {})


def test_a_long_list_of_names_of_keys_in_json_is_kept() -> None:
    rows = [
        {
            "name": f"plugin-{n}",
            "setup": {
                "apiKeyField": "plugins.voice.config.apiKey",
                "optionKey": "voice",
                "flag": "--voice-api-key KEY",
            },
            "env": ["VOICE_API_KEY", "VOICE_TOKEN"],
        }
        for n in range(110)
    ]
    text = json.dumps(rows, indent=2)
    assert REDACTOR.clean_text(text) == (text, {})


def test_what_stays_between_strings_that_are_too_many_to_examine_keeps_its_bytes() -> None:
    kept = b', "kind" :\t"plain", "n": [1, null]'
    line = b"[" + b",".join(b'{"password": "hunter%dx"%b, "a b \xff": 1}' % (n, kept) for n in range(5000)) + b"]"
    clean, findings = REDACTOR.clean_line(line)
    assert (b"hunter" in clean, b"?" in clean, clean.count(kept)) == (False, False, 5000)
    assert clean.count(b"[redacted:") == sum(findings.values()) >= 5000
    assert REDACTOR.clean_line(clean) == (clean, {})
    assert len(REDACTOR.findings(line)) == sum(findings.values())
