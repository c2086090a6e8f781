"""Which commands do something here."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crystal.work.command_ranking import MIN_CERTAINTY, SURE, CommandRun, rank_commands, steps
from tests.support.table import each_row


@each_row(
    ("line", "expected"),
    [
        ("cd /a && FOO=1 make test 2>&1 | tail -5", ("make test",)),
        ("git add -A && git commit -m 'run make deploy'", ("git add", "git commit")),
        ("git -C /a push origin main && git log", ("git push origin",)),
        ("cat <<'EOF' > a.sh make deploy EOF", ()),
        ("ls | grep x; echo done", ()),
        ("./scripts/deploy.sh prod", ("deploy.sh",)),
        ("npm run build:prod -- --fast", ("npm run build:prod",)),
        ("bun run build && deno task dev && bun scripts/x.ts", ("bun run build", "deno task dev", "bun x.ts")),
        ("python3 --version 2>/dev/null && node < a.js", ("python3", "node")),
        ("bash -x scripts/setup.sh prod && python -m pytest -q", ("bash setup.sh", "python pytest")),
        ("curl -sX POST -d @a.json 'https://me:x@api.example/v1/publish?x=1' | jq .", ("curl api.example/v1/publish",)),
        ("curl -T a.tgz https://a.example/ && wget -i x", ("curl a.example", "wget")),
        ("repo=$(gh repo view --json owner) && A=1 make test", ("gh repo view", "make test")),
    ],
)
def test_the_steps_of_a_command_are_what_does_something(line: str, expected: tuple[str, ...]) -> None:
    assert steps(line) == expected


def runs(*given: tuple[int, str, str]) -> list[CommandRun]:
    return [CommandRun(at, session, at, line, about) for at, (session, line, about) in enumerate(given)]


RUNS = runs(
    (1, "make ship", "Deploy to staging"), (2, "make ship 2>&1", "Deploy it"), (3, "make test", "Run tests before deploy"),
    (3, "git push", "Push"), (3, "ls deploy", "List the deploy folder"), (4, "make test -k x", ""),
    (5, "make ship | tail", "Deploy to staging"), (6, "make ship", "Deploying the shop"),
)  # fmt: skip


def test_a_command_is_found_by_what_agents_said_that_it_does() -> None:
    (first,) = (one for one in rank_commands(RUNS, "how do we deploy") if one.certainty >= SURE)
    assert (first.run.line, first.sessions, first.runs) == ("make ship", 4, 4)


def test_a_command_is_found_by_its_name() -> None:
    assert rank_commands(RUNS, "testing")[0].run.line == "make test -k x", "the latest run"
    assert [one.run.line for one in rank_commands(RUNS, "push")] == ["git push"]


def test_a_command_is_shown_in_the_form_that_most_sessions_used() -> None:
    known = runs((1, "make test 2>&1", ""), (2, "make test | tail -5", ""), (3, "make test", ""), (4, "make test", ""),
                 (5, "make test -k one", ""), (5, "make test -k one", ""), (6, "make test 2>&1 | grep -c x | head", ""))  # fmt: skip
    (one,) = rank_commands(known, "test")
    assert (one.run.line, one.run.session, one.sessions, one.runs) == ("make test", 4, 6, 7)


def test_a_pull_request_is_a_pr_and_each_address_its_own_command() -> None:
    known = [*RUNS, *runs((7, "gh pr create --title x", "Create draft PR"), (8, "gh pr create -t y", "Create pull request"),
                          *((at, f"curl -d @x https://a.example/{at}", f"Step {at}x") for at in range(9, 14)))]  # fmt: skip
    for question in ("create a pull request", "create pull-requests", "create PR"):
        assert rank_commands(known, question)[0].run.line.startswith("gh pr create"), question
    assert rank_commands(known, "step 11x")[0].run.line == "curl -d @x https://a.example/11"


def test_a_command_that_was_described_in_just_these_words_comes_first() -> None:
    known = [*runs(*((at, "make check", "Run unit tests and integration tests") for at in range(1, 9))),
             *runs(*((at, "make test", "Run unit tests") for at in range(7, 11)))]  # fmt: skip
    first = rank_commands(known, "run the unit tests again")[0]
    assert (first.run.line, first.certainty >= SURE) == ("make test", True)


def test_a_command_that_does_something_else_with_the_thing_is_no_answer() -> None:
    known = [*RUNS, *runs(*((at, "make smoke", "Run the integration checks") for at in range(1, 9)))]
    assert [one.run.line for one in rank_commands(known, "integration checks")] == ["make smoke"]
    assert rank_commands(known, "push integration checks") == [], "it does not push, as another command does"


def test_what_one_session_alone_ran_is_no_answer_where_others_do_what_is_asked() -> None:
    alone = runs((9, "./harness.sh", "Test the renames of files"))
    (only,) = rank_commands(alone, "test renames")
    assert only.run.line == "./harness.sh", "nobody else tests"
    usual = runs(*((at, "make check", "Run all tests") for at in range(1, 5)))
    assert rank_commands([*usual, *alone], "test renames") == []
    assert rank_commands([*usual, *alone], "test the renames of files")[0].run.line == "./harness.sh", (
        "in its own words"
    )


@given(st.text())
def test_what_nobody_did_has_no_answer(question: str) -> None:
    assert all(MIN_CERTAINTY <= one.certainty <= 1 for one in rank_commands(RUNS, question))
    assert rank_commands(RUNS, f"quokka {question * 0}") == rank_commands([], "deploy") == []
