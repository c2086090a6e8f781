"""The real client, and what is forgotten of its sessions."""

from __future__ import annotations

import shutil

from tests.e2e.fake_anthropic import Think, Use


def test_a_session_goes_on_without_the_turn_that_was_forgotten(client, model, memory):
    model.when("first thing", ["Answer to the first."])
    model.when(
        "zorilla", [Think("A zorilla it is."), Use("Bash", {"command": "echo zorilla-tool"})], ["Zorilla noted."]
    )
    model.when("third thing", ["Answer to the third."])
    model.when("go on", ["It goes on."])
    session = client.ask("first thing").session
    client.ask("the zorilla sleeps", "--resume", session)
    client.ask("third thing", "--resume", session)
    memory.settle()
    memory.crystal("sync")
    assert memory.files_with("zorilla")
    memory.crystal("forget", "--query", '"zorilla"', "--yes", "--prove")
    assert memory.files_with("orilla") == []
    memory.crystal("sync")
    memory.crystal("backfill")
    assert memory.files_with("orilla") == []
    memory.verify()
    shutil.rmtree(client.config / "projects")
    memory.crystal("restore", session)
    answer = client.ask("go on", "--resume", session)
    assert (answer.session, answer.text) == (session, "It goes on.")
    sent = model.texts_sent()
    assert all(
        words in sent for words in ("first thing", "Answer to the first.", "third thing", "Answer to the third.")
    )
    assert not any("orilla" in words for words in sent)
    memory.settle()
    memory.verify()
