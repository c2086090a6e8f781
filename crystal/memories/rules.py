"""Apply the rules for the texts, keys and projects of memories, and for their changes. Pure.

Every change makes a newer version, even if the clock was set back.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import cast, get_args

from crystal.errors import UsageError
from crystal.model.capture import Category, MemoryStatus
from crystal.model.quick_dataclass import replace
from crystal.model.recall import Remembered

MAX_TEXT = 8_000
MAX_GIVEN = 1_000_000
"""Maximum length of input; longer text is refused before redaction."""
MAX_KEY = 200
MAX_NAME = 200
MAX_TIME = 1 << 52
"""Maximum time of a version, in the year 144683."""

CATEGORIES: tuple[str, ...] = get_args(Category)
STATUSES: tuple[str, ...] = get_args(MemoryStatus)
MEMORY_ID = re.compile(r"mem-[0-9a-f]{12}")
MEMORY_BEGINNING = re.compile(r"mem-[0-9a-f]{0,12}")

_LEFT_OUT = re.compile(r"\[redacted:[^\]\s]*\]|\[private\]|\[recalled\]")

CleanText = Callable[[str], tuple[str, Mapping[str, int]]]
CleanLine = Callable[[bytes], tuple[bytes, Mapping[str, int]]]


def is_memory_id(text: str) -> bool:
    """Return True if a text is a memory's id or a prefix of one."""
    return MEMORY_BEGINNING.fullmatch(text.strip().lower()) is not None


def cleaned_text(text: str, clean: CleanText) -> str:
    """Return the text as it is stored: valid Unicode without NUL, surrounding white space and secrets.

    Raises:
        UsageError: It is empty, too long, or empty after redaction.
    """
    plain = _storable(text).strip()
    if not plain:
        raise UsageError("the text is empty", hint='try: crystal remember "we deploy on Fridays"')
    _refuse_long(plain, MAX_GIVEN)
    kept, findings = clean(plain)
    kept = kept.strip()
    if findings and not any(character.isalnum() for character in _LEFT_OUT.sub("", kept)):
        what = ", ".join(sorted(findings))
        raise UsageError(
            f"not remembered: the text is nothing but {what}",
            hint="crystal stores no secrets; remember where it is kept instead",
        )
    _refuse_long(kept, MAX_TEXT)
    return kept


def is_as_given(kept: str, asked: str) -> bool:
    """Return True if a text is stored as given: nothing was redacted."""
    return unicodedata.normalize("NFC", kept) == unicodedata.normalize("NFC", _storable(asked).strip())


def cleaned_key(key: str, clean: CleanText) -> str:
    """Return the key as it is stored and looked up: NFC, without surrounding white space, case preserved.

    Raises:
        UsageError: It is empty, too long, or has invalid characters.
    """
    plain = _cleaned_line("the key", key, MAX_KEY, "give a name: --key user_name")
    if clean(plain)[1]:
        raise UsageError("the key holds a secret", hint="give it another name")
    return plain


def refuse_named_secret(key: str, text: str, clean_line: CleanLine) -> None:
    """Refuse a value that the key's name identifies as a secret: ``db_password``.

    Raises:
        UsageError: The key's name says that the value is a secret.
    """
    findings = clean_line(json.dumps({key: text}, ensure_ascii=False).encode())[1]
    if findings:
        raise UsageError(
            f"the value of {key!r} is a secret ({', '.join(sorted(findings))}), which crystal does not keep",
            hint="remember where it is kept instead",
        )


def cleaned_name(name: str, clean: CleanText) -> str:
    """Return the name of a project as it is stored.

    Raises:
        UsageError: It is empty, too long, or has invalid characters.
    """
    hint = "give its name or its folder"
    plain = _cleaned_line("the project's name", name, MAX_NAME, hint)
    if clean(plain)[1]:
        raise UsageError("the project's name has characters that are not allowed", hint=hint)
    return plain


def _cleaned_line(what: str, text: str, most: int, hint: str) -> str:
    plain = unicodedata.normalize("NFC", text).strip()
    if not plain:
        raise UsageError(f"{what} is empty", hint=hint)
    if len(plain) > most:
        raise UsageError(f"{what} has {len(plain):,} characters, at most {most} are allowed", hint="shorten it")
    if any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in plain):
        raise UsageError(f"{what} has a control character", hint="use letters, digits and punctuation")
    return plain


def checked_category(category: str) -> Category:
    """Return the category for a word.

    Raises:
        UsageError: It is unknown.
    """
    return cast("Category", _one_of("category", category, CATEGORIES, ""))


def checked_status(status: str) -> MemoryStatus:
    """Return the status for a word.

    Raises:
        UsageError: It is unknown.
    """
    return cast("MemoryStatus", _one_of("status", status, STATUSES, ", or all"))


def _one_of(what: str, word: str, known: tuple[str, ...], more: str) -> str:
    plain = word.strip().lower()
    if plain not in known:
        raise UsageError(f"there is no {what} {word!r}", hint=f"use {', '.join(known)}{more}")
    return plain


def changed(one: Remembered, now: int, **fields: object) -> Remembered:
    """Return the next version of a memory, which is newer than the previous one even if the clock is not."""
    moment = min(max(now, one.updated_at + 1), MAX_TIME)
    return replace(one, updated_at=moment, **fields)  # type: ignore[arg-type] # fields of Remembered


def _refuse_long(text: str, most: int) -> None:
    if len(text) > most:
        raise UsageError(
            f"the text has {len(text):,} characters, a memory has at most {MAX_TEXT:,}",
            hint="shorten it, or remember it in parts",
        )


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
