"""The log of who asked what, also when it cannot be written, and accesses that have ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from crystal.app.context import default_paths
from crystal.credentials import access
from crystal.credentials.access import make_grant, read_grants
from crystal.credentials.access_log import MAX_BYTES, AccessLog, LogEntry
from crystal.errors import UsageError
from crystal.mcp.remote.token_guard import Rate, Rates
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


def test_the_log_says_who_asked_what_and_never_the_words(remote: Remote) -> None:
    remote.tool("crystal_search", query="zebra")
    remote.tool("crystal_get", id="m999")
    remote.ask("tools/list")
    remote.tool("zebra")
    Remote(token_for("reader", ("read",))).tool("crystal_remember", text="zebra")
    Remote("zebra").rpc("tools/list")
    found = AccessLog(default_paths().access_log).read()
    assert [(one.label, one.what, one.outcome) for one in found] == [
        ("phone", "crystal_search", "ok"), ("phone", "crystal_get", "error"), ("phone", "tools/list", "ok"),
        ("phone", "tools/call", "error"),
        ("reader", "crystal_remember", "refused"), ("", "", "refused"),
    ]  # fmt: skip
    assert b"zebra" not in default_paths().access_log.read_bytes()
    shown = crystal("access", "log", "-n", "3")
    assert shown.out.count("\n") == 3
    assert "reader  crystal_remember  refused" in shown.out
    assert "without a token" in shown.out


def test_the_log_is_bounded(tmp_path: Path) -> None:
    log = AccessLog(tmp_path / "access.log")
    entry = LogEntry(1, "a" * 8, "x" * 1_000, "crystal_search", "ok", 1, "127.0.0.1")
    for _ in range(3 * MAX_BYTES // 1_000):
        log.add(entry)
    sizes = [path.stat().st_size for path in tmp_path.glob("access.log*")]
    assert len(sizes) == 2
    assert sum(sizes) <= 2 * (MAX_BYTES + 2_000)
    (tmp_path / "access.log").write_bytes(
        b'{"at": 1\n\xff\n' + b'{"at":2,"id":"","label":"","what":"x","outcome":"ok","ms":1,"address":""}\n'
    )
    assert log.read()[-1].at == 2


def test_refusals_do_not_push_the_rest_out_of_the_log(told: Store) -> None:
    stranger = Remote(None, Rates(Rate(1e6, 1e6), Rate(1e6, 1e6), Rate(1, 1), Rate(60, 0.001)))
    for _ in range(200):
        stranger.rpc("ping")
    assert len(AccessLog(default_paths().access_log).read()) == 60
