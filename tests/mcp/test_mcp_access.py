"""Requests whose entry in the log cannot be written."""

from __future__ import annotations

import pytest

from crystal.app.context import default_paths
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
