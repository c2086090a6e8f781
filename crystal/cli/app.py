"""The terminal's door: parse, call one function, render. Also the edge where errors become words and exit codes."""

from __future__ import annotations

import sys

import typer

from crystal.errors import CrystalError

app = typer.Typer(
    name="crystal",
    help="The memory of your coding agent: every conversation kept, private, and found again.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def report(error: CrystalError) -> int:
    """Print an error the way every command does, and give its exit code."""
    print(f"crystal: error: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"crystal: hint: {error.hint}", file=sys.stderr)
    return error.exit_code


def main() -> None:
    """Run the command line; the process ends with the documented exit code."""
    try:
        app()
    except CrystalError as error:
        sys.exit(report(error))
    except KeyboardInterrupt:
        sys.exit(130)
