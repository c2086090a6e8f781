"""What the windows of a huge text promise."""

from __future__ import annotations

import pytest

from crystal.redact import Redactor
from crystal.redact.regex_engines import LARGE
from crystal.redact.windows import windows
from crystal.redact.work_limit import TooDenseError


@pytest.mark.parametrize("behind", [b'","type": "user"}', b" \n", b"\\n\\n", b"\x80" * 3])
@pytest.mark.parametrize("more", [1, 2, 50])
def test_a_window_does_not_reach_past_the_end_of_the_string(more: int, behind: bytes) -> None:
    start, end = 6, 6 + LARGE + more
    spans = list(windows(b'{"a":"' + b"x" * (LARGE + more) + behind, start, end))
    assert (spans[0][0], spans[-1][1]) == (start, end)
    assert all(start <= at < stop <= end for at, stop in spans)


def test_a_dense_window_takes_nothing_from_the_string_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_dense(_: Redactor, source: bytes, *_more: object) -> list[object]:
        if len(source) < LARGE:
            return []
        raise TooDenseError

    monkeypatch.setattr(Redactor, "_searched", too_dense)
    line = b'{"a":"password=' + b"x" * (LARGE + 2) + b'","type": "user"}'
    clean, counts = Redactor(b"key").clean_line(line)
    assert counts.keys() == {"dense"}
    assert clean.startswith(b'{"a":"')
    assert clean.endswith(b'","type": "user"}')
