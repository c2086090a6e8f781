"""A log that cannot be written, and accesses that have ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from crystal.app.context import default_paths
from crystal.credentials import access
from crystal.credentials.access import make_grant, read_grants
from crystal.errors import UsageError
from crystal.store import Store
from tests.support.command import crystal
from tests.support.remote_client import Remote, token_for


def test_a_log_that_cannot_be_written_breaks_no_request(told: Store, capsys: pytest.CaptureFixture[str]) -> None:
    default_paths().access_log.mkdir()
    answer = Remote(token_for("phone")).rpc(
        "tools/call", {"name": "crystal_remember", "arguments": {"text": "Zebras sleep at noon"}}
    )
    assert answer.status_code == 200
    assert not answer.json()["result"].get("isError")
    assert Remote("wrong").rpc("tools/list").status_code == 401
    assert capsys.readouterr().err.count("access.log") == 2, "once for each server"
    remote = Remote("wrong")
    assert [remote.rpc("ping").status_code for _ in range(12)] == [401] * 10 + [429] * 2
    assert capsys.readouterr().err.count("access.log") == 1
    assert crystal("memories").out.count("Zebras sleep at noon") == 1


def test_an_access_that_has_ended_leaves_its_label_and_its_place(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "MAX_GRANTS", 2)
    path = default_paths().access
    for label, now, end in (("ever", 1, None), ("phone", 1, 9), ("phone", 9, 20)):
        make_grant(path, label, ("read",), (), now, end)
    assert [(one.label, one.made_at) for one in read_grants(path)] == [("ever", 1), ("phone", 9)]
    with pytest.raises(UsageError, match="taken"):
        make_grant(path, "phone", ("read",), (), 19, None)
    with pytest.raises(UsageError, match="2 tokens"):
        make_grant(path, "other", ("read",), (), 19, None)
