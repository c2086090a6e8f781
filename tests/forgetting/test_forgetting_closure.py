"""What says the same goes too, in every form, and what does not stays byte for byte."""

from __future__ import annotations

import json
import shutil
import unicodedata
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.app.forget import execute_and_prove, plan_forget
from crystal.app.integrity import prove
from crystal.app.memories import remember
from crystal.errors import NotFoundError, UsageError
from crystal.forgetting.match import query_terms
from crystal.forgetting.match.query_terms import Terms, folded, may_hold, readable
from crystal.forgetting.request import ForgetRequest
from tests.support.forgetting_machine import DATA, NOW, Desk, said
from tests.support.table import each_row

SECRET = 'der Käfer "Ünal" frisst\ngern Brot am Müggelsee'
S1, S2 = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    desk.meet()
    return desk


def raw(**fields: object) -> bytes:
    return json.dumps(fields).encode() + b"\n"


@each_row(
    ("query", "text", "found"),
    [
        ("kafer unal", SECRET, True),
        ("KÄFER", SECRET, True),
        ('"gern brot"', SECRET, True),
        ('"frisst gern"', SECRET, True),
        ('"brot gern"', SECRET, False),
        ("cat", "concatenate", False),
        ("cat", "my_cat.txt", True),
        ('"cat"', "concatenate", True),
        ("门锁", "我的门锁密码是四七一一", True),
        ("c++", "he writes c++ all day", True),
    ],
)
def test_a_query_means_whole_words_in_any_case(query: str, text: str, found: bool) -> None:
    assert Terms.of(query).are_in(folded(text)) is found
    for line in (
        json.dumps({"a": text}),
        json.dumps({"a": json.dumps({"b": text})}),
        json.dumps(text, ensure_ascii=False),
    ):
        assert Terms.of(query).are_in(readable(line.encode())) is found


SIMILAR = (
    "ae-",
    "\u0301",
    "\u00e9",
    "\ufb01",
    "\uff21",
    "\u2122",
    "\u2014",
    "\u3000",
    "\x1b[0m",
    "\U0001d41a",
    "的",
    "\\",
    "\n",
    '"',
)


@given(
    st.lists(st.sampled_from([*SIMILAR, *"aefi tm"]), max_size=12).map("".join),
    st.text("aefitm的-", min_size=1, max_size=4),
)
def test_the_fast_look_at_lines_lets_every_line_with_the_words_through(text: str, query: str) -> None:
    terms = Terms.of(query)
    for line in (json.dumps({"a": text}), json.dumps([json.dumps(text)], ensure_ascii=False), text):
        raw_line = line.encode()
        for many in (query_terms.MANY_BYTES, 0):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(query_terms, "MANY_BYTES", many)
                assert may_hold(terms, raw_line) or not terms.are_in(readable(raw_line))


def test_many_plain_lines_without_a_word_are_not_read_by_its_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = b'{"a": "quartz and the vein"}\n' * 10_000
    with monkeypatch.context() as patch:
        patch.setattr(query_terms, "scanner", None)
        assert not may_hold(Terms.of("vein zebra"), lines)
    border = query_terms.MANY_BYTES - 3
    for word in (b"zebra", b"ZeBra", rb"z\u00e9bra"):
        assert may_hold(Terms.of("zebra"), lines[:border] + b" " + word + b" " + lines)


def test_dashes_and_emoji_do_not_hide_a_word_from_the_fast_look() -> None:
    line = json.dumps({"a": "done \u2014 that\u2019s \u2713 \u2500\u2500 \u4e2d"}, ensure_ascii=False).encode()
    assert not may_hold(Terms.of("zebra"), line)
    assert may_hold(Terms.of("that"), line)


def test_a_part_of_a_word_is_no_word_to_the_fast_look_which_would_have_every_line_read() -> None:
    line = json.dumps({"message": "what\nnext"}).encode()
    for query, is_there in (("essage", False), ("hat", False), ("what", True), ("next", True), ('"hat"', True)):
        assert may_hold(Terms.of(query), line) == is_there, query


@given(st.text("ae\u0301\u0308ﬁＡ的가\u3000 İ\n"))
def test_folding_asks_about_each_character_once(text: str) -> None:
    whole, asked = text * 50, list[str]()

    class Counting:
        normalize = staticmethod(unicodedata.normalize)

        @staticmethod
        def combining(char: str) -> int:
            asked.append(char)
            return unicodedata.combining(char)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(query_terms, "unicodedata", Counting)
        result = folded(whole)
    apart = unicodedata.normalize("NFKD", whole.casefold())
    assert result.split() == "".join(char for char in apart if not unicodedata.combining(char)).split()
    assert len(asked) == len(set(asked))


@pytest.mark.slow
def test_notes_copies_quotes_and_summaries_go_and_the_rest_stays(desk: Desk) -> None:
    kept = [said("an ordinary question"), raw(type="mode", mode="normal", sessionId=S1)]
    blob = raw(type="api-request-blob", body=json.dumps({"messages": [SECRET]}), sessionId=S1)
    summary = said("They talked of beetles.", at=NOW + 9, isCompactSummary=True)
    tool = said("x", at=NOW + 3)
    fields = json.loads(tool)
    fields["message"]["content"] = [{"type": "tool_result", "tool_use_id": "t1", "content": "nothing of note"}]
    fields["toolUseResult"] = {"stdout": f"before\n{SECRET}\nafter"}
    desk.say(S1, kept[0], said(SECRET), blob, kept[1], raw(**fields), summary)
    desk.say(S2, said(f"somebody said: {SECRET} and left", role="assistant"), said("an unrelated thing"))
    desk.capture()
    with desk.open() as machine:
        uuid_ = machine.store.value(
            "SELECT t.uuid FROM turns t JOIN chunks c ON c.turn = t.id WHERE c.text = ?", (SECRET,)
        )
        plan = plan_forget(machine, ForgetRequest(targets=(str(uuid_),)))
        reasons = {item.because for item in plan.items}
        assert reasons == {"asked", "quote", "summary", "bookkeeping"}
        done, proof = execute_and_prove(machine, plan)
        assert done.is_done
        assert proof.proved, proof.traces
        assert not prove(machine, lambda _: None).faults
    assert desk.holding(SECRET, "Müggelsee", "beetles") == []
    archived = b"".join(data for name, data in desk.files() if name.endswith("decompressed"))
    assert all(line in archived for line in kept)
    assert desk.texts() == ["an ordinary question", "an unrelated thing"]


def test_a_path_that_was_said_does_not_take_along_what_was_said_in_its_folder(desk: Desk) -> None:
    folder = "/home/dev/quartz/and/a/long/way/down"
    desk.say(S1, said(folder, ident="the-path"))
    desk.say(S2, said("the okapi stays", cwd=folder), raw(type="progress", cwd=folder, uuid="p", data="a quokka"))
    desk.say(str(uuid.UUID(int=3)), said(f"is it {folder}, or is it not?"))
    desk.capture()
    assert desk.forget(targets=("the-path",)).is_done
    assert desk.texts() == ["the okapi stays"]
    assert desk.holding("quokka")


def test_a_note_that_quotes_a_windows_path_goes_too(desk: Desk) -> None:
    path = r"the share is at C:\new\table\zebra and nobody may know"
    desk.say(S1, said(path, ident="the-path"))
    desk.say(S2, said("the okapi stays"), raw(type="progress", uuid="p", data=f"it was said that {path}, you see"))
    desk.capture()
    assert desk.forget(targets=("the-path",)).is_done
    assert desk.texts() == ["the okapi stays"]
    assert not desk.holding("zebra")


@pytest.mark.slow
def test_the_middle_of_a_long_result_is_found_by_its_words(desk: Desk) -> None:
    long = " ".join(f"word{number}" for number in range(3_000))
    fields = json.loads(said("x"))
    text = f"{long[:12_000]} the zorilla key {long[12_000:]}"
    fields["message"]["content"] = [{"type": "tool_result", "tool_use_id": "t1", "content": text}]
    desk.say(S1, said("run it"), raw(**fields))
    desk.capture()
    assert not any("zorilla" in text for text in desk.texts())
    done = desk.forget(query="zorilla")
    assert done.lines == 1
    assert desk.holding("zorilla") == []
    assert desk.texts() == ["run it"]


@pytest.mark.slow
def test_a_memory_goes_with_the_prompt_that_asked_for_it(desk: Desk) -> None:
    desk.say(S1, said("remember the cat is Bo"), said("the cat sleeps"))
    desk.capture()
    with desk.open() as machine:
        remember(machine, "the cat is Bo", session=S1)
        remember(machine, "Alice", key="user_name")
    plan = desk.plan(key="user_name")
    assert [item.text for item in plan.items] == ["Alice"]
    with desk.open() as machine:
        uid = machine.store.value("SELECT uid FROM memories WHERE text = 'the cat is Bo'")
    assert desk.forget(targets=(uid,)).is_done
    assert desk.holding("cat is Bo") == []
    assert "the cat sleeps" in desk.texts()


@pytest.mark.slow
@pytest.mark.parametrize("prompt", ["请记住：Bo", "記住 Bo", "Please, remember Bo", "Remember, Bo"])
def test_a_short_memory_goes_with_its_prompt_however_it_was_put(desk: Desk, prompt: str) -> None:
    desk.say(S1, said(prompt), said("Bo sleeps"))
    desk.capture()
    with desk.open() as machine:
        kept = remember(machine, "Bo", session=S1)
    assert desk.forget(targets=(kept.id,)).is_done
    assert desk.texts() == ["Bo sleeps"]


@pytest.mark.slow
def test_hits_are_named_by_number_and_unknown_ones_are_refused(desk: Desk) -> None:
    desk.say(S1, said("first thing that is said"), said("second thing that is said"))
    desk.capture()
    with desk.open() as machine:
        number = machine.store.value("SELECT id FROM chunks WHERE text LIKE 'second%'")
    desk.forget(targets=(str(number),))
    assert desk.texts() == ["first thing that is said"]
    for wish in (
        {"targets": ("999999",)},
        {"targets": ("mem-000000000000",)},
        {"session": "zz"},
        {"project": "no"},
        {},
    ):
        with pytest.raises((NotFoundError, UsageError)):
            desk.plan(**wish)


@pytest.mark.slow
def test_a_short_text_is_not_sought_elsewhere(desk: Desk) -> None:
    desk.say(S1, said("yes"), said("a first question"))
    desk.say(S2, said("yes"))
    desk.capture()
    with desk.open() as machine:
        uuid_ = machine.store.value("SELECT uuid FROM turns ORDER BY id")
    assert desk.forget(targets=(uuid_,)).lines == 1
    assert desk.texts() == ["a first question", "yes"]


@pytest.mark.slow
def test_options_narrow_each_other(desk: Desk) -> None:
    desk.say(S1, said("the quoll runs past us today"))
    desk.say(S2, said("a quoll sat there alone yesterday"))
    desk.capture()
    assert desk.plan(query="quoll").sessions == tuple(sorted((S1, S2)))
    desk.forget(query="quoll", session=S2)
    assert desk.texts() == ["the quoll runs past us today"]


def test_what_has_not_all_words_is_only_suggested(desk: Desk) -> None:
    desk.say(S1, said("the quoll runs past us today"))
    desk.capture()
    plan = desk.plan(query="quoll tomorrow")
    assert plan.is_empty
    assert [hit.text for hit in plan.suggestions] == ["the quoll runs past us today"]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """Everything that real sessions said."""
    desk = Desk(tmp_path_factory.mktemp("real"))
    desk.meet()
    for path in sorted(DATA.glob("*.jsonl")):
        session = next(
            name for line in path.read_bytes().splitlines() if (name := json.loads(line).get("sessionId")) is not None
        )
        if not path.stem.endswith("__agent"):
            shutil.copy(path, desk.transcript(session))
    desk.capture()
    return desk


@pytest.mark.slow
@pytest.mark.parametrize("role", ["user", "assistant", "thinking", "tool_call", "tool_result", "summary"])
def test_any_real_line_can_be_forgotten(real: Desk, role: str) -> None:
    with real.open() as machine:
        rows = machine.store.rows(
            "SELECT t.uuid, group_concat(c.text, '') FROM turns t JOIN chunks c ON c.turn = t.id WHERE t.role = ?"
            " GROUP BY t.id HAVING count(*) = 1 ORDER BY t.id",
            (role,),
        )
        uuid_, text = rows[len(rows) // 2]
        plan = plan_forget(machine, ForgetRequest(targets=(uuid_,)))
        done, proof = execute_and_prove(machine, plan)
        assert done.is_done, done.pending
        assert proof.proved, (proof.traces, proof.unread)
        assert not prove(machine, lambda _: None).damaged
    if len(text) >= 24:
        assert real.holding(text) == []
    real.backfill()
    with real.open() as machine:
        assert machine.store.value("SELECT count(*) FROM turns WHERE uuid = ?", (uuid_,)) == 0
