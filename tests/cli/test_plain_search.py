"""A search whose arguments are plain runs without typer, as if typer had read them."""

import pytest

from crystal.cli.app import load_command
from crystal.cli.plain_search import FLAGS, VALUES, arguments_of
from tests.project.test_architecture import modules_after
from tests.support.table import each_row


def test_the_options_are_those_of_the_command() -> None:
    known = [one for one in load_command("search").params if one.param_type_name == "option" and one.name != "help"]
    assert {name: one.name for one in known if not one.is_flag for name in one.opts} == VALUES
    assert {name: one.name for one in known if one.is_flag for name in one.opts} == FLAGS


@each_row(
    ("given", "is_plain"),
    [
        (["why", "is it red"], True),
        (["wörter", "--json", "-n", "3", "--since=2026-01-01", "--all"], True),
        (["--as-of", "30d", "x", "--role", "user", "--role=tool"], True),
        ([], True),
        (["x", "--help"], False),
        (["x", "-n3"], False),
        (["x", "-n=3"], False),
        (["--", "--json"], False),
        (["x", "--limit"], False),
        (["x", "--limit", "-3"], False),
        (["x", "--json=1"], False),
        (["x", "--nothing"], False),
        (["x", "\udcff"], False),
    ],
)
def test_plain_arguments_mean_what_typer_reads_in_them(given: list[str], is_plain: bool) -> None:
    found = arguments_of(given)
    assert (found is not None) is is_plain
    if found is not None:
        read = load_command("search").make_context("search", list(given)).params
        read["query"] = [*read["query"]]  # a tuple in older releases
        assert {name: value for name, value in read.items() if value} == {
            name: value for name, value in found.items() if value
        }


@pytest.mark.slow
@each_row(("given", "is_loaded"), [(["--all", "x"], False), (["-n", "many", "x"], True), (["x", "-h"], True)])
def test_typer_is_loaded_only_where_it_is_needed(store, given: list[str], is_loaded: bool) -> None:
    code = "import sys, contextlib\nfrom crystal.__main__ import main\n"
    code += f"sys.argv = ['crystal', 'search', *{given}]\nwith contextlib.suppress(SystemExit): main()"
    assert ("typer" in modules_after(code)) is is_loaded
