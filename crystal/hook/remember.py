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
    """Return True unless marked words are no text, a value of code, or said of the agent's present work."""
    lowered = words.replace("\u2019", "'").lower()
    if not any(letter.isalnum() for letter in words) or lowered in lists.LITERALS or lowered.startswith(lists.ROLE):
        return False
    return not _has_phrase(lowered.split(), lists.THIS_WORK)


def _marked_words(rest: str) -> "str | None":
    """Return the words behind a colon, a dash or a line break that sets them off; None without such a mark."""
    inline = rest.lstrip(" \t\u3000")
    if inline[:1] in lists.DASHES and inline[1:2].isspace():
        return _trimmed(inline[1:]).rstrip()
    head, line = "", inline.split("\n", 1)[0]
    at = min((place for place in (line.find(colon) for colon in lists.COLONS) if place >= 0), default=-1)
    if at >= 0:
        head, tail = line[:at], inline[at + 1 :]
    elif "\n" in inline:
        head, tail = line, inline.split("\n", 1)[1]
    if (at >= 0 or "\n" in inline) and " ".join(head.lower().split()).strip(" ,\r") in lists.MARKED:
        return _without_that(_trimmed(tail)).rstrip()
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
    if not any(letter.isalnum() for letter in words) or rest.startswith(lists.CHINESE_REMEMBERED):
        return None
    is_marked = rest.lstrip(lists.SPACES)[:1] in ("\uff1a", ":", *lists.DASHES)
    is_refused = words.startswith(lists.CHINESE_REFUSED_BEGINS) or any(one in words for one in lists.CHINESE_REFUSED)
    is_lasting = any(one in words for one in lists.CHINESE_LASTING)
    return (words, False) if is_marked or (is_lasting and not is_refused) else None


def _after(text: str, word: str) -> "str | None":
    """Return what stands behind a word that a text begins with, in any case; None when it begins otherwise."""
    rest = text[len(word) :]
    ends = not rest or rest[0].isspace() or rest[0] in lists.MARKS or (rest[0] in lists.DASHES and rest[1:2].isspace())
    return rest if ends and text[: len(word)].lower() == word else None


def _trimmed(text: str) -> str:
    return text.lstrip(lists.SPACES + ":\uff1a,\uff0c\u3001").lstrip()


# ------------------------------------------------------------------------------------------------- what lasts


def _is_lasting(words: str, *, is_explicit: bool) -> bool:
    """Return True if words without a mark state something that lasts: no question, no task, no passing state.

    ``is_explicit`` tells ``remember that``, which may be followed by more.
    """
    raw = words.replace("\u2019", "'").split()
    if any(word.rstrip("\"')*_.!").endswith(("?", "\uff1f")) for word in raw):
        return False
    bare = [_bare(word) for word in raw]
    is_standing = _has_phrase(bare, lists.STANDING)
    if (_has_phrase(bare, lists.PASSING) and not (is_standing and bare[0] in ("to", "always"))) or (
        "now" in bare and not is_explicit
    ):
        return False
    clauses = _clauses(words)
    if clauses[0].mark == ":":
        return _is_label(clauses[0].words) and len(clauses) > 1
    if any(_asks_for_work(clause, is_explicit=is_explicit) for clause in clauses):
        return False
    statement = _Statement(clauses[0].words, raw, is_explicit=is_explicit, is_standing=is_standing)
    if statement.points_at_work() or ("you" in bare and not (statement.is_standing or is_explicit)):
        return False
    return statement.is_lasting()


def _has_phrase(bare: "list[str]", phrases: "tuple[str, ...]") -> bool:
    spoken = f" {' '.join(word for word in bare if word)} "
    return any(f" {phrase} " in spoken for phrase in phrases)


class _Clause:
    """The words between two marks; ``mark`` ends it; ``begins_sentence`` tells a new sentence from a part of one."""

    def __init__(self, *, is_first: bool, begins_sentence: bool) -> None:
        self.words: list[str] = []
        self.mark = ""
        self.is_first = is_first
        self.begins_sentence = begins_sentence


def _clauses(text: str) -> "list[_Clause]":
    current = _Clause(is_first=True, begins_sentence=False)
    found = [current]
    for line in text.replace("\u2019", "'").split("\n"):
        for word in line.split():
            bare = _bare(word)
            if bare:
                current.words.extend(_apart(bare))
            last = "" if bare in lists.SHORTENED else word.rstrip("\"')*_`")[-1:]
            if current.words and (last in ",;.!:" or word in lists.DASHES or word == "--"):
                current.mark = last if word not in lists.DASHES else "-"
                current = _Clause(is_first=False, begins_sentence=last in ".!")
                found.append(current)
        if current.words:
            current.mark = "\n"
            current = _Clause(is_first=False, begins_sentence=True)
            found.append(current)
        else:
            current.begins_sentence = True
    return [clause for clause in found if clause.words] or [found[0]]


def _bare(word: str) -> str:
    return word.strip("\"'()[]{}*_.,;:!`<>\u201c\u201d-\u2013\u2014").lower()


def _apart(word: str) -> "list[str]":
    """Return ``we're`` as two words."""
    for end, verb in (("'re", "are"), ("'m", "am"), ("'ve", "have"), ("'ll", "will"), ("'d", "would")):
        if word.endswith(end):
            return [word[: -len(end)], verb]
    return [word]


def _asks_for_work(clause: _Clause, *, is_explicit: bool) -> bool:
    """Return True if a clause tells the agent to do something now."""
    words = clause.words
    for before, word, after in zip(words, words[1:], [*words[2:], ""], strict=False):
        is_order = word in lists.ACTIONS or word in lists.SOFT_ACTIONS if is_explicit else word not in lists.SUBJECTS
        if before in ("so", "then") and word != "that" and is_order:
            return True
        if before in ("and", "but") and word in lists.ACTIONS and after in lists.OBJECTS:
            return True
    if clause.is_first:
        return False
    start = next((word for word in words if word not in ("and", "but", "so", "also", "thus", "hence", "or")), "")
    if start in lists.ACTIONS:
        return True
    return clause.begins_sentence and start not in lists.SUBJECTS


def _is_label(words: "list[str]") -> bool:
    """Return True for the name of a value that a colon ends: ``our staging port``."""
    if words[:2] == ["how", "to"]:
        return True
    is_named = words[0] in ("our", "my") or words[-1] == "rule"
    return is_named and 1 < len(words) <= 5 and not lists.NO_LABELS & set(words)


class _Statement:
    """A first clause in lower case, the whole text as it was written, and how it was introduced."""

    def __init__(self, words: "list[str]", raw: "list[str]", *, is_explicit: bool, is_standing: bool) -> None:
        self.words = words
        self.raw = raw
        self.is_explicit = is_explicit
        self.is_standing = is_standing

    def is_lasting(self) -> bool:
        """Return True if it begins with a subject of whom something lasting is said."""
        words, start = self.words, self.words[0]
        if len(words) < 3:
            return False
        if start in ("always", "never"):
            return words[1] != "mind"
        if start == "to" or words[:2] == ["not", "to"]:
            return self.is_standing
        if start in ("i", "we"):
            return self._is_of_us()
        if start == "you":
            return words[1] in ("always", "never") or (words[1] in lists.REQUIREMENTS and self.is_standing)
        if start == "this":
            return self._is_of_whole()
        if start in lists.DETERMINERS:
            return self._is_of_thing()
        if start in lists.POINTING or start in lists.QUESTIONS or not self._may_be_name():
            return False
        return self._is_of_thing()

    def points_at_work(self) -> bool:
        """Return True for ``this function``, and for ``it`` in an order; ``this repo`` is all of the work."""
        words = self.words
        pairs = list(zip(words, [*words[1:], ""], strict=False))
        if any(word == "this" and after not in lists.WHOLES and place for place, (word, after) in enumerate(pairs)):
            return True
        return words[0] in ("always", "never", "to") and bool({"it", "that", "these", "those"} & set(words))

    def _is_of_us(self) -> bool:
        verb, after = self.words[1], self.words[2]
        if verb in ("don't", "only", "never", "always", "both", "mostly", "usually", "do"):
            return after in lists.HABITS or verb in ("never", "always") or (after == "not" and len(self.words) > 4)
        if verb in ("am", "are"):
            return self._is_of_us_being(after)
        if verb in lists.HABITS or (verb in lists.DECISIONS and self.words[0] == "we"):
            return self.is_explicit or after not in ("the", "a", "an", "it", "one") or self._is_proper(self.words[3:5])
        if verb in ("need", "have", "want", "must", "should", "can", "can't", "cannot"):
            return self.is_standing or (self.is_explicit and verb in ("must", "can't", "cannot"))
        return False

    def _is_of_us_being(self, after: str) -> bool:
        if after in lists.PASSING_STATES or after in ("going", "about", "trying", "almost", "here", "not", "in", "at"):
            return after == "in" and self._is_proper(self.words[3:4])
        if after.endswith("ing") or (after in ("only", "just") and self.words[3:4] and self.words[3].endswith("ing")):
            return after in ("using", "running", "targeting", "hosting", "supporting", "living")
        if after in ("on", "from"):
            return self.words[3:4] not in (["a"], ["it"], ["the"])
        return self.is_explicit or after in ("allergic", "vegetarian", "vegan", "based", "a", "an")

    def _is_of_whole(self) -> bool:
        """Return True for ``this repo uses``: what else is near is a part of the present work."""
        words = self.words
        if words[1] == "is":
            return words[2] in lists.KINDS or (
                words[2] in ("a", "an", "our", "my") and words[3:4] != [] and words[3] in lists.KINDS
            )
        return words[1] in lists.WHOLES and words[2].endswith("s") and not self._is_passing(2)

    def _is_of_thing(self) -> bool:
        """Return True if a noun is followed by a verb in the present, and by nothing that makes it a reference."""
        words = self.words
        start, is_own = words[0], words[0] in lists.OWN
        if (start in ("a", "an") and not self.is_explicit) or (start in lists.DETERMINERS and words[1] in lists.TASKS):
            return False
        first = 2 if start in lists.DETERMINERS else 1
        at = next((place for place, word in enumerate(words[first:8], first) if word in lists.VERBS), 0)
        if not at and self.is_explicit and start.endswith("s") and start not in ("is", "was", "has", "does", "his"):
            at = 1  # of things in the plural anything may be said
        if not at or at + 1 >= len(words) or lists.RELATIVE & set(words[1 : at + 1]):
            return False
        if self._is_passing(at):
            return False
        verb, after = words[at], words[at + 1]
        if self.is_standing or (is_own and (verb, after) != ("must", "be")):
            return True
        if self.is_explicit:
            is_task = (verb in ("need", "needs", "has", "have") and after == "to") or verb in ("can", "may", "might")
            return not is_task and not (verb in ("return", "returns") and after.isdigit())
        if start in lists.ENVIRONMENTS:
            return verb in lists.COPULAS or verb in lists.FACTS
        if verb in ("need", "needs"):
            return start not in lists.DETERMINERS and (after in lists.NUMBERS or after.isdigit())
        return (verb in lists.COPULAS or verb in lists.FACTS) and self._is_concrete(verb)

    def _is_concrete(self, verb: str) -> bool:
        """Return True if a name, a path, or a number of more than one digit stands behind the verb."""
        bare = [_bare(word) for word in self.raw]
        behind = self.raw[bare.index(verb) + 1 :] if verb in bare else []
        return any(
            any(map(str.isupper, word)) or any(mark in word for mark in "/@`") or sum(map(str.isdigit, word)) > 1
            for word in behind
        )

    def _is_passing(self, at: int) -> bool:
        after = [
            word
            for word in self.words[at + 1 : at + 4]
            if word not in ("not", "very", "really", "too", "so", "only", "just")
        ]
        if self.words[at] not in lists.COPULAS or not after:
            return False
        return after[0] in lists.PASSING_STATES or (after[0].endswith("ing") and len(after[0]) > 5)

    def _is_proper(self, words: "list[str]") -> bool:
        """Return True for a word that was written with a capital letter."""
        return any(_bare(one) == word and _first_letter(one).isupper() for word in words for one in self.raw[1:])

    def _may_be_name(self) -> bool:
        """Return True if a word without an article may be what a statement is about."""
        start, raw = self.words[0], self.raw[0]
        if self.is_explicit:
            return start not in lists.MOMENTS or self.words[1].endswith("s")
        is_code = any(mark in raw for mark in './_`0123456789"\u201c') and not raw.startswith(("(", "_", ".", "="))
        return start in lists.ENVIRONMENTS or raw[:1].isupper() or start.endswith("s") or is_code


def _first_letter(word: str) -> str:
    return next((letter for letter in word if letter.isalnum()), "")
