"""What crystal.redact takes out of a line and what it leaves, by example."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from crystal.redact import FAILED_LINE, Redactor
from crystal.redact.formats import FORMATS
from crystal.redact.spans import MARKER
from tests.support import redact_samples as samples
from tests.support.examples import part_of
from tests.support.redact_lines import line_with
from tests.support.table import each_row

DATA = Path(__file__).parent.parent / "data" / "redact"
LEVELS = range(samples.NESTED_LEVELS)


def rows(name: str) -> list[str]:
    return [
        row.replace("\\n", "\n").replace("\\t", "\t") for row in (DATA / name).read_text("utf-8").splitlines() if row
    ]


def escaped(secret: str, levels: int) -> bytes:
    """Return the secret as it stands in ``line_with(secret, levels)``."""
    for _ in range(levels + 1):
        secret = json.dumps(secret)[1:-1]
    return secret.encode()


# Known formats


@each_row("levels", part_of(LEVELS, 2))
@each_row("name", samples.FORMATS)
def test_a_token_of_a_known_format_goes_at_every_level_of_escaping(redactor: Redactor, name: str, levels: int) -> None:
    secret = samples.FORMATS[name](7)
    texts = (
        secret,
        f"see {secret} there",
        f'x="{secret}"',
        f"\x1b[31m{secret}\x1b[0m",
        f"\n{secret}\n",
        f"é{secret},",
    )
    for text in part_of(texts, 2):
        clean, findings = redactor.clean_line(line_with(text, levels))
        assert secret.encode() not in clean
        assert findings == {name.partition(" ")[0]: 1}
        json.loads(clean)


def test_a_secret_near_an_account_id_goes_with_it(redactor: Redactor) -> None:
    account, secret = samples.FORMATS["aws-access-key"](1), samples.drawn(samples.ALNUM + "+/", 40, 2)
    clean, findings = redactor.clean_text(f"{account},{secret}\n")
    assert secret not in clean
    assert account not in clean
    assert findings == {"aws-access-key": 1, "aws-secret-key": 1}


def test_webhooks_and_storage_keys_keep_their_address(redactor: Redactor) -> None:
    path = (
        "T"
        + samples.drawn(samples.UPPER, 8)
        + "/B"
        + samples.drawn(samples.UPPER, 8)
        + "/"
        + samples.drawn(samples.ALNUM, 24)
    )
    clean, _ = redactor.clean_text(f"https://hooks.slack.com/services/{path}")
    assert clean.startswith("https://hooks.slack.com/services/[redacted:slack-webhook:")
    assert path not in clean
    key = samples.drawn(samples.ALNUM + "+/", 86) + "=="
    clean, _ = redactor.clean_text(f"DefaultEndpointsProtocol=https;AccountName=x;AccountKey={key};EndpointSuffix=core")
    assert key not in clean
    assert "AccountName=x" in clean
    assert "EndpointSuffix=core" in clean


# Values beside telling names


@each_row("form", rows("password_forms.txt"))
def test_a_password_goes_beside_a_telling_name_even_a_weak_one(redactor: Redactor, form: str) -> None:
    secrets = ("hunter2", "P@ssw0rd!", "Tr0ub4dor&3", "s3cr3t-Value_9", "pässwört9", "abc/def9+x=")
    for secret in part_of(secrets, 2):
        assert_gone(redactor, form.replace("{}", secret), secret)


@each_row("form", rows("call_forms.txt"))
def test_a_password_goes_from_calls_files_of_configuration_and_terminals(redactor: Redactor, form: str) -> None:
    assert_gone(redactor, form.replace("{}", "hunter2x"), "hunter2x")


WHOLE = [
    ("root:{}@tcp(h:1)/db", "p@ss:w0/rd9"),
    ("Driver={x};Server=db;UID=sa;PWD={{}}", "pa}}ss{1word"),
    ("curl -b 'a=b; sid={}' x", "hunter2hunter2hunter2; token=hunter3hunter3hunter3"),
    ("user default on >{} ~*", "hunter2x >hunter3x"),
    ("echo '{}' >> .vault_pass", "hunter2x"),
    ("sshpass -p '{}' ssh h", "a hunter2x b"),
    ("docker login --password '{}' h", "my hunter2x word"),
    ("DB_PASSWORD={}", "!Maple.hunter24!"),
    ("CREATE LOGIN a WITH PASSWORD = N'{}'", "hunter2x"),
]


@each_row(("form", "secret"), WHOLE)
def test_a_password_with_signs_goes_whole(redactor: Redactor, form: str, secret: str) -> None:
    before, after = form.split("{}")
    clean = redactor.clean_text(before + secret + after)[0]
    assert clean.startswith(f"{before}[redacted:password:")
    assert clean.endswith(f"]{after}")


@each_row("form", rows("token_forms.txt"))
def test_a_value_that_looks_random_goes_beside_a_telling_name(redactor: Redactor, form: str) -> None:
    kinds = ((samples.ALNUM, 40), (samples.HEX, 32), (samples.HEX, 64), (samples.URLSAFE, 32))
    for alphabet, length in part_of(kinds, 2):
        secret = samples.drawn(alphabet, length, length)
        assert_gone(redactor, form.replace("{}", secret), secret)


@each_row("seed", [1, 2, 3])
def test_a_key_in_base64_is_no_path_whatever_slashes_it_has(redactor: Redactor, seed: int) -> None:
    secret = "/".join(samples.drawn(samples.ALNUM, length, seed) for length in (11, 13, 14))
    assert_gone(redactor, f"aws_secret_access_key = {secret}", secret)
    kept = "secret = /srv/Apps/Orders2024/Config9/Production/v12/tokens"
    assert redactor.clean_text(kept) == (kept, {})


def assert_gone(redactor: Redactor, text: str, secret: str) -> None:
    assert secret not in redactor.clean_text(text)[0]
    for levels in part_of(LEVELS, 2):
        clean, findings = redactor.clean_line(line_with(text, levels))
        assert escaped(secret, levels) not in clean
        assert findings
        assert redactor.clean_line(clean) == (clean, {})
    if text.startswith(("{", "[")):
        assert secret.encode() not in redactor.clean_line(text.encode())[0]


@each_row("text", ["correct horse battery staple", "swordfish", "1234567", '"quoted"', "back\\slash9"])
def test_a_string_under_the_key_password_goes_whole(redactor: Redactor, text: str) -> None:
    clean, _ = redactor.clean_line(json.dumps({"user": "ada", "password": text, "n": 1}).encode())
    left = json.loads(clean)
    assert left["password"].startswith("[redacted:password:")
    assert (left["user"], left["n"]) == ("ada", 1)


def test_every_string_of_a_list_under_a_telling_key_goes(redactor: Redactor) -> None:
    clean, findings = redactor.clean_line(b'{"passwords": ["hunter2", "hunter3"], "names": ["ada", "bob"]}')
    assert findings == {"password": 2}
    assert json.loads(clean)["names"] == ["ada", "bob"]


def test_numbers_and_booleans_under_telling_keys_keep_their_type(redactor: Redactor) -> None:
    line = b'{"password": 12345678, "token": null, "input_tokens": 1234, "secret": true}'
    assert redactor.clean_line(line) == (line, {})


# Addresses and headers


@each_row(
    ("text", "left"),
    [
        ("postgres://ada:{}@db.example:5432/app", "postgres://ada:[]@db.example:5432/app"),
        ("redis://:{}@cache/0", "redis://:[]@cache/0"),
        ("https://x-access-token:{}@github.com/a/b.git", "https://x-access-token:[]@github.com/a/b.git"),
        ("mongodb+srv://ada:{}@cluster0.example/?w=majority", "mongodb+srv://ada:[]@cluster0.example/?w=majority"),
        ("see <https://ada:{}@host/>.", "see <https://ada:[]@host/>."),
    ],
)
@each_row("levels", LEVELS)
def test_a_password_in_an_address_goes_and_user_and_host_stay(
    redactor: Redactor, text: str, left: str, levels: int
) -> None:
    for secret in ("hunter2x", "p%40ss", "s3cr3t@home", samples.drawn(samples.ALNUM, 20)):
        for slashes in ("/", "\\/"):
            clean, _ = redactor.clean_text(text.format(secret).replace("/", slashes))
            marker = clean[clean.index("[redacted") : clean.index("]") + 1]
            assert clean == left.replace("[]", marker).replace("/", slashes)
        assert escaped(secret, levels) not in redactor.clean_line(line_with(text.format(secret), levels))[0]


def test_a_token_in_the_place_of_the_user_goes(redactor: Redactor) -> None:
    secret = samples.drawn(samples.HEX, 40)
    assert secret not in redactor.clean_text(f"git clone https://{secret}@host.example/a.git")[0]


def test_basic_authorization_goes_only_if_it_holds_a_user_and_a_password(redactor: Redactor) -> None:
    value = base64.b64encode(b"ada:hunter2").decode()
    clean, findings = redactor.clean_text(f"Authorization: Basic {value}")
    assert value not in clean
    assert findings == {"basic-auth": 1}
    assert redactor.clean_text("Basic Authentication Schemes")[1] == {}


# Private keys


KINDS = (
    "PRIVATE KEY",
    "RSA PRIVATE KEY",
    "EC PRIVATE KEY",
    "OPENSSH PRIVATE KEY",
    "ENCRYPTED PRIVATE KEY",
    "PGP PRIVATE KEY BLOCK",
    "OpenVPN Static key V1",
)


@each_row("levels", LEVELS)
@each_row("kind", KINDS)
def test_a_private_key_block_goes_whole(redactor: Redactor, kind: str, levels: int) -> None:
    block = samples.pem(kind, 3)
    for text in (
        f"before\n{block}\nafter",
        f"before {block} after".replace("\n", "\\n"),
        "before\n" + "\n".join(f"{n:6}\t{row}" for n, row in enumerate(block.split("\n"), 1)) + "\nafter",
        "before\n" + "\n".join(f"{n:6}→{row}" for n, row in enumerate(block.split("\n"), 1)) + "\nafter",
        "before\n" + "\n".join(f"+{row}" for row in block.split("\n")) + "\nafter",
        f'before "{block}" after'.replace("\n", '\\n" +\n  "'),
    ):
        clean, findings = redactor.clean_line(line_with(text, levels))
        assert findings["private-key"] == 1
        assert sum(findings.values()) == 1
        assert not any(row.encode() in clean for row in block.split("\n")[1:-1])
        assert b"before" in clean
        assert b"after" in clean


@each_row("levels", LEVELS)
@each_row("rows_left", [1, 3, 6])
def test_a_private_key_that_was_cut_off_goes_as_far_as_it_goes(redactor: Redactor, rows_left: int, levels: int) -> None:
    block = "\n".join(samples.pem("RSA PRIVATE KEY", 5).split("\n")[: rows_left + 1])
    for end in ("", block[-20:-10], "\n... (truncated)"):
        clean, findings = redactor.clean_line(line_with(f"before\n{block}{end}", levels))
        assert findings == {"private-key": 1}
        assert b"before" in clean
        assert not any(row.encode() in clean for row in block.split("\n")[1:])


# What stays


@each_row("text", rows("innocent.txt"))
def test_what_only_looks_like_a_secret_stays(redactor: Redactor, text: str) -> None:
    assert redactor.clean_text(text) == (text, {})
    for levels in LEVELS:
        line = line_with(text, levels)
        assert redactor.clean_line(line)[0] is line


def test_a_line_without_a_finding_is_the_same_object(redactor: Redactor) -> None:
    for line in (
        b"",
        b"{}",
        b"not json",
        b'{"a": 1.00, "a": "\\u00e9\\/"}',
        b"\xff\x00\xfe",
        b'"' * 9,
        b'{"password": "',
    ):
        assert redactor.clean_line(line)[0] is line


def test_only_what_was_found_changes(redactor: Redactor) -> None:
    line = b' {"b" : 1.50,"a":"\\u00e9\\/ password=hunter2 \\ud83d\\ude00 \\ud800","a":12345678901234567890123, "z":[ ] }\r'
    clean, _ = redactor.clean_line(line)
    before, after = line.split(b"hunter2")
    assert clean.startswith(before + b"[redacted:password:")
    assert clean.endswith(after)


# Hashes


def test_equal_secrets_have_equal_hashes_under_one_key_and_others_under_another() -> None:
    here, there = Redactor(b"here"), Redactor(b"there" * 50)
    one, _ = here.clean_text("password=hunter2")
    other, _ = here.clean_line(line_with('{"password": "hunter2"}', 2))
    marker = one.partition("=")[2]
    assert marker.encode() in other
    assert there.clean_text("password=hunter2")[0] != one
    assert here.clean_text("password=hunter3")[0] != one


# Input that is not what it should be


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        b"password=hunter2",
        b'{"password": "hunter2"',
        b'{"a": "password=hunter2',
        b'{"a": NaN, "password": "hunter2"}',
        b'\xff\xfe{"password": "hunter2"}\x80',
        b'{"a": "\xff\x00 password=hunter2"}',
        b'{"a": "\\ud800 password=hunter2 \\udc00"}',
        b'\x00{"password": "hunter2"}\x00',
        b"[" * 100_000 + b'"password=hunter2"' + b"]" * 100_000,
        b'{"a":' * 50_000 + b'{"password": "hunter2"}' + b"}" * 50_000,
    ],
)
def test_a_secret_goes_from_lines_that_break_json_readers(redactor: Redactor, line: bytes) -> None:
    clean, findings = redactor.clean_line(line)
    assert findings == {"password": 1}
    assert b"hunter2" not in clean
    assert len(clean) > len(line)


def test_a_line_that_cannot_be_cleaned_is_given_up_whole(redactor: Redactor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redactor, "_cuts", lambda *_: 1 // 0)
    assert redactor.clean_line(b'{"password": "hunter2"}') == (FAILED_LINE, {"unprocessable": 1})
    assert json.loads(FAILED_LINE)["type"] == "crystal-redaction-failed"


def test_text_of_lone_surrogates_comes_back_as_it_was(redactor: Redactor) -> None:
    clean, _ = redactor.clean_text("\ud800 password=hunter2 \udc00")
    assert clean.startswith("\ud800 password=[redacted:password:")
    assert clean.endswith(" \udc00")


@pytest.mark.slow
def test_tokens_are_found_in_a_long_text_wherever_they_stand(redactor: Redactor) -> None:
    secrets = [make(seed) for make in samples.FORMATS.values() for seed in range(3)]
    filler = "one line of a log among many, with nothing in it\n" * 50
    text = filler.join(f"{secret}\n" for secret in secrets) + filler * 100 + secrets[0]
    clean, findings = redactor.clean_text(text)
    assert sum(findings.values()) == len(secrets) + 1
    assert clean.count("[redacted:") == len(secrets) + 1
    assert not [secret for secret in secrets if secret in clean]


def test_a_picture_in_base64_stays_whatever_letters_it_holds_by_chance(redactor: Redactor) -> None:
    chance = samples.drawn(samples.ALNUM + "+/", 100)
    for name in ("google-api-key", "aws-access-key"):
        inside = samples.FORMATS[name](9).replace("-", "x").replace("_", "y")
        line = json.dumps({"source": {"data": chance + inside + chance}}).encode()
        assert redactor.clean_line(line) == (line, {})


def test_every_kind_fits_into_a_marker() -> None:
    kinds = {row.kind for row in FORMATS} | {"private-key", "url-password", "aws-secret-key", "twilio-auth-token"}
    for kind in kinds:
        assert MARKER.fullmatch(f"[redacted:{kind}:0123abcd]".encode())
