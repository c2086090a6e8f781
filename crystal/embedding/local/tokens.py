"""Texts to tokens for any model: BERT's uncased WordPiece by crystal's own code, everything else by ``tokenizers``.

Special tokens are never read from a text in the first case; the second does what the model's own ``tokenizer.json``
says. Both cut a text that is too long at its end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from crystal.embedding.wordpiece import WordPiece
from crystal.errors import Damaged, NotConfigured
from crystal.packages import LOCAL_MODELS, install_command


@dataclass(frozen=True, slots=True)
class Encoded:
    """A text as tokens; ``begin`` and ``end`` enclose those of the text itself, without the special ones."""

    ids: list[int]
    begin: int
    end: int


class Tokenizer(Protocol):
    """Makes tokens of texts, with the special ones of its model around them."""

    def encode(self, text: str, most: int) -> Encoded:
        """The tokens of a text, at most ``most``. Any string is taken."""


class WordPieceTokenizer:
    """The tokens of an uncased BERT.

    Raises:
        Damaged: The vocabulary lacks a token that marks the beginning or the end, or what is unknown.
    """

    def __init__(self, vocabulary: list[str], place: Path) -> None:
        try:
            unknown, self._begin, self._end = (vocabulary.index(token) for token in ("[UNK]", "[CLS]", "[SEP]"))
        except ValueError as error:
            raise Damaged(
                f"{place} is not the vocabulary of a BERT: {error}", hint="install the model again"
            ) from error
        self._words = WordPiece(vocabulary, unknown)

    def encode(self, text: str, most: int) -> Encoded:
        """See ``Tokenizer``."""
        ids = self._words.encode(text)[: most - 2]
        return Encoded([self._begin, *ids, self._end], 1, 1 + len(ids))


class LibraryTokenizer:
    """The tokens that a ``tokenizer.json`` describes.

    Raises:
        NotConfigured: The package ``tokenizers`` is missing.
        Damaged: The file is none of its files.
    """

    def __init__(self, path: Path) -> None:
        try:
            import tokenizers
        except ImportError as error:
            hint = install_command(*LOCAL_MODELS)
            raise NotConfigured("the package tokenizers is not installed", hint=hint) from error
        try:
            self._made = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises no narrower class
            raise Damaged(f"{path} cannot be understood", hint="install the model again") from error
        self._made.no_padding()
        self._most = 0

    def encode(self, text: str, most: int) -> Encoded:
        """See ``Tokenizer``."""
        if most != self._most:
            self._made.enable_truncation(most)
            self._most = most
        made = self._made.encode(text.encode("utf-8", "replace").decode())
        own = [place for place, is_special in enumerate(made.special_tokens_mask) if not is_special]
        return Encoded(list(made.ids), own[0] if own else 0, own[-1] + 1 if own else 0)


def read_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a model's folder.

    Raises:
        NotConfigured: The package ``tokenizers`` is needed and missing.
        Damaged: What is there cannot be understood.
    """
    described, listed = folder / "tokenizer.json", folder / "vocab.txt"
    if described.exists():
        vocabulary = _wordpiece_vocabulary(described)
        return WordPieceTokenizer(vocabulary, described) if vocabulary else LibraryTokenizer(described)
    return WordPieceTokenizer(listed.read_text("utf-8").rstrip("\n").split("\n"), listed)


def _wordpiece_vocabulary(path: Path) -> list[str] | None:
    """The vocabulary of a ``tokenizer.json`` that says what crystal's own code does; None for any other."""
    try:
        held: Mapping[str, Any] = json.loads(path.read_bytes())
        model, normalizer = held["model"], held["normalizer"] or {}
        vocabulary: dict[str, int] = model["vocab"]
        is_ours = (
            model.get("type", "WordPiece") == "WordPiece"
            and model.get("continuing_subword_prefix", "##") == "##"
            and normalizer.get("type") == "BertNormalizer"
            and normalizer.get("lowercase") is True
            and normalizer.get("strip_accents") is not False
            and normalizer.get("handle_chinese_chars", True) is True
            and held["pre_tokenizer"]["type"] == "BertPreTokenizer"
            and {"[UNK]", "[CLS]", "[SEP]"} <= vocabulary.keys()
            and sorted(vocabulary.values()) == list(range(len(vocabulary)))
        )
        return sorted(vocabulary, key=vocabulary.__getitem__) if is_ours else None
    except (KeyError, TypeError, AttributeError):
        return None
    except (ValueError, RecursionError, OSError) as error:
        raise Damaged(f"{path} cannot be understood", hint="install the model again") from error
