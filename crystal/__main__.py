"""``python -m crystal``: the same as the command ``crystal``."""

from crystal.cli.app import main

main()
