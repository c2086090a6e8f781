"""Which session ``--off --session`` closes: a name that closes none would give a false peace of mind."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from tests.support.command import crystal
from tests.support.docs_sample import PRICES, TESTS, write_sample

STRANGER = "0d0d0d0d-0000-4000-8000-000000000000"


@pytest.fixture(autouse=True)
def _memory(home: Path) -> None:
    write_sample(home, datetime.now(timezone.utc))
    assert crystal("init", "--yes", "--import").code == 0


@pytest.mark.slow
def test_the_beginning_of_a_known_id_closes_that_session() -> None:
    assert PRICES in crystal("--off", "--session", PRICES[:6]).out
    assert PRICES not in crystal("--on", "--session", PRICES[:6]).out


@pytest.mark.slow
def test_a_whole_id_may_be_of_a_session_that_is_still_to_come() -> None:
    assert STRANGER in crystal("--off", "--session", STRANGER).out
    assert STRANGER not in crystal("--on", "--session", STRANGER).out


@pytest.mark.slow
def test_what_names_no_session_is_refused() -> None:
    for switch in ("--off", "--on"):
        done = crystal(switch, "--session", "my secret session")
        assert (done.code, done.out) == (1, "")
        assert "my secret session" in done.err
    assert TESTS not in crystal("--status").out


@pytest.mark.slow
def test_a_link_in_the_place_of_a_record_lets_no_other_file_be_rewritten(home: Path) -> None:
    other = home / "other"
    other.write_text("of another program\n")
    for name in ("private.jsonl", "forgotten.json"):
        (home / ".ldm" / name).unlink(missing_ok=True)
        (home / ".ldm" / name).symlink_to(other)
    assert crystal("forget", "--session", TESTS, "--yes").code == 0
    assert crystal("--off").code == 0
    assert crystal("verify").code == 0
    assert other.read_text() == "of another program\n"
    assert not any((home / ".ldm" / name).is_symlink() for name in ("private.jsonl", "forgotten.json"))
