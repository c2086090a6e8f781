"""Replace the tokens of a question by the times that they name."""

from __future__ import annotations

from datetime import datetime

from crystal.timewords import meanings
from crystal.timewords.lexicon import Tags, lexicon, patterns
from crystal.timewords.phrase import PhraseMatch
from crystal.timewords.time_tokens import TimeToken


def find(tokens: list[TimeToken], now: datetime) -> list[TimeToken]:
    """Replace the matches of each pattern, one pattern after another, by single tokens; return the tokens of times."""
    symbols = lexicon().symbols
    text = "".join(symbols[frozenset(token.tags)] for token in tokens)
    for pattern, names, meaning in patterns():
        at = 0
        while match := pattern.search(text, at):
            at, end = match.span()
            tags = _tags(meaning, PhraseMatch(tokens, match, names, now))
            if tags:
                tokens[at:end] = [TimeToken("", tokens[at].start, tokens[end - 1].end, tags)]
                text = text[:at] + symbols[frozenset(tags)] + text[end:]
            at += 1
    return [token for token in tokens if token.has("time")]


def _tags(meaning: str, phrase: PhraseMatch) -> Tags:
    """Return the tags of a time, or tags that hide an impossible one, such as 30 February; empty for other words."""
    try:
        found = getattr(meanings, meaning)(phrase)
    except (ValueError, OverflowError):
        return {"hidden": ""}
    if found is None:
        return {}
    if not found.readings:
        return {"hidden": ""}
    return {"time": found, "weekday_time": found} if found.is_weekday else {"time": found}
