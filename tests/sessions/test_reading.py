import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.errors import NotFoundError, UsageError
from crystal.sessions.reading import ShowTarget, find_session, find_target, read, sessions
from crystal.store.sessions.conversations import last_answer, place_of_chunk
from tests.support.examples import examples
from tests.support.store_factory import DAY, HOUR, NOW, SESSION, add_turn, chunk_id, open_store
from tests.support.table import each_row

FORK = "22222222-bbbb-4000-8000-000000000002"


def texts(conversation):
    return [turn.text for turn in conversation.turns]


def whole(store, session=SESSION):
    return read([store], find_target([store], session))


# ----------------------------------------------------------------------------------------------------- conversation


def test_a_conversation_is_read_in_the_order_of_time_whatever_the_order_of_lines(store):
    for minute, text in ((3, "third"), (1, "first"), (2, "second")):
        add_turn(store, text, ts=NOW + minute * 60_000)
    assert texts(whole(store)) == ["first", "second", "third"]


def test_turns_without_a_time_stay_where_their_line_stands(store):
    add_turn(store, "one", ts=NOW)
    add_turn(store, "no time", ts=None)
    add_turn(store, "two", ts=NOW + 1)
    assert texts(whole(store)) == ["one", "no time", "two"]


def test_blocks_of_one_line_keep_their_order(store):
    for part in (2, 0, 1):
        add_turn(store, f"block {part}", uuid="same", part=part, offset=10, ts=NOW)
    assert texts(whole(store)) == ["block 0", "block 1", "block 2"]


def test_a_fork_is_read_with_what_it_copied(store):
    uuid = add_turn(store, "said before", ts=NOW)
    add_turn(store, "said before", ts=NOW, uuid=uuid, session=FORK)
    add_turn(store, "said in the fork", ts=NOW + 1, session=FORK)
    fork = whole(store, FORK)
    assert texts(fork) == ["said before", "said in the fork"]
    assert [turn.copied for turn in fork.turns] == [True, False]
    assert fork.session.turns == 2
    assert fork.session.title == "said before"
    assert texts(whole(store)) == ["said before"]


@pytest.mark.slow
@examples(25)
@given(
    st.lists(
        st.sampled_from(["a paragraph of words. ", "\n\n", "```\ncode\n```\n", "日本語の文章。", "x" * 700]), min_size=1
    )
)
def test_a_long_turn_is_laid_together_exactly(tmp_path_factory, parts):
    text = "start " + "".join(parts)
    with open_store(tmp_path_factory.mktemp("long")) as store:
        add_turn(store, text)
        assert texts(whole(store)) == [text]


def test_a_damaged_turn_is_still_shown(store):
    uuid = add_turn(store, "\n\n".join(f"paragraph {number} " + "word " * 200 for number in range(10)))
    middle = store.value(
        "SELECT id FROM chunks WHERE turn = (SELECT id FROM turns WHERE uuid = ?) AND start > 900", (uuid,)
    )
    store.execute("DELETE FROM chunks WHERE id IN (?, ? + 1)", (middle, middle))
    (turn,) = whole(store).turns
    assert "paragraph 0" in turn.text
    assert "paragraph 9" in turn.text
    assert "[...]" in turn.text


# -------------------------------------------------------------------------------------------------------------- hit


def test_a_hit_is_shown_with_its_neighbours_of_the_same_thread(store):
    uuids = []
    for number in range(9):
        uuids.append(add_turn(store, f"turn {number}", ts=NOW + number * 10))
        add_turn(store, f"aside {number}", ts=NOW + number * 10 + 5, subagent="a1", role="subagent")
    hit = str(chunk_id(store, uuids[4]))
    assert texts(read([store], find_target([store], hit), context=1)) == ["turn 3", "turn 4", "turn 5"]
    assert texts(read([store], find_target([store], hit), context=0)) == ["turn 4"]
    shown = read([store], find_target([store], hit), context=99)
    assert texts(shown) == [f"turn {number}" for number in range(9)]
    assert [turn.focus for turn in shown.turns].index(True) == 4


def test_any_chunk_of_a_turn_opens_the_whole_turn(store):
    uuid = add_turn(store, "\n\n".join("words " * 200 for _ in range(4)))
    ids = [ident for (ident,) in store.rows("SELECT id FROM chunks")]
    assert len(ids) > 2
    for ident in ids:
        (turn,) = read([store], find_target([store], str(ident))).turns
        assert (turn.uuid, turn.hit, turn.focus) == (uuid, ids[0], True)


def test_a_chunk_that_no_transcript_said_is_shown_alone(store):
    store.execute(
        "INSERT INTO chunks (start, body, text_sha256, source, role, agent, device, ts)"
        " VALUES (0, 'prefers tabs', x'00', 'memory', 'memory', 'cc-test', 'desk', ?)", (NOW,),
    )  # fmt: skip
    shown = read([store], find_target([store], "1"))
    assert (shown.session, texts(shown)) == (None, ["prefers tabs"])


# ---------------------------------------------------------------------------------------------------------- finding


def test_a_session_is_found_by_a_unique_beginning(store):
    add_turn(store, "x", session=SESSION)
    add_turn(store, "y", session=FORK)
    assert find_session(store, "1") == SESSION
    assert find_session(store, f" {FORK.upper()} ") == FORK
    assert find_session(store, FORK + ".jsonl") == FORK


def test_an_ambiguous_beginning_lists_the_sessions(store):
    for number in range(12):
        add_turn(store, "x", session=f"abc{number:02}", ts=NOW + number)
    with pytest.raises(UsageError, match=r"abc11.*abc04, \.\.\.") as caught:
        find_target([store], "abc")
    assert caught.value.exit_code == 2


@each_row("wanted", ["nope", "", "  ", "999", "9" * 40, "-1", "²", "%", "\ud800", "\x00"])
def test_what_names_nothing_is_not_found(store, wanted):
    add_turn(store, "x")
    with pytest.raises(NotFoundError):
        find_target([store], wanted)


def test_a_number_is_a_hit_before_it_is_the_beginning_of_a_session(store):
    uuid = add_turn(store, "x", session="1000-digits")
    add_turn(store, "y", session="7")
    assert find_target([store], "1").chunk == chunk_id(store, uuid)
    assert find_target([store], "7") == ShowTarget(store.value("SELECT id FROM sessions WHERE session_id = '7'"))
    assert find_target([store], "1000").chunk is None


def test_a_line_is_found_by_its_uuid(store):
    uuid = add_turn(store, "x", uuid="3f0c9a52-1111-4000-8000-00000000beef")
    assert find_target([store], uuid).chunk == chunk_id(store, uuid)


def test_numbers_beyond_sqlite_are_no_chunks(store):
    assert place_of_chunk(store, 2**63) is None
    assert place_of_chunk(store, 0) is None


# --------------------------------------------------------------------------------------------------------- sessions


def test_sessions_are_listed_newest_first_with_their_first_words_or_title(store):
    add_turn(store, "a thought", role="thinking", session="old", ts=NOW - 5 * DAY - 1)
    add_turn(store, "Do  this:\n\n# fix  the\nlogin", session="old", ts=NOW - 5 * DAY)
    add_turn(store, "no human here", role="assistant", session="mid", ts=NOW - DAY)
    add_turn(store, "x", session="new", ts=NOW, title="Given title")
    found, notes = sessions([store])
    assert [(one.id, one.title, one.turns) for one in found] == [
        ("new", "Given title", 1),
        ("mid", "", 1),
        ("old", "fix the login", 2),
    ]
    assert notes == ()
    assert (found[2].project, found[2].branch, found[2].last_at) == ("shop", "main", NOW - 5 * DAY)


def test_what_goes_before_a_tool_call_is_no_answer(store):
    said = [("user", "go"), ("assistant", "Ran it: two failed."), ("user", "more"), ("assistant", "Let me look:")]
    for at, (role, text) in enumerate(said):
        add_turn(store, text, role=role, session="s", ts=NOW + at)
    assert last_answer(store, 1, 12) == "Let me look:"
    add_turn(store, "ls", role="tool_call", session="s", ts=NOW + 8)
    assert last_answer(store, 1, 40) == "Ran it: two failed."
    add_turn(store, "It is a typo.", role="assistant", session="s", ts=NOW + 9)
    assert last_answer(store, 1, 40) == "It is a typo."


def test_sessions_are_narrowed_by_project_and_time(store):
    for day in range(5):
        add_turn(
            store, "begins", session=f"s{day}", ts=NOW - day * DAY - HOUR, project="/code/a" if day % 2 else "/code/b"
        )
        add_turn(store, "ends", session=f"s{day}", ts=NOW - day * DAY, project="/code/a")
    ids = lambda **options: [one.id for one in sessions([store], **options)[0]]  # noqa: E731
    assert ids(project="A") == ["s1", "s3"]
    assert ids(project="/code") == ["s0", "s1", "s2", "s3", "s4"]
    assert ids(since=NOW - 2 * DAY) == ["s0", "s1", "s2"]
    assert ids(before=NOW - 2 * DAY) == ["s2", "s3", "s4"]
    assert ids(limit=2) == ["s0", "s1"]
    assert sessions([store], project="c") == ([], ("no project 'c'; known: b, a",))


def test_sessions_in_which_nothing_was_said_are_not_listed(store):
    store.execute("INSERT INTO sessions (session_id, agent, device) VALUES ('empty', 'cc-test', 'desk')")
    assert sessions([store]) == ([], ())


def test_a_limit_of_none_is_named(store):
    with pytest.raises(UsageError, match="0"):
        sessions([store], limit=0)
