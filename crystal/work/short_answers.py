"""Say in words what a short answer stands for: the number of a choice, or a yes. Pure."""

from __future__ import annotations

import re

_CHOICE = re.compile(
    r"(?:(?:i (?:like|prefer|want|choose|pick)|let'?s (?:do|take|use)|(?:let'?s )?go (?:with|for)|do|take|use|ok|yes)"
    r"[ ,]+)?(?:(?:the )?(?:option|number|choice|variant|#) *)?\(?(\d{1,2}|[a-h])[).]*(?:[, ]+please)?[.! ]*",
    re.IGNORECASE,
)
_YES = re.compile(
    r"(?:(?:yes|yep|yeah|yup|y|ok|okay|sure|please|do (?:it|that|so|both)|do|go ahead|go for it)[,.! ]*){1,3}",
    re.IGNORECASE,
)
_ITEM = r"(?im)^[\s>*_#-]*(?:(?:option|choice|variant) +)?\(?{}[).:*_]+\s+(\S.*)$"
_QUESTION = re.compile(r"[^.!?\n]+\?")
_MARKS = " \t*_`#>-:"


def is_short(answer: str) -> bool:
    """Return True if an answer may stand for something else."""
    return len(answer) < 40 and bool(_CHOICE.fullmatch(answer.strip()) or _YES.fullmatch(answer.strip()))


def in_words(answer: str, said: str | None) -> str:
    """Return an answer with what it stands for: ``3: Use a queue``; unchanged if it stands for itself.

    Args:
        answer: What the user said.
        said: What the agent said before: a list, of which the answer names an item, or a question.
    """
    answer = answer.strip()
    choice, found = _CHOICE.fullmatch(answer), list[str]()
    if choice is not None:
        found = re.findall(_ITEM.format(choice[1]), said or "")
    elif _YES.fullmatch(answer):
        found = _QUESTION.findall(said or "")
    meant = found[-1].replace("**", "").strip(_MARKS) if found else ""
    return f"{answer.rstrip(' .!)')}: {meant}" if meant else answer
