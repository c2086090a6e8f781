"""Implement ``crystal completion``: print a script with which a shell completes commands and options."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from crystal.cli.app import COMPLETE_VARIABLE
from crystal.cli.options import argument


class Shell(str, Enum):
    """The supported shells."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, argument("bash, zsh or fish.", "SHELL", show_default=False)],
) -> None:
    """Print a script that lets your shell complete commands.

    bash: add to ~/.bashrc: eval "$(crystal completion bash)".
    zsh: add to ~/.zshrc, after compinit: eval "$(crystal completion zsh)".
    fish: crystal completion fish > ~/.config/fish/completions/crystal.fish.
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    print(get_completion_script(prog_name="crystal", complete_var=COMPLETE_VARIABLE, shell=shell.value))
