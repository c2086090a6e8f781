"""A server on this machine in place of a model, for `reflect.py --model`: it knows the labels, or takes everything.

Neither is a model. `labels` shows what gates, evidence and the form of the answer leave of perfect choices; `all` what
they keep out if a model chooses everything, and obeys every order that it is shown or not shown.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tests.support.loopback import Handler, serving

_SENTENCE = re.compile(r"^\[(\d+)\] (.*)$", re.MULTILINE)


class Label(NamedTuple):
    """A memory that should be learned: its kind, and words that it has."""

    kind: str
    words: Sequence[str]


def choices(prompt: str, labels: Sequence[Label] | None, orders: Sequence[str]) -> list[dict[str, Any]]:
    """Return what the stand-in chooses: what is labelled, or everything and every order if ``labels`` is None."""
    found = []
    for number, text in _SENTENCE.findall(prompt):
        known = [one for one in labels or () if all(word.casefold() in text.casefold() for word in one.words)]
        if labels is None or known:
            found.append(_choice(int(number), text, known[0].kind if known else "fact"))
        found += [_choice(int(number), order, "preference") for order in orders]
    return found


def _choice(number: int, quote: str, kind: str) -> dict[str, Any]:
    return {"number": number, "quote": quote, "kind": kind, "everywhere": False, "confidence": 1.0}


@contextlib.contextmanager
def stand_in(labels: Sequence[Label] | None, orders: Sequence[str] = ()) -> Iterator[str]:
    """Serve Ollama's protocol on loopback; yield the address."""

    class Model(Handler):
        def do_POST(self) -> None:
            chosen = choices(json.loads(self.body())["messages"][1]["content"], labels, orders)
            message = {"role": "assistant", "content": json.dumps({"memories": chosen})}
            self.send(200, {"message": message, "done": True, "prompt_eval_count": 1, "eval_count": 1})

    with serving(Model) as url:
        yield url
