"""Count the terms of a text: words and identifiers, in any language. Pure.

Scripts without spaces between words (Han, kana, Thai and similar) are counted in short runs of characters; repeated
runs are treated as words.
"""

# ruff: noqa: RUF001  other alphabets hold letters like ours; a list of words reads best as words

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MAX_TERM = 48

_WORD = re.compile(r"\w+(?:[-./_:]{1,2}\w+)*")
_URL = re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://\S+", re.IGNORECASE)
_REDACTED = re.compile(r"\[redacted:[^\]\s]{0,80}\]")
_NUMBER = re.compile(r"[\d._:/-]+|(?=.*\d)[0-9a-f-]{7,}|v?\d[\w.]*", re.IGNORECASE)
_UNSPACED = re.compile(
    "[\u2e80-\u2fdf\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"  # Han
    "|[\u30a0-\u30ff\u31f0-\u31ff\uff66-\uff9f]+|[\u3040-\u309f]+"  # katakana; hiragana
    "|[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]+"  # Thai, Lao, Burmese, Khmer
)
_KATAKANA = re.compile("[\u30a0-\u30ff\u31f0-\u31ff\uff66-\uff9f]+")
_HIRAGANA = re.compile("[\u3040-\u309f]+")
_CAMEL = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]")

_PHRASES = (2, 3, 4, 5, 6)

STOP_WORDS = frozenset(
    """
    a about above after again all already also always am an and another any are aren't around as ask asked at away back
    be because been before being below best better between both but by call can can't cannot could couldn't did didn't
    different do does doesn't doing don't done down each either else ensure even ever every everything few find first
    following for found from fully further get gets getting give go going good got great had has hasn't have having he
    help her here hers hey hi him his how however i i'd i'll i'm i've if in instead into is isn't it it's its itself
    just keep kind know last least less let let's like likely look looking looks made make makes making many may maybe
    me mean means might more most much must my name need needed needs never new next no none nor not nothing now of off
    ok okay on once one only onto or other others our ours out over own part please possible put rather re really right
    run running said same say says see seems set she should shouldn't show shows side since so some something still
    such sure take tell than thank thanks that that's the their them then there there's these they thing things think
    this those though through thus time to together too try trying two under until up upon us use used user uses using
    very via want wants was wasn't way we we'll we're well were weren't what what's when where whether which while who
    why will with within without won't work working works would wouldn't yes yet you you're your yours
    aber alle alles als also am an auch auf aus bei beim bin bis bitte da damit dann das dass dein dem den denn der des
    die dies diese diesem diesen dieser dieses doch dort du durch ein eine einem einen einer eines er es etwas euch
    für gibt gut hab habe haben hat hatte hier ich ihm ihn ihr im immer in ist ja jede jetzt kann kannst kein keine
    können könnte mal man mehr mein mich mir mit muss nach nicht nichts noch nun nur ob oder ohne schon sehr
    sein seine sich sie sind so soll sollte über um und uns unter vom von vor war waren warum was weil wenn wer
    werden wie wieder wir
    wird wo wurde zu zum zur zwischen
    au aussi aux avec bien ce cela ces cet cette comme dans de des donc dont du elle elles en encore est et était être
    faire fait faut il ils je la le les leur lui mais me même mes moi mon ne nos notre nous on ont ou où par pas peut
    peux plus pour pourquoi quand que quel quelle qui sa sans se ses si son sont sous sur ta te tes toi ton tous tout
    toute très tu un une vos votre vous
    al algo como con cual cuando de del desde donde dos el ella ellos en entre era es esa ese eso esta este esto está
    están fue gracias ha hacer hay hola la las lo los más me mi mucho muy nada ni no nos o otra otro para pero por
    porque puede puedes que qué quiero se ser si sí sin sobre solo son su sus también te tiene todo todos tu un una uno
    unos y ya yo
    ai al alla anche ancora che chi ci come con così cosa da dal dalla degli dei del della delle di dove e ed essere fa
    fare già gli ha hai hanno ho i il in io la le lei lo loro ma mi mio molto nel nella no noi non o per perché più può
    quale quando quello questa questo qui se sei si sia sono su sua sul sulla suo ti tra tu tutti tutto un una uno voi
    ao aos as até com da das de dele depois do dos e ela ele em então era essa esse esta está este eu foi há isso isto
    já mais mas me mesmo meu minha muito na não nas no nos o os ou para pela pelo pode por porque qual quando que quem
    se sem ser seu sua são só também te tem ter um uma você vou
    aan als ben bij dan dat de deze die dit doen door een en er geen haar heb hebben heeft hem het hij hoe ik in is je
    kan kun maar me meer met mijn moet na naar niet nog nu of om ook op over te toch tot uit van veel voor waar wat we
    wel wij worden wordt zal ze zich zij zijn zo zou
    а без бы был была были было быть в вам вас все всё вы где да для до его ее её если есть еще ещё же за и из или им
    их к как какой когда кто ли мне может можно мы на надо не нет ни но ну о он она они от по почему при с сейчас со
    так также там то только ты у уже что чтобы эта эти это этот я
    我们 你们 他们 这个 那个 这些 那些 一个 一下 什么 怎么 可以 可能 没有 不是 就是 但是 因为 所以 如果 现在 已经 还是
    需要 的话 这样
    """.split()
)


@dataclass(frozen=True, slots=True)
class Term:
    """Term in its most frequent spelling, and its weight."""

    text: str
    weight: float


def words(text: str, *, sizes: Sequence[int] = (2,)) -> list[str]:
    """Return the terms of a text in order, as written; without stop words, numbers, addresses and redacted text.

    ``sizes`` are the lengths of the pieces into which long runs of an unspaced script are split.
    """
    found: list[str] = []
    for match in _WORD.finditer(_REDACTED.sub(" ", _URL.sub(" ", text))):
        word = match[0].strip("_")
        if _UNSPACED.search(word):
            found.extend(_runs(word, sizes))
        elif _counts(word):
            deep = word.count("/") > 2 or len(word) > MAX_TERM
            found.append(word.rpartition("/")[2] if deep else word)
    return [word for word in found if len(word) <= MAX_TERM]


def folded(word: str) -> str:
    """Return the common form of two spellings of one term: no case, no English plural."""
    key = word.casefold()
    if len(key) > 4 and key.isascii() and key.isalpha() and key.endswith("s") and key[-2] not in "aisu":
        return key[:-1]
    return key


def counted(texts: Iterable[str]) -> Counter[str]:
    """Count how often each term (folded) occurs."""
    return Counter(folded(word) for text in texts for word in words(text))


def is_identifier(word: str) -> bool:
    """Return True if a term looks like an identifier: a path, a function, CamelCase or an option."""
    return bool(_CAMEL.search(word)) or any(mark in word for mark in "_./:") or any(map(str.isdigit, word))


def topics(texts: Sequence[tuple[str, float]], limit: int) -> list[Term]:
    """Return the terms with the highest weight, in descending order.

    Args:
        texts: Each text with its weight.
        limit: Maximum number of terms.
    """
    weight: defaultdict[str, float] = defaultdict(float)
    spread: Counter[str] = Counter()
    spellings: dict[str, Counter[str]] = {}
    alone: set[str] = set()
    for text, factor in texts:
        here = words(text, sizes=_PHRASES)
        alone.update(_UNSPACED.findall(text))
        for word, count in Counter(map(folded, here)).items():
            weight[word] += factor * (1 + math.log(count))
            spread[word] += 1
        for word in here:
            spellings.setdefault(folded(word), Counter())[word] += 1
    terms = []
    for key, value in weight.items():
        spelled = max(spellings[key].items(), key=lambda item: (item[1], item[0]))[0]
        often = sum(spellings[key].values())
        if often == 1 and _unspaced(spelled) and spelled not in alone:
            continue  # a run that occurs once may begin and end inside words
        score = value * (1 + math.log(spread[key])) * _likelihood(spelled)
        terms.append(Term(spelled, score))
    terms.sort(key=lambda term: (-term.weight, term.text))
    return _without_parts(terms[: limit * 8])[:limit]


def _likelihood(spelled: str) -> float:
    """Return how likely a term is by its form: identifiers, and long repeated runs."""
    if _unspaced(spelled):
        return 1 + len(spelled) / 10
    if is_identifier(spelled):
        return 1.4
    return 0.5 if len(spelled) < 3 and spelled.isascii() else 1.0


def _counts(word: str) -> bool:
    return len(word) > 1 and word.casefold() not in STOP_WORDS and not _NUMBER.fullmatch(word)


def _runs(word: str, sizes: Sequence[int]) -> Iterable[str]:
    """Return the runs of a word in an unspaced script, long ones as all pieces of some sizes; and the rest."""
    for match in _UNSPACED.finditer(word):
        run = match[0]
        if len(run) < 2 or _HIRAGANA.fullmatch(run):
            continue
        if len(run) <= 3 or _KATAKANA.fullmatch(run):
            stretches = [run]
        else:
            stretches = [run[at : at + size] for size in sizes for at in range(len(run) - size + 1)]
        yield from (stretch for stretch in stretches if stretch not in STOP_WORDS)
    yield from (part for part in _UNSPACED.sub(" ", word).split() if _counts(part))


def _without_parts(terms: list[Term]) -> list[Term]:
    """Drop terms that are part of another of about the same weight, and fragments that overlap with a heavier one."""
    kept: list[Term] = []
    for term in terms:
        whole = any(_is_part(term, other) for other in terms)
        if not whole and not any(_overlap(term.text, other.text) for other in kept):
            kept.append(term)
    return kept


def _is_part(term: Term, other: Term) -> bool:
    part, whole = term.text.casefold(), other.text.casefold()
    if len(whole) <= len(part) or other.weight < term.weight * 0.7:
        return False
    return part in whole if _unspaced(part) else whole.startswith(part) or whole.endswith(part)


def _overlap(one: str, other: str) -> bool:
    both = _unspaced(one) and _unspaced(other)
    return both and any(one[at : at + 2] in other for at in range(len(one) - 1))


def _unspaced(word: str) -> bool:
    return _UNSPACED.fullmatch(word) is not None
