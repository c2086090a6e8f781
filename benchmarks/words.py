"""Invented text with the statistics of the real thing: Zipfian words, prose, code, logs, and now and then a secret.

Seeded: the same seed gives the same text. Nothing is quoted from anywhere. The commonest words are English function
words and the usual nouns of programs; the long tail is made of syllables. No word is there for the redactor's sake.
"""

from __future__ import annotations

import base64
import random
import string
from collections.abc import Sequence
from itertools import accumulate

FUNCTION_WORDS = (
    "the to a of and in is it that this for we be on with not as are if but or so an from by at when which can will"
    " now there was all no then do should only what one more has have does its each same been into out still after"
    " because also were some would any how both here than first before where just could like may need they"
).split()
NOUNS = (
    "file test function error line value name path code type list data result user key index state config string"
    " number request response time session message event table row column query cache token node client server"
    " version option default module class method field object item count size offset limit page url host port"
    " header body status log level thread task queue lock worker job batch chunk buffer stream socket handler"
    " parser schema model record column record id hash map set tree path root parent child source target input"
    " output format template view component style button form menu theme layout route api auth password account"
    " role permission group email address order price product stock payment report metric trace span"
).split()
VERBS = (
    "get set make read write load save open close parse render send fetch find add remove update create delete check"
    " run start stop build merge split sort filter apply reset init handle resolve validate convert"
).split()
ONSETS = "b br c ch cl d dr f fl g gr h j k l m n p pl pr qu r s sh sl st t tr v w".split()
VOWELS = "a e i o u ai ea ee io ou".split()
CODAS = ["", "", "", "l", "m", "n", "nd", "r", "rt", "s", "st", "t", "x"]

PYTHON = (
    "def {0}_{1}(self, {2}: {3}) -> None:",
    "    {0} = self.{1}_{2}.{3}({0}, {2}={1})",
    "    if {0} is None or {1}.{2} > {n}:",
    "        return {0}_{1}[{2}]",
    "    for {0}, {1} in {2}.items():",
    '        {0}.append({1}.{2}("{3} {0}"))',
    "",
    "from {0}.{1} import {2}_{3}",
    "    # {0} {1} {2} before {3}",
    '        raise ValueError(f"{0}: {{{1}}} is no {2}")',
    "    assert {0}_{1}({2}) == {n}",
    "    with {0}({1}) as {2}:",
    '        "{0}": {1}_{2},',
    "class {0}{1}({2}):",
)
TYPESCRIPT = (
    "export function {0}{1}({2}: {3}): void {{",
    "  const {0} = await {1}.{2}({3}, {{ {0}: {n} }});",
    "  if (!{0} || {1}.{2} < {n}) {{",
    "    return {0}.{1}.map(({2}) => {2}.{3});",
    "  }}",
    "}}",
    "",
    'import {{ {0}, {1} }} from "./{2}/{3}";',
    "  // {0} {1} {2}",
    "    <{0}.{1} {2}={{{3}}} />",
    "  {0}: {1}[];",
    "    throw new Error(`{0} ${{{1}}}`);",
)
LOG = (
    "2026-10-{n:02d}T0{m}:1{m}:2{m}.{n:03d}Z INFO  {0}.{1} {2}={n} {3}",
    "  at {0}.{1} (/srv/app/{2}/{3}.js:{n}:1{m})",
    "{0}/{1}_{2}.py:{n}: {3}",
    "PASSED tests/test_{0}.py::test_{1}_{2} [ {m}%]",
    "drwxr-xr-x {m} dev dev {n} Oct 1{m} 0{m}:{n:02d} {0}-{1}",
    "+    {0} = {1}({2})",
    "-    {0} = {1}({3})",
    "{0}@{m}.{m}.{n}",
    "warning: {0} {1} is never used ({2})",
    "ok {n} - {0} {1} {2}",
)


class Writer:
    """Writes invented text. Every method draws from one seeded stream."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        tail = [self.invent() for _ in range(30_000)]
        self._vocabulary = list(dict.fromkeys([*FUNCTION_WORDS, *NOUNS, *VERBS, *tail]))
        self._weights = zipf(len(self._vocabulary))
        self._drawn: list[str] = []
        self._at = 0

    def invent(self) -> str:
        """A word of one to four syllables that nobody has used."""
        pick = self.random.choice
        return "".join(pick(ONSETS) + pick(VOWELS) + pick(CODAS) for _ in range(self.random.choice((1, 2, 2, 3, 3, 4))))

    def words(self, count: int) -> list[str]:
        """So many words, by Zipf's law."""
        if self._at + count > len(self._drawn):
            self._drawn = self.random.choices(self._vocabulary, cum_weights=self._weights, k=max(20_000, count))
            self._at = 0
        self._at += count
        return self._drawn[self._at - count : self._at]

    def prose(self, size: int) -> str:
        """Sentences and paragraphs, some of them lists, of about ``size`` characters."""
        parts: list[str] = []
        length = 0
        while length < size:
            sentence = " ".join(self.words(self.random.randint(5, 22)))
            shape = self.random.random()
            end = (
                ".\n\n"
                if shape < 0.2
                else ".\n- "
                if shape < 0.3
                else ", `" + "_".join(self.words(2)) + "`. "
                if shape < 0.4
                else ". "
            )
            parts += (sentence[0].upper() + sentence[1:], end)
            length += len(sentence) + len(end)
        return "".join(parts).strip()

    def names(self, count: int) -> list[str]:
        """The names that one project's code uses."""
        pick, words = self.random.choice, iter(self.words(3 * count))
        made = []
        for _ in range(count):
            shape = self.random.random()
            if shape < 0.4:
                made.append(pick(NOUNS))
            elif shape < 0.7:
                made.append(f"{pick(VERBS)}_{pick(NOUNS)}")
            elif shape < 0.9:
                made.append(f"{next(words)}{pick(NOUNS).title()}")
            else:
                made.append(f"{next(words)}_{pick(NOUNS)}_{next(words)}")
        return made

    def lines(self, templates: Sequence[str], names: Sequence[str], count: int) -> list[str]:
        """Lines of code or of a log with a project's names in them."""
        weights = zipf(len(names))
        drawn = iter(self.random.choices(names, cum_weights=weights, k=4 * count))
        number = self.random.randrange
        shapes = self.random.choices(templates, k=count)
        return [
            shape.format(next(drawn), next(drawn), next(drawn), next(drawn), n=number(100), m=number(10))
            for shape in shapes
        ]

    def letters(self, count: int, alphabet: str = string.ascii_letters + string.digits) -> str:
        """Random characters."""
        return "".join(self.random.choices(alphabet, k=count))

    def picture(self, size: int) -> str:
        """The base64 of a picture of so many bytes: a PNG's head and noise."""
        return base64.b64encode(b"\x89PNG\r\n\x1a\n" + self.random.randbytes(size)).decode()

    def settings_file(self) -> str:
        """What ``cat .env`` shows: plain settings, and secrets that are made up."""
        rows = [f"{'_'.join(self.words(2)).upper()}={self.words(1)[0]}" for _ in range(self.random.randint(2, 8))]
        secrets = (
            f"AWS_ACCESS_KEY_ID=AKIA{self.letters(16, string.ascii_uppercase + '234567')}",
            f"GITHUB_TOKEN=ghp_{self.letters(36)}",
            f"OPENAI_API_KEY=sk-proj-{self.letters(48)}",
            f"DATABASE_URL=postgres://app:{self.letters(20)}@db.internal:5432/{self.words(1)[0]}",
            f"SESSION_SECRET={self.letters(40, string.hexdigits[:16])}",
        )
        rows += self.random.sample(secrets, self.random.randint(1, 3))
        self.random.shuffle(rows)
        return "\n".join(rows)


def zipf(count: int) -> list[float]:
    """Cumulative weights by the law of Zipf and Mandelbrot: 1 / (rank + 2.7)."""
    return list(accumulate(1 / (rank + 2.7) for rank in range(1, count + 1)))
