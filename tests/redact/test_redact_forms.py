"""What crystal.redact finds of each known format, in plain text and in the forms that hide it from plain rules."""

from __future__ import annotations

import base64
import itertools
import json
import random
import re
import textwrap
import unicodedata
from collections.abc import Callable, Iterator
from urllib.parse import quote

import pytest
from mnemonic import Mnemonic

from crystal.redact import Redactor, mnemonics
from crystal.redact.command_passwords import command_rows
from crystal.redact.encoded import MIN_ANYWHERE, MIN_LITERAL
from crystal.redact.formats import FORMATS, LONG_LITERALS, SHORT_LITERALS, format_literals
from crystal.redact.regex_engines import scanner
from tests.support import redact_samples as samples
from tests.support.examples import part_of
from tests.support.table import each_row

REDACTOR = Redactor(b"a key of this machine")
ROWS, filled = samples.ROWS, samples.filled


def found(text: str) -> dict[str, int]:
    """Return the findings in a line of a transcript that holds the text, which must be the same in plain text."""
    findings = dict(REDACTOR.clean_line(json.dumps({"message": {"content": text}}).encode())[1])
    assert findings == REDACTOR.clean_text(text)[1]
    return findings


def test_the_first_look_stops_at_each_literal_of_a_token_that_may_be_cut() -> None:
    first_look = scanner(format_literals())
    assert [literal for literal in LONG_LITERALS if first_look(literal) is None] == []


def test_every_row_of_the_table_has_a_sample_that_goes_and_one_that_stays() -> None:
    assert [(kind, literals) for kind, literals, _, _ in ROWS] == [
        (row.kind, b" ".join(row.literals).decode()) for row in FORMATS
    ]


@each_row(("kind", "positive", "negative"), [(row[0], row[2], row[3]) for row in ROWS])
def test_a_row_takes_its_sample_and_leaves_the_near_miss(kind: str, positive: str, negative: str) -> None:
    for around in ("see {} there", "鍵は\u3000{}\u3000です", "“{}”"):  # a line has these signs as escapes
        assert found(around.format(filled(positive))) == {kind: 1}
        assert found(around.format(filled(negative))) == {}


def test_every_row_of_the_table_of_commands_has_a_sample_that_goes_and_one_that_stays() -> None:
    assert [row[0] for row in samples.COMMAND_ROWS] == [literal.decode() for literal, *_ in command_rows()]


@each_row(("row", "positive", "negative"), [(at, *row[1:]) for at, row in enumerate(samples.COMMAND_ROWS)])
def test_a_row_of_the_commands_takes_its_sample_and_leaves_the_near_miss(
    row: int, positive: str, negative: str
) -> None:
    taken, kept = (
        filled(text.replace("{p}", "hunter2x9")).replace("\\n", "\n").replace("\\\\", "\\")
        for text in (positive, negative)
    )
    own = re.search(command_rows()[row][3], taken.encode())
    assert own is not None
    assert own["v"].decode() not in REDACTOR.clean_text(taken)[0]
    assert found(taken)
    assert found(kept) == {}


ENCODABLE = [
    (kind, positive, pattern)
    for (kind, literals, positive, _), (_, _, pattern) in zip(ROWS, FORMATS, strict=True)
    if max(map(len, literals.split()), default=0) >= MIN_ANYWHERE and kind not in ("x-bearer-token", "newrelic-key")
]


@pytest.mark.slow
@each_row("before", ["", "x", "ab", "k: "])
@each_row(("kind", "positive", "pattern"), ENCODABLE)
def test_a_known_token_goes_in_base64_and_hex_at_any_alignment(
    kind: str, positive: str, pattern: bytes, before: str
) -> None:
    token = f"{before} {filled(positive)}\n".encode()
    secret = re.search(pattern, token)
    assert secret
    begin = secret.start(secret.lastindex or 0)
    for encoded in (
        base64.b64encode(token),
        base64.urlsafe_b64encode(token),
        token.hex().encode(),
        token.hex().upper().encode(),
    ):
        text = f"see {encoded.decode()} there"
        clean, findings = REDACTOR.clean_text(text)
        assert kind in findings, text
        assert clean.startswith("see ")
        assert clean.endswith(" there")
        at = begin * len(encoded.rstrip(b"=")) // len(token) + 2
        assert encoded.decode()[at : at + 16] not in clean


SHORT = [
    (kind, filled(positive))
    for kind, literals, positive, _ in ROWS
    if {len(literal) for literal in literals.split()} == {MIN_LITERAL} and len(filled(positive)) >= 16
]


@each_row(("kind", "token"), SHORT)
def test_a_token_with_a_short_prefix_goes_in_hex_and_where_base64_begins(kind: str, token: str) -> None:
    for text in (
        f"data:\n  key: {base64.b64encode(token.encode()).decode()}\n",
        f"see {b'k: '.hex()}{token.encode().hex()} there",
        token.encode().hex().upper(),
        json.dumps({"a": "x\n" + base64.b64encode(f"{token}\n".encode()).decode()}),
    ):
        assert kind in found(text), text


@each_row("before", part_of(["", "k: ", "key: ", "the key is "]))
@each_row(("kind", "token"), [(row[0], filled(row[2])) for row in ROWS if row[0] not in ("jwt", "azure-client-secret")])
def test_every_known_token_goes_inside_base64(kind: str, token: str, before: str) -> None:
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        assert kind in found(f"see {encode((before + token).encode()).decode()} there"), (token, before)


def test_tokens_without_a_telling_prefix_go_in_hexadecimal_digits() -> None:
    for kind in "discord-bot-token twilio-key mailchimp-key newrelic-key atlassian-token x-bearer-token".split():
        token = next(filled(row[2], 11) for row in ROWS if row[0] == kind)
        for text in (token.encode().hex(), f"x {token}".encode().hex().upper()):
            assert kind in found(text), text


BEGIN_SHORT = [(kind, token) for kind, token in SHORT if token.encode().startswith(tuple(SHORT_LITERALS))]


@each_row(("kind", "token"), BEGIN_SHORT)
def test_a_token_with_a_short_prefix_goes_where_a_line_was_cut(kind: str, token: str) -> None:
    for width, start in ((40, 12), (40, 30), (64, 50)):
        text = "\n".join(re.findall(f".{{1,{width}}}", f"{'x' * start} {token}"))
        assert kind in found(text), text


def cut_lines(text: str, width: int, end: str) -> str:
    return end.join(re.findall(f"(?s).{{1,{width}}}", text))


def dumped(text: str, group: int, row: str) -> str:
    """Return the text as a program shows its bytes: 16 a row, in groups, with the offset and the letters."""
    rows = [text[at : at + 16] for at in range(0, len(text), 16)]
    return "\n".join(row.format(16 * at, part.encode().hex(" ", -group), part) for at, part in enumerate(rows))


def forms_of(token: str, literals: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each form, and the token in it: cut lines are cut right behind the literal, too."""
    yield "plain", token
    yield "URL", quote(token, safe="")
    yield "URL twice", quote(quote(token, safe=""), safe="")
    yield "JSON", json.dumps({"a": token})
    yield "JSON in JSON", json.dumps(json.dumps({"a": token}))
    if len(token) >= MIN_ENCODED:
        yield "base64", base64.b64encode(token.encode()).decode()
        yield "hexadecimal", token.encode().hex()
        yield "pairs of digits", token.encode().hex(":")
        yield "xxd", dumped(token, 2, "{:08x}: {:<39}  {}")
        yield "hexdump -C", dumped(token, 1, "{:08x}  {:<47}  |{}|")
    head = min(
        (token.find(literal) + len(literal) for literal in literals.split() if literal in token), default=len(token)
    )
    for width, end in itertools.product((40, 76), ("\n", "\r\n")):
        for start in {0, 4, max(0, width - head - 2)}:
            before = "x" * (start - 1) + " " if start else ""
            yield f"lines of {width} ending {end!r} from {start}", cut_lines(before + token, width, end)


MIN_ENCODED = 16
"""Bytes of a token that is told apart in base64 and hexadecimal digits."""


ENCODED = ("base64", "hexadecimal", "pairs of digits", "xxd", "hexdump -C")


@pytest.mark.slow
def test_every_kind_goes_in_every_form() -> None:
    left = [
        f"{kind} {literals}: {form}"
        for kind, literals, positive, _ in ROWS
        for form, text in forms_of(filled(positive), literals)
        if not found(text) or filled(positive)[-10:] in re.sub(r"\s", "", REDACTOR.clean_text(text)[0])
    ]
    assert left == [f"azure-client-secret Q~: {form}" for form in ENCODED]


def test_a_long_token_goes_that_was_cut_in_a_narrow_terminal_and_discords_in_base64() -> None:
    for name in ("telegram-bot-token", "password-hash"):
        token = samples.FORMATS[name](3)
        assert found(cut_lines(f"see {token}", 40, "\n")) == {name: 1}
    token = samples.FORMATS["discord-bot-token"](3)
    assert found(f"data:\n  token: {base64.b64encode(token.encode()).decode()}\n") == {"discord-bot-token": 1}


def test_pictures_and_lists_of_files_stay() -> None:
    dice = random.Random(3)
    for text in (
        base64.b64encode(dice.randbytes(200_000)).decode(),
        dice.randbytes(200_000).hex(),
        base64.b64encode(("sk-learn, sk_buff, the hf_hub and the path to " * 50).encode()).decode(),
        "".join(f"{name:x<40}\n{name}_of_the_project.py\n" for name in ("sk-learn/a", "path/b", "hf_hub/c", "pa-d")),
    ):
        assert found(text) == {}


@pytest.mark.slow
@each_row("width", [40, 76])
@each_row("start", [0, 5, 17, 23, 39])
@each_row(("kind", "positive"), [row[:2] for row in ENCODABLE if len(row[1]) < 26][::5])
def test_a_token_goes_that_was_wrapped(kind: str, positive: str, start: int, width: int) -> None:
    token = filled(positive)
    lines = textwrap.wrap("x" * start + " " + token if start else token, width, break_on_hyphens=False)
    hard = "\n".join(re.findall(f".{{1,{width}}}", "x" * start + " " + token))
    for text in ("\n".join(lines), hard):
        clean = REDACTOR.clean_text(text)[0]
        assert token[-6:] not in clean.replace("\n", "")
        assert json.dumps(text)[-8:-1].encode() not in REDACTOR.clean_line(json.dumps({"a": text}).encode())[0]


@each_row(
    "text",
    [
        "password=hunter2x9",
        "password: 'hunter2x9'",
        "postgres://ada:hunter2x9@db.example:5432/app",
        '{"user": "ada", "password": "hunter2x9"}',
        "Authorization: Basic " + base64.b64encode(b"ada:hunter2x9").decode(),
    ],
)
def test_a_secret_goes_from_what_was_encoded_for_a_url(text: str) -> None:
    secret = text.rpartition(" ")[2] if "Basic" in text else "hunter2x9"
    for times in (1, 2):
        encoded = text
        for _ in range(times):
            encoded = quote(encoded, safe="")
        clean = REDACTOR.clean_text(f"GET /?q={encoded} HTTP/1.1")[0]
        assert quote(secret, safe="") not in clean
        assert clean.endswith(" HTTP/1.1")


PHRASE_FORMS: dict[str, Callable[[list[str]], str]] = {
    **{gap: gap.join for gap in (" ", "\n", ", ", "  ", "-", " | ", "\n- ")},
    "capitals": lambda words: " ".join(words).upper(),
    "numbered": lambda words: "\n".join(f"{at}. {word}" for at, word in enumerate(words, 1)),
    "table": lambda words: "\n".join(f"| {at} | {word} |" for at, word in enumerate(words, 1)),
    "JSON": lambda words: json.dumps(words, ensure_ascii=False),
}


@each_row("strength", [128, 160, 192, 224, 256])
@each_row("form", sorted(PHRASE_FORMS))
def test_a_recovery_phrase_goes(strength: int, form: str) -> None:
    words = Mnemonic("english").to_mnemonic(bytes(range(7, 7 + strength // 8))).split()
    clean, findings = REDACTOR.clean_text(f"My wallet: {PHRASE_FORMS[form](words)}. Keep it!")
    assert clean.startswith("My wallet: ")
    assert clean.endswith("Keep it!")
    assert not set(words[1:-1]) & set(re.findall(r"\w+", clean.lower()))
    assert findings == {"recovery-phrase": 1}


@each_row("language", Mnemonic.list_languages())
def test_a_recovery_phrase_goes_in_every_language(language: str) -> None:
    phrase = Mnemonic(language).to_mnemonic(bytes(range(7, 27)))
    words = phrase.split()
    for value in (
        phrase,
        "\u00a0".join(words),
        "\u202f ".join(words),
        unicodedata.normalize("NFC", "\n".join(words)),
        words,
    ):
        for is_escaped in (False, True):
            clean, findings = REDACTOR.clean_line(json.dumps({"a": value}, ensure_ascii=is_escaped).encode())
            assert set(findings) == {"recovery-phrase"}, value
            assert words[8] not in json.loads(clean)["a"]


@each_row("space", "\u00a0\u1680\u2002\u2007\u200a\u200b\u2028\u202f\u205f\u2060\u3000")
def test_a_recovery_phrase_goes_between_any_spaces_as_they_are_and_escaped(space: str) -> None:
    phrase = space.join(Mnemonic("english").to_mnemonic(bytes(range(7, 27))).split())
    quoted = json.dumps({"a": phrase})
    for line in (quoted, json.dumps({"a": phrase}, ensure_ascii=False), json.dumps({"a": quoted})):
        clean, findings = REDACTOR.clean_line(line.encode())
        assert set(findings) == {"recovery-phrase"}, line
        assert phrase.split(space)[8].encode() not in clean


def test_the_words_in_ascii_are_known_before_the_lists_are_normalized() -> None:
    assert {word for word in mnemonics._words() if word.isascii()} <= mnemonics._ascii_words()


def test_words_of_the_list_without_the_checksum_stay() -> None:
    words = Mnemonic("english").to_mnemonic(bytes(range(7, 23))).split()
    assert found(" ".join([*words[:-1], "zoo" if words[-1] != "zoo" else "zone"])) == {}
    assert found("\n".join(Mnemonic("english").wordlist)) == {}


@each_row("language", ["english", "spanish"])
def test_recovery_phrases_go_that_follow_each_other_by_lines_or_strings(language: str) -> None:
    phrases = [Mnemonic(language).to_mnemonic(bytes(range(at, at + 32))) for at in (7, 70, 150)]
    for value in ("\n".join(phrases), phrases):
        clean, findings = Redactor(bytes(32)).clean_line(json.dumps({"a": value}).encode())
        assert findings == {"recovery-phrase": 3}
        assert json.dumps(phrases[1])[1:-1].encode() not in clean


@each_row(
    "line",
    [
        "db.example.com:5432:app:ada:{}",
        "localhost:5432:*:postgres:{}",
        "*:*:*:ada:{}",
        "10.0.0.7:6432:app:ada@example:{}",
        "db.internal:25060:defaultdb:doadmin:{}",
        "+db.example.com:5432:app:ada:{}",
        "/var/run/postgresql:5432:app:ada:{}",
        "[::1]:5432:app:ada:{}",
    ],
)
def test_a_password_goes_from_a_pgpass_line(line: str) -> None:
    clean, findings = REDACTOR.clean_text("# comment\n" + line.format("s3cr3t!pass") + "\n")
    assert findings == {"password": 1}
    assert clean.startswith("# comment\n" + line.format("[redacted:password:"))
    assert found(line.format("s3cr3t!pass")) == {"password": 1}


def test_a_password_goes_from_a_pgpass_line_that_a_command_writes() -> None:
    for line in ("echo 'db:5432:app:ada:{}' >> ~/.pgpass", 'printf "db:5432:app:ada:{}" > .pgpass'):
        assert found(line.format("s3cr3t!pass")) == {"password": 1}
        assert found(line.format("$PGPASSWORD")) == {}


@each_row(
    "text",
    [
        "src/main.c:1042:12:note:declared here",
        "app.py:1234:foo:bar:b4z1q2",
        "root:x:0:0:root:/root:/bin/bash",
        "12:30:45:123:abc",
        "db.example.com:5432:app:ada:${PGPASSWORD}",
        "db.example.com:5432:app:ada:********",
    ],
)
def test_what_only_looks_like_a_pgpass_line_stays(text: str) -> None:
    assert found(text) == {}


def test_a_password_goes_before_spaces_at_the_end_of_its_string() -> None:
    assert found("password: swordfish  ") == {"password": 1}


def test_each_string_of_a_line_is_asked_whatever_stands_in_the_others() -> None:
    phrase = " ".join(Mnemonic("english").to_mnemonic(bytes(range(7, 23))).split())
    texts = ["nothing", "password=hunter2x", "plain words", phrase, "api_key: 'x1y2z3a4b5c6d7'", "the end of it"]
    clean, findings = REDACTOR.clean_line(
        json.dumps({"list": texts, "more": [{"text": text} for text in texts]}).encode()
    )
    assert findings == {"password": 2, "recovery-phrase": 2, "api-key": 2}
    assert b"hunter2x" not in clean
