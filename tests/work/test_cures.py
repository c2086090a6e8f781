"""What cured an error: the edits of its file, or commands, until the same command succeeded."""

from __future__ import annotations

from crystal.work.cures import WorkStep, find_cure, find_right_usage
from tests.support.table import each_row

EDIT, OTHER, RUN, INSTALL, LOOK = "src/cart.py", "src/shop.py", "make test", "pip install yaml", "cat cart.py"


def step(turn: int, what: str, code: int | None = 0) -> WorkStep:
    return WorkStep(turn, 0, what.endswith(".py") and " " not in what, what, hash(what), code)


@each_row(
    ("file", "after", "cured_by"),
    [
        ("cart.py", [(EDIT, 0), (OTHER, 0), (RUN, 0)], [EDIT]),
        ("cart.py", [(EDIT, 0), (RUN, 1), (EDIT, 0), (RUN, 0)], [EDIT, EDIT]),  # it failed with something else
        ("cart.py", [(EDIT, 0), (RUN, 2), (EDIT, 0), (RUN, 0)], None),  # it failed so again
        ("cart.py", [(OTHER, 0), (RUN, 0)], None),
        (None, [(EDIT, 0), (RUN, 0)], None),
        (None, [(LOOK, 0), (INSTALL, 0), (RUN, 0)], [INSTALL]),
        ("cart.py", [(INSTALL, 0), (RUN, 0)], [INSTALL]),
        (None, [("chmod +x run.sh", 0), (RUN, 0)], ["chmod +x run.sh"]),
        (None, [("kill $(lsof -ti :3000)", 0), (RUN, 0)], ["kill $(lsof -ti :3000)"]),
        (None, [(LOOK, 0), (RUN, 0)], None),
        (None, [(f"cd /a && {INSTALL} && {RUN} 2>&1 | tail -5", 0)], [f"cd /a && {INSTALL} && {RUN} 2>&1 | tail -5"]),
        (None, [("make docs", 0), (f"{INSTALL} && {RUN}", 0)], ["make docs", f"{INSTALL} && {RUN}"]),
        (None, [(f"{INSTALL} && {RUN}", 2), (INSTALL, 0), (RUN, 0)], None),  # it failed so again
        ("cart.py", [(EDIT, 0), (f"{INSTALL} && {RUN}", 0)], [EDIT]),
        ("cart.py", [(OTHER, 0), (f"{INSTALL} && {RUN}", 0)], None),
        (None, [(f"{LOOK} && {RUN}", 0)], None),
        (None, [(f"echo 'first && {RUN}", 0)], None),
        (None, [(f"{INSTALL} || {RUN}", 0)], None),
        (None, [(f"{INSTALL} && {RUN} docs", 0)], None),
        (None, [(INSTALL, 1), (RUN, 0)], None),
        (None, [(RUN, 0)], None),  # it went away by itself
        ("cart.py", [(EDIT, 0), (RUN, None)], None),
        ("cart.py", [(EDIT, 0)], None),
    ],
)  # fmt: skip
def test_what_was_done_until_the_command_succeeded(
    file: str | None, after: list[tuple[str, int | None]], cured_by: list[str] | None
) -> None:
    failed, later = step(0, RUN, 1), [step(turn, *one) for turn, one in enumerate(after, 1)]
    again = {0, *(one.turn for one in later if one.exit == 2)}
    found = find_cure(failed, again, file, later)
    assert (found and [one.what for one in found.done]) == cured_by
    assert found is None or found.succeeded == later[-1]


def test_an_error_without_a_place_is_of_the_file_that_its_command_names() -> None:
    command = f"run --file={EDIT}"
    found = find_cure(step(0, command, 1), {0}, None, [step(1, OTHER), step(2, EDIT), step(3, command)])
    assert found is not None
    assert [one.what for one in found.done] == [EDIT]
    several = f"make it && {command}"
    assert find_cure(step(0, several, 1), {0}, None, [step(1, EDIT), step(2, several)]) is None


def test_a_script_of_the_same_shell_is_another_command() -> None:
    found = find_cure(step(0, "sh check.sh", 1), {0}, None, [step(1, "sh setup.sh"), step(2, "sh check.sh")])
    assert found is not None
    assert [one.what for one in found.done] == ["sh setup.sh"]


def test_only_the_last_commands_are_told() -> None:
    later = [*(step(turn, f"make t{turn}") for turn in range(1, 9)), step(9, RUN)]
    found = find_cure(step(0, RUN, 1), {0}, None, later)
    assert found is not None
    assert [one.what for one in found.done] == ["make t6", "make t7", "make t8"]


def test_the_last_part_of_a_command_that_succeeds_tells_that_it_was_cured() -> None:
    failed = step(0, f"make fmt && {RUN}", 1)
    found = find_cure(failed, {0}, "cart.py", [step(1, EDIT), step(2, f"cd /a && {RUN} 2>&1")])
    assert found is not None
    assert [one.what for one in found.done] == [EDIT]
    assert find_cure(failed, {0}, "cart.py", [step(1, EDIT), step(2, "make fmt")]) is None
    assert find_cure(failed, {0, 2}, "cart.py", [step(1, EDIT), step(2, RUN, 1), step(3, RUN)]) is None, "it came again"


@each_row(
    ("command", "after", "cured_by"),
    [
        ("git show --no-stat HEAD", ["git show HEAD"], "git show HEAD"),
        ("gh pr diff 7 --stat", ["gh pr view 7", "cd /a && gh pr diff 7 --name-only"], "cd /a && gh pr diff 7 --name-only"),
        ("gh pr diff 7 --stat", ["gh pr view 7", "gh pr list"], None),
        ("gh pr diff 7 --stat", ["gh pr diff 8 --stat"], None),  # it has the same options
        ("gh pr diff 7 --stat", [EDIT, "gh pr diff 7"], None),
        ("gh pr diff 7 --stat", ["ls"] * 4 + ["gh pr diff 7"], None),  # too late
        ("ls x | cat -A", ["ls x"], None),  # which of them refused it?
        ("cat -A x", ["sed -n l x"], None),
    ],
)  # fmt: skip
def test_after_a_wrong_option_the_next_run_without_it_is_the_cure(
    command: str, after: list[str], cured_by: str | None
) -> None:
    found = find_right_usage(step(0, command, 1), [step(turn, one) for turn, one in enumerate(after, 1)])
    assert (found and found.succeeded.what) == cured_by
