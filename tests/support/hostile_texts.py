"""Texts meant to make redaction slow: what each rule begins with, repeated, before random letters and mixed."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from string import ascii_letters, ascii_lowercase, digits
from urllib.parse import quote

from mnemonic import Mnemonic

from crystal.redact.addresses import HEADERS
from crystal.redact.blocks import BLOCK_HINTS
from crystal.redact.command_passwords import command_rows
from crystal.redact.formats import FORMATS
from crystal.redact.recalled import FENCE_NAME
from tests.support import redact_samples as samples

RULES = (
    *(literal.decode() for row in FORMATS for literal in row.literals if literal),
    *(word.decode() + mark for word, *_ in HEADERS for mark in (" ", ": ")),
    *(
        " ".join(filter(None, (*(word.decode() for word in words[:1]), mark.decode())))
        for mark, words, *_ in command_rows()
    ),
    *(hint.decode() for hint in BLOCK_HINTS),
    FENCE_NAME.decode(),
)
"""What the tables of rules themselves say that each rule begins with: a new row is among them."""
PREFIXES = (
    *RULES,
    *("password=", "-ppassword=", "token: ", '"api_key": "', "secret='", "--token ", "password is ", "key=", "pass='"),
    *("://", "http://a:b", "mysql://a:", "Authorization: Basic ", "Cookie: a=", "curl -u a:", "login a password "),
    *("mysql -p", "sshpass -p ", "login -p ", "db:5432:a:b:", "abandon ", "-----BEGIN PRIVATE KEY-----"),
    *("<private>", "<private ", "< private ", "\\u003cprivate "),
    *("<crystal-memory>", "\\", '\\"', "\\n", "\\u0041", "%3D", "\x1b[31m", "[redacted:", '{"a":', "[", '"'),
    *(
        "INSERT INTO a (password) VALUES (",
        "INSERT INTO a (password) VALUES ('",
        "insert into a(pwd)values('b'),('c'),",
    ),
    *("user,password\na,b\n", "|a|password|\n|--|--|\n|b|c|\n", "QUtJQ", "414b4941", ""),
)
ALPHABETS = {
    "lower case": ascii_lowercase,
    "letters": ascii_letters,
    "digits": digits,
    "hexadecimal": digits + "abcdef",
    "mixed": ascii_letters + digits,
    "base64": ascii_letters + digits + "+/",
    "words": ascii_letters + digits + "_-.",
}
WIDTHS = (1, 4, 8, 20, 40, 76, 200, 100_000)
"""Random letters of a line; programs cut tokens at 40 and 76, and such lines are read joined, too."""


def repeated(prefix: str, size: int) -> str:
    """Return a text of ``size`` letters of nothing but the prefix."""
    return (prefix * (size // max(len(prefix), 1) + 1))[:size]


def before_random(prefix: str, alphabet: str, width: int, size: int, seed: int = 1) -> str:
    """Return lines of ``size`` letters in all: the prefix, then ``width`` random letters."""
    letters = "".join(random.Random(seed).choices(ALPHABETS[alphabet], k=size))
    step = len(prefix) + width + 1
    return "".join(f"{prefix}{letters[at : at + width]}\n" for at in range(0, size, step))[:size]


def cut(text: str, width: int, end: str) -> str:
    """Return the text in lines of one width."""
    return end.join(text[at : at + width] for at in range(0, len(text), width))


_LOOK_ALIKES = str.maketrans("acekopsxyABCEHKMOPTX", "асекорѕхуАВСЕНКМОРТХ")


FORMS: dict[str, Callable[[str], str]] = {
    "URL": lambda text: quote(text, safe=""),
    "URL, all": lambda text: "".join(f"%{ord(letter) & 127:02X}" for letter in text),
    "JSON in JSON": lambda text: json.dumps(json.dumps([text])),
    "escapes": lambda text: "".join(f"\\u{ord(letter):04x}" if letter.isalnum() else letter for letter in text),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "hexadecimal": lambda text: text.encode().hex(),
    "lines of 40": lambda text: cut(text, 40, "\n"),
    "lines of 76": lambda text: cut(text, 76, "\r\n"),
    "zero-width": "\u200b".join,
    "full width": lambda text: "".join(chr(ord(letter) + 0xFEE0) if letter.isalnum() else letter for letter in text),
    "look-alikes": lambda text: text.translate(_LOOK_ALIKES),
    "colours": lambda text: cut(text, 6, "\x1b[31m"),
}
"""Ways to write a text so that it must be decoded before it is read."""

_NAMES = (
    "password DB_PASSWORD --password apiKey X_TOKEN secret STRIPE_KEY pass <password auth key name value text".split()
)
_ASSIGNED = ("=", ": ", '": "', " = ", "='", " := ", " => '", "', '", " ", ">", ":\n  ", '"] = "')
_VALUES = ("hunter2", "P@ssw0rd!", "{a12}", "{a24}", "{h32}", "${X}", "get_password()")
_PLAIN = ("\u6f22", "\u00e9", "\n", "    ", "The tests fail since line 12 of src/main.py.\n", "0123456789abcdef")
_BETWEEN = ("", "\n", " ", '"', "'", "=", ",", "; ", "\\n", '","', "&", "|", "\t", "\r\n", ":", "@")
_WIDTHS_OF_STRINGS = (5, 20, 60, 200, 1000, 4000)


def mixture(seed: int, size: int) -> bytes:
    """Return a line of about ``size`` bytes: samples of rules, what they begin with and text, in forms and in JSON."""
    dice = random.Random(seed)
    names = random.Random(seed)  # with dice of their own, names and text leave the form the same at every size
    text = _mixed_text(random.Random(seed), size)
    kind = dice.choice(("text", "string", "strings", "objects", "nested"))
    for _ in range(dice.choice((0, 0, 1, 1, 2, 3))):
        text = FORMS[dice.choice(sorted(FORMS))](text)[:size]
    width = dice.choice(_WIDTHS_OF_STRINGS)
    rows = [text[at : at + width] for at in range(0, len(text), width)]
    value: object = text if kind == "string" else rows
    if kind in ("objects", "nested"):
        value = [{names.choice(_NAMES): row} for row in rows]
    for _ in range(dice.choice((1, 2)) if kind == "nested" else 0):
        value = json.dumps(value)[:size]
    if kind == "text":
        return text.replace("\n", "\r").encode()
    return json.dumps({"content": value}, ensure_ascii=dice.random() < 0.5).encode()


def _mixed_text(dice: random.Random, size: int) -> str:
    few = [_sample(dice) for _ in range(dice.choice((1, 2, 5, 20, 400)))]
    fresh, between = dice.random() < 0.4, dice.choice(_BETWEEN)
    parts: list[str] = []
    while size > 0:
        parts.append((_sample(dice) if fresh else dice.choice(few)) + between)
        size -= len(parts[-1])
    return "".join(parts)


def _sample(dice: random.Random) -> str:
    kind, seed = dice.randrange(5), dice.randrange(1 << 30)
    if kind == 0:
        return dice.choice(PREFIXES)
    if kind == 1:
        letters = ALPHABETS[dice.choice(sorted(ALPHABETS))]
        return dice.choice(PREFIXES) + "".join(dice.choices(letters, k=dice.choice(WIDTHS[:-1])))
    if kind == 2:
        return samples.filled(dice.choice(samples.ROWS)[dice.choice((2, 3))], seed)
    if kind == 3:
        return dice.choice(_NAMES) + dice.choice(_ASSIGNED) + samples.filled(dice.choice(_VALUES), seed)
    return dice.choice(_PLAIN)


_JOINTS = ("", " ", "\n", "\n\n", "\r\n", "\t", ",", ", ", ";", "=", ": ", "&", "\\n", '"', "'")
_KINDS = ("prefix", "cut off", "before random", "prefixes", "few prefixes", "sample", "samples", "near misses")
_KINDS += ("command", "named")
_KINDS_OF_WORDS = ("word", "words", "phrase", "phrases")
_LANGUAGES = ("english", "english", "spanish", "french", "japanese")
_CONTAINERS: dict[str, Callable[[list[str], str], object]] = {
    "text": lambda parts, joint: joint.join(parts),
    "array": lambda parts, _: parts,
    "object": lambda parts, _: {f"k{number}": part for number, part in enumerate(parts)},
    "objects": lambda parts, _: [{"password": part} for part in parts],
    "JSON": lambda parts, _: json.dumps({"a": parts}),
    "JSON in JSON": lambda parts, _: json.dumps({"a": json.dumps({"b": parts})}),
    "in quotes": lambda parts, joint: joint.join(f'"{part}"' for part in parts),
    "URL": lambda parts, joint: quote(joint.join(parts), safe=""),
    "URLs": lambda parts, joint: joint.join(quote(part, safe="") for part in parts),
    "base64": lambda parts, joint: base64.b64encode(joint.join(parts).encode()).decode(),
    "base64 each": lambda parts, joint: joint.join(base64.b64encode(part.encode()).decode() for part in parts),
    "hexadecimal": lambda parts, joint: joint.join(parts).encode().hex(),
    "lines of 40": lambda parts, joint: cut(joint.join(parts), 40, "\n"),
    "lines of 76": lambda parts, joint: cut(joint.join(parts), 76, "\n"),
}


def series(seed: int, size: int) -> bytes:
    """Return a line of at least ``size`` bytes with one thing over and over: what a stranger tries first.

    What a rule begins with, alone or cut off, its samples, the same or a new one each time, or words of recovery
    phrases; one joint between all of them, in one container.
    """
    dice = random.Random(seed)
    container, joint = dice.choice(sorted(_CONTAINERS)), dice.choice(_JOINTS)
    part_of = _part_of(dice, dice.choice(_KINDS + _KINDS_OF_WORDS))
    parts: list[str] = []
    while size > 0:
        parts.append(part_of(len(parts)))
        size -= len(parts[-1]) + max(len(joint), 1)
    value = _CONTAINERS[container](parts, joint)
    return json.dumps({"content": value}, ensure_ascii=dice.random() < 0.5).encode()


def _part_of(dice: random.Random, kind: str) -> Callable[[int], str]:
    """Return a function that makes the n-th thing of a series."""
    if kind in _KINDS_OF_WORDS:
        maker = Mnemonic(dice.choice(_LANGUAGES))
        words = maker.wordlist if kind == "words" else dice.sample(maker.wordlist, dice.choice((1, 2, 5, 13, 41)))
        phrases = [maker.to_mnemonic(dice.randbytes(16)) for _ in range(1 if kind == "phrase" else 1000)]
        chosen = phrases if kind.startswith("phrase") else words
        return lambda number: chosen[number * 7919 % len(chosen)]
    prefix, letters = dice.choice(PREFIXES) or "x", "".join(dice.choices(ALPHABETS["mixed"], k=1 << 16))
    few = dice.sample(PREFIXES, dice.choice((2, 3)))
    width, row = dice.choice(WIDTHS[:-1]), dice.choice(samples.ROWS)
    command = dice.choice(samples.COMMAND_ROWS)[dice.choice((0, 1))]
    named = dice.choice(_NAMES) + dice.choice(_ASSIGNED) + dice.choice(_VALUES)
    forms: dict[str, Callable[[int], str]] = {
        "prefix": lambda _: prefix,
        "cut off": lambda _: prefix[:-1] or "x",
        "before random": lambda number: prefix + letters[number * width % 60_000 :][:width],
        "prefixes": lambda number: PREFIXES[number * 7919 % len(PREFIXES)],
        "few prefixes": lambda number: few[number % len(few)],
        "sample": lambda _: samples.filled(row[2]),
        "samples": lambda number: samples.filled(row[2], number),
        "near misses": lambda number: samples.filled(row[3], number),
        "command": lambda number: samples.filled(command, number).replace("{p}", f"hunter{number}x"),
        "named": lambda number: samples.filled(named, number),
    }
    return forms[kind]
