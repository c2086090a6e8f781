"""Decide whether a prompt that begins with ``remember`` asks to keep a memory, and which words of it.

``main.py`` imports it as a module of its own, without the package and only for prompts that may begin so: it uses
nothing but strings, because importing ``re`` takes as long as all the rest of the hook.
A prompt is taken when it is marked (a colon, a dash, a line break after the word) or states something that lasts.
In doubt it is not taken: a colon makes it a memory. The rules are in docs/how-to/start-with-context.md.
"""

import os

# ``main.py`` runs without the package.
lists = __import__("crystal.hook.remember_words", fromlist=["*"]) if __package__ else __import__("remember_words")


def asked(prompt: str) -> "dict[str, object] | None":
    """Return what a prompt asks to remember, as the note says it; None if it asks for nothing.

    ``words`` are None when there are more than 8,000 characters; ``id`` is the id that the memory gets.
    """
    found = words_to_remember(prompt)
    if found is None:
        return None
    words, everywhere = found
    kept = words if len(words) <= lists.MAX_CHARS else None
    return {"words": kept, "length": len(words), "everywhere": everywhere, "id": f"mem-{os.urandom(6).hex()}"}


def words_to_remember(prompt: str) -> "tuple[str, bool] | None":
    """Return what a prompt asks to remember, and whether it holds everywhere; None if it asks for nothing."""
    text = prompt.lstrip("\ufeff" + lists.SPACES).lstrip()
    for begin in lists.CHINESE_BEGINS:
        if text.startswith(begin):
            return _chinese_wish(text[len(begin) :])
    polite = _after(text, "please")
    rest = _after(text if polite is None else polite.lstrip(lists.SPACES + ",\uff0c"), "remember")
    return None if rest is None else _english_wish(rest)


def _english_wish(rest: str) -> "tuple[str, bool] | None":
    everywhere = _after(rest.lstrip(lists.SPACES + lists.MARKS), "everywhere") is not None
    marked = _marked_words(rest)
    if marked is not None:
        return (marked, everywhere) if _is_kept_as_marked(marked) else None
    words = _trimmed(rest)
    words = _trimmed(_after(words, "everywhere") or words) if everywhere else words
    explicit = _after(words, "that")
    if explicit is not None:
        words = _trimmed(explicit)
    words = words.rstrip()
    if not any(letter.isalnum() for letter in words):
        return None
    if not _is_lasting(words, is_explicit=explicit is not None):
        return None
    return words, everywhere


def _is_kept_as_marked(words: str) -> bool:
    """Return True unless marked words are no text, a value of code, or said of the agent and its present work."""
    said = _Statement(words, is_explicit=True)
    if not any(letter.isalnum() for letter in words) or " ".join(said.raw).lower() in lists.LITERALS:
        return False
    is_to_agent = said.words[:1] in (["you"], ["your"]) and not said.is_standing
    is_of_task = len(said.words) > 1 and said.words[0] == "the" and said.words[1] in lists.TASKS
    is_now = _is_doing(said.words) or words.endswith(":") or any(clause[:1] == ["now"] for _, clause in said.clauses)
    return not (is_to_agent or is_of_task or is_now or _has_phrase(said.bare, lists.THIS_WORK))


def _is_doing(words: "list[str]") -> bool:
    return len(words) > 2 and words[1] in ("am", "are") and words[2].endswith("ing") and words[2] not in lists.TRAITS


def _marked_words(rest: str) -> "str | None":
    """Return the words behind a colon, a dash or a line break that sets them off; None without such a mark."""
    inline = rest.lstrip(" \t\u3000")
    if inline[:1] in lists.DASHES and inline[1:2].isspace():
        return _trimmed(inline[1:]).rstrip()
    line = inline.split("\n", 1)[0]
    ends = [place for place in map(line.find, lists.COLONS) if place >= 0]
    at = min(ends, default=len(line))
    if at < len(inline) and " ".join(inline[:at].lower().split()).strip(" ,\r") in lists.MARKED:
        return _without_that(_trimmed(inline[at + 1 :])).rstrip()
    lowered = line.lower().lstrip(" ,")
    for phrase in lists.FUTURE:
        if lowered.startswith(phrase) and lowered[len(phrase) :][:1] in (",", " "):
            return _trimmed(inline.lstrip(" ,")[len(phrase) :]).rstrip()
    return None


def _without_that(words: str) -> str:
    for opening in ("everywhere", "that"):
        words = _trimmed(_after(words, opening) or words)
    return words


def _chinese_wish(rest: str) -> "tuple[str, bool] | None":
    words = _trimmed(rest.lstrip(lists.SPACES).lstrip("-\u2013\u2014")).rstrip()
    is_marked = rest.lstrip(lists.SPACES)[:1] in (*lists.COLONS, *lists.DASHES)
    is_refused = words.startswith(lists.CHINESE_REFUSED_BEGINS) or any(one in words for one in lists.CHINESE_REFUSED)
    is_lasting = any(one in words for one in lists.CHINESE_LASTING)
    is_taken = is_marked or (is_lasting and not is_refused)
    return (words, False) if is_taken and any(letter.isalnum() for letter in words) else None


def _after(text: str, word: str) -> "str | None":
    """Return what stands behind a word that a text begins with, in any case; None when it begins otherwise."""
    rest = text[len(word) :]
    ends = not rest or rest[0].isspace() or rest[0] in lists.MARKS
    return rest if ends and text[: len(word)].lower() == word else None


def _trimmed(text: str) -> str:
    return text.lstrip(lists.SPACES + ":\uff1a,\uff0c\u3001").lstrip()


# ------------------------------------------------------------------------------------------------- what lasts


def _is_lasting(text: str, *, is_explicit: bool) -> bool:
    """Return True if words without a mark state something that lasts: no question, no task, no passing state.

    ``is_explicit`` tells ``remember that``, which may be followed by more.
    """
    said = _Statement(text, is_explicit=is_explicit)
    words = said.words
    if _is_question(said) or _is_passing(said):
        return False
    if said.clauses[1][0] == ":":
        return _is_label(words) and any(behind for _, behind in said.clauses[1:])
    if len(words) < 3 or _asks_for_work(said) or _points_at_work(said):
        return False
    lasts = _BEGINNINGS.get(words[0], _is_of_thing)
    return lasts(said)


class _Statement:
    """A text with its words as they were written, its clauses, and the words of the first clause."""

    def __init__(self, text: str, *, is_explicit: bool) -> None:
        text = text.replace("\u2019", "'")
        self.raw = text.split()
        self.bare = [_bare(word) for word in self.raw]
        self.clauses = _clauses(text)
        self.words = self.clauses[0][1]
        self.is_explicit = is_explicit
        self.is_standing = _has_phrase(self.bare, lists.STANDING)

    def has_capital(self, word: str) -> bool:
        return any(_bare(one) == word and one != one.lower() for one in self.raw[1:])


def _clauses(text: str) -> "list[tuple[str, list[str]]]":
    """Return the words between two marks, each time with the mark before them; a last one may be empty."""
    found: list[tuple[str, list[str]]] = [("", [])]
    for line in text.split("\n"):
        for word in line.split():
            bare = _bare(word)
            found[-1][1].extend(_apart(bare) if bare else ())
            last = "" if bare in lists.SHORTENED else word.rstrip("\"')*_`")[-1:]
            if found[-1][1] and (last in tuple(",;.!:") or word in lists.DASHES):
                found.append((last, []))
        found.append(("\n", []))
    return found


def _bare(word: str) -> str:
    return word.strip("\"'()[]{}*_.,;:!`<>\u201c\u201d-\u2013\u2014").lower()


def _apart(word: str) -> "list[str]":
    """Return ``we're`` as two words."""
    for end, verb in (("'re", "are"), ("'m", "am"), ("'ve", "have"), ("'ll", "will"), ("'d", "would")):
        if word.endswith(end):
            return [word[: -len(end)], verb]
    return [word]


def _has_phrase(bare: "list[str]", phrases: "tuple[str, ...]") -> bool:
    spoken = f" {' '.join(word for word in bare if word)} "
    return any(f" {phrase} " in spoken for phrase in phrases)


# --- what is refused


def _is_question(said: _Statement) -> bool:
    return any(word.rstrip("\"')*_.!").endswith(("?", "\uff1f")) for word in said.raw)


def _is_passing(said: _Statement) -> bool:
    is_order = said.is_standing and said.bare[0] in ("to", "always")
    is_about_now = "now" in said.bare and not said.is_explicit
    return is_about_now or (_has_phrase(said.bare, lists.PASSING) and not is_order)


def _asks_for_work(said: _Statement) -> bool:
    """Return True if a clause tells the agent to do something now."""
    for place, (mark, words) in enumerate(said.clauses):
        for before, word, after in zip(words, words[1:], [*words[2:], ""], strict=False):
            is_order = word in lists.ACTIONS if said.is_explicit and words[0] != "the" else word not in lists.SUBJECTS
            if before in ("so", "then") and is_order:
                return True
            if before in ("and", "but") and word in lists.ACTIONS and after in lists.OBJECTS:
                return True
        start = next((word for word in words if word not in lists.CONJUNCTIONS), "that")
        if place and (start in lists.ACTIONS or (mark in ".!\n" and start not in lists.SUBJECTS)):
            return True
    return False


def _points_at_work(said: _Statement) -> bool:
    """Return True for ``this function``, for ``it`` in an order, and for what is said to or of the agent.

    ``this repo`` is all of the work.
    """
    words = said.words
    if any(
        word == "this" and after not in lists.WHOLES for word, after in zip(words[1:], [*words[2:], ""], strict=False)
    ):
        return True
    if words[0] in ("always", "never", "to"):
        return bool({"it", "that", "these", "those"} & set(words))
    if "your" in said.bare and not said.is_standing:
        return True
    return "you" in said.bare and not (said.is_standing or said.is_explicit)


# --- what is taken, by the first word


def _is_label(words: "list[str]") -> bool:
    """Return True for the name of a value that a colon ends: ``our staging port``."""
    is_named = words[0] in ("our", "my") or words[-1] == "rule"
    return words[:2] == ["how", "to"] or (is_named and 1 < len(words) <= 5 and not lists.NO_LABELS & set(words))


def _is_of_us(said: _Statement) -> bool:
    """Return True for what ``we`` or ``I`` do as a rule, have decided, or are."""
    words = [word for word in said.words if word not in lists.ADVERBS]
    verb, after = (*words[1:3], "", "")[:2]
    if verb in ("am", "are"):
        return _is_of_us_being(said, words[2:])
    if verb in lists.HABITS or (verb in lists.DECISIONS and (said.is_explicit or words[0] == "we")):
        is_general = after not in ("the", "a", "an", "it", "one") or any(map(said.has_capital, words[3:5]))
        return is_general or said.is_explicit or said.is_standing
    if said.is_standing and (verb in lists.NEEDS or said.words[1] in ("never", "always")):
        return True
    return said.is_explicit and verb in ("must", "can't", "cannot")


def _is_of_us_being(said: _Statement, words: "list[str]") -> bool:
    state, after = (*words[:2], "", "")[:2]
    if state in lists.TRAITS:
        return True
    if state in ("in", "on", "from"):
        return said.has_capital(after)
    return said.is_explicit and not state.endswith("ing") and state not in lists.PASSING_STATES


def _is_of_whole(said: _Statement) -> bool:
    """Return True for ``this repo uses``: what else is near is a part of the present work."""
    words = said.words
    if words[1] == "is":
        return bool(lists.KINDS & set(words[2:4]))
    return words[1] in lists.WHOLES and words[2].endswith("s") and not _is_state(words[2:])


def _is_of_thing(said: _Statement) -> bool:
    """Return True if a noun is followed by a verb in the present, and by nothing that makes it a reference."""
    words, start = said.words, said.words[0]
    is_determined = start in lists.DETERMINERS
    if words[1] in lists.TASKS if is_determined else not _may_be_name(said):
        return False
    at = next((place for place, word in enumerate(words[:8]) if word in lists.VERBS and place > is_determined), 0)
    if not at and said.is_explicit and start.endswith("s") and said.raw[0][:1].islower():
        at = 1  # of things in the plural anything may be said
    if not 0 < at < len(words) - 1 or lists.RELATIVE & set(words[1 : at + 1]) or _is_state(words[at:]):
        return False
    verb, after = words[at], words[at + 1]
    if said.is_standing or (start in lists.OWN and (verb, after) not in lists.WISHES):
        return True
    if said.is_explicit and start not in lists.ARTICLES:
        return (verb, after) not in lists.TASK_VERBS
    if said.is_explicit:
        return (verb, after) not in lists.TASK_VERBS and (_is_concrete(said, verb) or verb in lists.DUTIES_OF_THINGS)
    if start in lists.ENVIRONMENTS:
        return verb in lists.FACTS
    if verb in ("need", "needs"):
        return not is_determined and after in lists.NUMBERS
    return verb in lists.FACTS and _is_concrete(said, verb)


def _may_be_name(said: _Statement) -> bool:
    """Return True if a word without an article may be what a statement is about."""
    start, raw = said.words[0], said.raw[0]
    is_this_one = start in lists.TASKS and said.words[1] in lists.VERBS  # ``that PR needs``, not ``that test data``
    if start in lists.POINTING or start in lists.LITERALS or is_this_one or len(start) == 1:
        return False
    is_code = any(mark in raw for mark in './_`0123456789"\u201c')
    return said.is_explicit or start in lists.ENVIRONMENTS or raw[:1].isupper() or start.endswith("s") or is_code


def _is_state(words: "list[str]") -> bool:
    """Return True if a verb, the first word, says what something is for a while."""
    after = next((word for word in words[1:4] if word not in lists.FILLERS), "")
    return words[0] in lists.COPULAS and (after in lists.PASSING_STATES or after.endswith("ing"))


def _is_concrete(said: _Statement, verb: str) -> bool:
    """Return True if a name, a path, or a number of more than one digit stands behind the verb."""
    behind = said.raw[said.bare.index(verb) + 1 :] if verb in said.bare else []
    return any(
        word != word.lower() or any(mark in word for mark in "/@`") or sum(map(str.isdigit, word)) > 1
        for word in behind
    )


def _is_rule(said: _Statement) -> bool:
    return said.words[1] != "mind"


def _is_standing_order(said: _Statement) -> bool:
    return said.is_standing


def _is_duty(said: _Statement) -> bool:
    return said.is_standing and said.words[1] in lists.DUTIES


_BEGINNINGS = {
    "always": _is_rule,
    "never": _is_rule,
    "to": _is_standing_order,
    "not": _is_standing_order,
    "you": _is_duty,
    "i": _is_of_us,
    "we": _is_of_us,
    "this": _is_of_whole,
}
"""What may be said after a first word; any other word is a thing, of which something is said."""
