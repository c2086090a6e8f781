"""Decide whether a prompt asks to remember something for later, and which words of it.

``event.py`` imports it as a top-level module, without the package, and only for few prompts: it uses
only strings, because importing ``re`` takes as long as all the rest of the hook.
Precision comes first: a prompt is accepted only in a few forms that nearly always mean this, and never if it may be
about the present work. The forms are in docs/how-to/start-with-context.md.
"""

import os

MAX_CHARS = 8_000
KEEP, DOUBT = "keep", "doubt"
SPACES = " \t\r\n\u3000"
MARKS, DASHES = ":\uff1a,\uff0c", ("-", "\u2013", "\u2014")


def _words(text: str) -> "frozenset[str]":
    return frozenset(text.split())


CHINESE = tuple(polite + word for polite in ("", "\u8bf7", "\u8acb") for word in ("\u8bb0\u4f4f", "\u8a18\u4f4f"))
CHINESE_SUBJECTS = tuple("我们 我們 我喜 我用 我住 我是 我不 我叫 我偏 我讨 我討 所有 每 永 总是 總是".split())
CHINESE_NOW = tuple(
    "\uff1f ? 吗 嗎 刚 剛 上次 昨天 今天 现在 現在 这 這 帮 幫 修 改 先 然后 然後 接着 接著 下来 下來".split()
)
LATER = (
    "for next time|for the next time|next time|for later|for the future|for future sessions|for all sessions"
    "|for future reference|from now on|going forward|in future|in the future|everywhere"
).split("|")
LABEL = _words(
    " ".join([*LATER, "this that these following rule rules fact facts always please session repo project team"])
)
"""Words that may be between ``remember`` and a colon."""
PRESENT = _words(
    """now today tonight tomorrow yesterday currently still again already yet anymore earlier previous previously last
    above attached here just ago then back task tasks step line when if while there's it's was were did had
    deadline option version same too"""
)
"""Words that refer to the present work, the past, or a single case."""
STATES = _words("broken failing red green down slow missing wrong flaky done ready open stuck late empty behind should")
WHOLES = _words("repo repository project codebase monorepo team company machine laptop")
MORE = _words("we not never always no don't only because since except even unless")
"""Words that may continue a statement after a comma; any other may begin a task."""
OURS = ("we", "i", "our", "my", "this")
ORDERS = ("always", "never", "to", "not", "you")
ONE = ("the", "a", "an", "it", "to")
"""Words after a verb that refer to one thing, not to things of a kind."""
HABITS = _words(
    """use prefer like love hate dislike deploy write call name host build follow keep treat support target squash
    sign speak pin document release review ship run test commit"""
)
DECISIONS = _words("decided chose switched moved stopped dropped want")
NAMING = _words("is are uses use runs run lives live listens comes come")
ROLES = _words("is owns maintains approves reviews signs leads")
LASTING = _words("our my this staging prod production qa company team customers office policy legal law vendor")
"""Subjects of statements about the world around the code, which changes less than the code."""
ADVERBS = _words("don't only both mostly usually not never always")
BEFORE_ATTRIBUTES = _words("is are be get gets not never always a an the our my and by")


def asked(prompt: str) -> "dict[str, object] | None":
    """Return what a prompt asks to remember, as the note has it; None if it does not ask.

    ``words`` is None if there are more than 8,000 characters; ``id`` is the id that the memory gets.
    If it is uncertain whether the prompt asks, the result has only ``doubt``.
    """
    verdict, words, everywhere = judged(prompt)
    if verdict == KEEP:
        kept = words if len(words) <= MAX_CHARS else None
        return {"words": kept, "length": len(words), "everywhere": everywhere, "id": f"mem-{os.urandom(6).hex()}"}
    return {"doubt": True} if verdict == DOUBT else None


def judged(prompt: str) -> "tuple[str | None, str, bool]":
    """Return ``KEEP``, ``DOUBT`` or None; the words to keep; and whether they apply everywhere."""
    openings = [*"please pls also just ok hey".split(), *LATER]
    text, is_later = _without_openings(prompt.lstrip("\ufeff" + SPACES), openings)
    for begin in CHINESE:
        if text.startswith(begin):
            return _judge_chinese(text[len(begin) :])
    rest = _after(text, "remember")
    if rest is None:
        return None, "", False
    everywhere = _after(_trimmed(rest), "everywhere") is not None
    label, behind = _label(rest)
    words, is_later_too = _without_openings(_trimmed(behind), ["please", *LATER])
    is_later = is_later or is_later_too or any(phrase in (label or "") for phrase in LATER)
    that = _after(words, "that")
    words = (words if that is None else _trimmed(that)).rstrip()
    if not any(letter.isalnum() for letter in words):
        return None, "", False
    said = _Statement(words)
    verdict = KEEP if is_later else _verdict(said, label, that is not None)
    return None if said.is_question else verdict, words, everywhere


def _verdict(said: "_Statement", label: "str | None", has_that: bool) -> "str | None":
    if label is not None:
        is_kept = not said.is_of_now() and (label or _is_lasting(said, has_that=True))
        return KEEP if is_kept else DOUBT
    if len(said.words) < 3 or said.is_of_now():
        return None
    if said.goes_on() and not (has_that and said.words[0] == "i" and _is_habit(said, has_that)):
        return _verdict_on_all(said.sentences, has_that)
    if _is_lasting(said, has_that):
        return KEEP
    return DOUBT if has_that and said.words[0] not in ("we", "i") and not said.has_happened() else None


def _verdict_on_all(sentences: "list[str]", has_that: bool) -> "str | None":
    """Return KEEP for several sentences if each would be kept alone; DOUBT if the others may be a task."""
    if len(sentences) < 2 or _verdict(_Statement(sentences[0]), None, has_that) != KEEP:
        return None
    return KEEP if all(_verdict(_Statement(one), None, True) == KEEP for one in sentences[1:]) else DOUBT


def _without_openings(text: str, openings: "list[str]") -> "tuple[str, bool]":
    """Return a text without its opening words, and whether one of them says that it applies later."""
    for opening in openings:
        behind = _after(text, opening)
        if behind is not None:
            text, is_later = _without_openings(_trimmed(behind), openings)
            return text, is_later or opening in LATER
    return text, False


def _label(rest: str) -> "tuple[str | None, str]":
    """Return the label before a colon or the end of a line, and the rest; a dash counts as a colon without label."""
    inline = rest.lstrip(" \t\u3000")
    if inline[:1] in DASHES and inline[1:2].isspace():
        return "", inline[1:]
    ends = [at for at in map(inline.find, (":", "\uff1a", "\n")) if at >= 0]
    at = min(ends, default=0)
    label = inline[:at].lower().replace(",", " ").split()
    if not ends or not LABEL.issuperset(label):
        return None, rest
    return " ".join(label or ["this"] if inline[at] == "\n" else label), inline[at + 1 :]


def _judge_chinese(rest: str) -> "tuple[str | None, str, bool]":
    words = _trimmed(rest).lstrip("".join(DASHES) + SPACES).rstrip()
    is_marked = rest.lstrip(SPACES)[:1] in (*MARKS, *DASHES)
    is_of_now = any(word in words for word in CHINESE_NOW)
    is_kept = not is_of_now and (is_marked or words.startswith(CHINESE_SUBJECTS)) and any(map(str.isalnum, words))
    return (KEEP if is_kept else None), words, False


def _is_lasting(said: "_Statement", has_that: bool) -> bool:
    """Return True for a standing order, and for a statement about something that lasts."""
    first, after = (*said.words[:2], "")[:2]
    if said.is_standing and (has_that or first in (*OURS, *ORDERS)):
        return _is_standing_order(said) if first in ORDERS else not said.verb.endswith("ed")
    if first in ("we", "i"):
        return _is_habit(said, has_that)
    if said.has_happened():
        return False
    return _is_of_ours(said, has_that) if first in OURS else _is_of_others(said, has_that, first, after)


def _is_of_ours(said: "_Statement", has_that: bool) -> bool:
    """Return True for a lasting statement about something of ``our``."""
    if has_that:
        return said.has_name or said.words[0] != "my"
    return said.is_named or said.raw[-2] in ("is", "are")


def _is_of_others(said: "_Statement", has_that: bool, first: str, after: str) -> bool:
    """Return True for a lasting statement about a person or a thing."""
    is_of_person = said.raw[0].istitle() and after in ROLES
    is_lasting = has_that and (said.is_named or is_of_person or bool(LASTING & set(said.words)))
    return is_lasting or (first == "the" and said.is_named and said.has_name)


def _is_standing_order(said: "_Statement") -> bool:
    """Return True for an order such as ``never force push``; False for an order about one thing."""
    second = (*said.words, "")[1]
    is_of_one = "the" in said.words and "before" not in said.words
    return not is_of_one and (second == "to" or second not in ONE)


def _is_habit(said: "_Statement", has_that: bool) -> bool:
    """Return True for a habit, a state or a decision of ``we`` or ``I``."""
    is_of_one = (*said.core[2:3], "")[0] in ONE
    if said.verb in ("am", "are"):
        return said.has_name or (said.verb == "am" and (has_that or is_of_one))
    if said.verb in DECISIONS:
        return has_that and not is_of_one
    is_named = said.has_name or any(len(word) > 1 and word.isupper() for word in said.raw[2:])
    return (said.verb in HABITS and not is_of_one) or (is_named and not said.verb.endswith("ed"))


class _Statement:
    """The words of a text, and facts about their forms."""

    def __init__(self, text: str) -> None:
        text = text.replace("\u2019", "'")
        self.sentences = text.replace(". ", ".\n").replace("! ", "!\n").split("\n")
        self.has_lines = "\n" in text
        self.raw = text.split()
        self.words = [part for word in self.raw for part in _apart(_bare(word)) if part]
        self.pairs = list(zip(self.words, [*self.words[1:], ""], strict=False))
        self.is_question = any(word.rstrip("\"')*_.!").endswith(("?", "\uff1f")) for word in self.raw)
        self.core = [word for word in self.words if word not in ADVERBS]
        self.verb = (*self.core[1:2], "")[0]
        self.is_standing = any(
            word in ("always", "never", "whenever") or f"{word} {after}" in ("instead of", "before every", "before any")
            for word, after in self.pairs
        )
        self.has_name = any(map(_is_name, self.raw[1:]))
        verb = next((at for at, word in enumerate(self.raw[:6]) if word in NAMING), len(self.raw))
        self.is_named = any(_is_name(word) or word[0].isdigit() for word in self.raw[verb + 1 :])

    def is_of_now(self) -> bool:
        """Return True if a word refers to the present work, the past or, without a standing order, the agent."""
        is_now = not self.is_standing and (PRESENT | {"you", "your"}) & set(self.words)
        if is_now or (*self.words, "")[0] in ("it", "they", "he", "she", "there"):
            return True
        if any(word in ("this", "that", "these", "those") and after not in WHOLES for word, after in self.pairs):
            return True
        if "on the branch" in " ".join(self.words) or self._ends_in_task():
            return True
        verbs = zip(self.core, [*self.core[1:], ""], strict=False)
        is_doing = any(word in ("am", "are", "is") and after.endswith("ing") for word, after in verbs)
        return is_doing or self.raw[-1].endswith(":")

    def _ends_in_task(self) -> bool:
        """Return True for an ending such as ``and run it``."""
        return self.words[-3:-2] == ["and"] and self.words[-1] in ("it", "them")

    def has_happened(self) -> bool:
        """Return True for a passing state, for what should be different, and for a past event: a verb in ``ed``."""
        events = (after for word, after in self.pairs if word not in BEFORE_ATTRIBUTES)
        is_past = any(word.endswith("ed") and not word.endswith("eed") for word in events)
        return is_past or bool(STATES & set(self.words))

    def goes_on(self) -> bool:
        """Return True if a task may follow: on another line, or in a clause with an unexpected first word."""
        ends = (word.rstrip("\"')*_`")[-1:] in tuple(",;.!") or word in DASHES for word in self.raw[:-1])
        follows = zip(ends, self.raw[1:], strict=False)
        return self.has_lines or any(is_end and _bare(word) not in MORE for is_end, word in follows)


def _is_name(raw: str) -> bool:
    """Return True for a name, a path, a quotation, a version number and a number with four digits."""
    word = raw.strip("\"'()[]*_.,;:!")
    is_mixed = word[:1].isupper() and word != word.upper() and not word.startswith(("I'", "I\u2019"))
    is_number = sum(map(str.isdigit, word)) > (1 if "." in word else 3)
    return is_mixed or is_number or any(mark in raw for mark in '/@"\u201c') or word.count("-") > 1


def _bare(word: str) -> str:
    return word.strip("\"'()[]{}*_.,;:!`<>\u201c\u201d-\u2013\u2014").lower()


def _apart(word: str) -> "list[str]":
    """Split a contraction such as ``we're`` into two words."""
    for end, verb in (("'re", "are"), ("'m", "am"), ("'ve", "have"), ("'ll", "will"), ("'d", "would")):
        if word.endswith(end):
            return [word[: -len(end)], verb]
    return [word]


def _after(text: str, word: str) -> "str | None":
    """Return the text after ``word`` if it begins with that, in any case; None otherwise."""
    rest = text[len(word) :]
    ends = not rest or rest[0].isspace() or rest[0] in MARKS
    return rest if ends and text[: len(word)].lower() == word else None


def _trimmed(text: str) -> str:
    return text.lstrip(SPACES + MARKS + "\u3001").lstrip()
