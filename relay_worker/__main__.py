"""Run the command line of ``crystal-relay``: serve, and the operator's commands."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from relay_worker.errors import CannotServeError, RequestRefusedError

PACKAGES = ("anyio", "httptools", "prometheus-client", "uvicorn", "uvloop")
"""Packages that the server needs besides the client: the extra ``relay`` of pyproject.toml."""

try:
    from relay_worker import commands
    from relay_worker.services import wall_clock
    from relay_worker.serving import serve
    from relay_worker.settings import Settings, load, read_value
except ModuleNotFoundError as error:  # installed without the extra
    sys.stderr.write(f"crystal-relay: error: {error.name} is not installed\n")
    sys.stderr.write(f"crystal-relay: hint: {sys.executable} -m pip install {' '.join(PACKAGES)}\n")
    raise SystemExit(3) from None


def _parser() -> argparse.ArgumentParser:
    place = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    place.add_argument("--data-dir", help="where everything is kept")
    place.add_argument("--store", help="postgresql://user@host/database: keep everything there instead")
    place.add_argument("--bodies", help="s3://bucket/prefix: large bodies of --store (keys: AWS_ACCESS_KEY_ID, ...)")
    top = argparse.ArgumentParser(
        prog="crystal-relay",
        parents=[place],
        description="Stores sealed blobs for crystal. Configured by CRYSTAL_RELAY_*; crystal-relay check shows how.",
    )
    top.add_argument("--config", type=Path, help="TOML file (or CRYSTAL_RELAY_CONFIG)")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="COMMAND")

    one = verbs.add_parser("serve", parents=[place], help="serve until stopped")
    one.set_defaults(run=lambda settings, _: serve(settings))
    one.add_argument("--listen", help="host:port")
    one.add_argument("--metrics-listen", help="host:port, or off")
    one.add_argument("--behind-proxy", action="store_true", help="allow plain HTTP: a proxy in front speaks TLS")

    token = verbs.add_parser("token", help="make, list and revoke tokens")
    tokens = token.add_subparsers(dest="token_verb", required=True, metavar="COMMAND")
    one = tokens.add_parser("make", parents=[place], help="make a token and print it, this once")
    one.set_defaults(run=lambda settings, given: commands.make_token(settings, given, wall_clock()))
    one.add_argument("--label", required=True, help="for whom, e.g. home")
    one.add_argument("--scope", action="append", required=True, dest="scopes", help="home, pair, write:<prefix>, ...")
    one.add_argument("--account", default="default", help="the account (default: default)")
    one.add_argument("--create", action="store_true", help="make the relay's folder and database if there is none")
    one.add_argument("--json", action="store_true", dest="as_json")
    one = tokens.add_parser("list", parents=[place], help="list tokens")
    one.set_defaults(run=lambda settings, given: commands.list_tokens(settings, given.account, as_json=given.as_json))
    one.add_argument("--account", help="only of this account")
    one.add_argument("--json", action="store_true", dest="as_json", help="one object a line")
    one = tokens.add_parser("revoke", parents=[place], help="revoke a token")
    one.set_defaults(run=lambda settings, given: commands.revoke_token(settings, given.id, wall_clock()))
    one.add_argument("id", help="as listed")

    one = verbs.add_parser("check", parents=[place], help="print the configuration, and whether it would serve")
    one.set_defaults(run=lambda settings, given: commands.check(settings, as_json=given.as_json))
    one.add_argument("--json", action="store_true", dest="as_json")
    one = verbs.add_parser("health", help="ask the running relay whether it serves; exit code 0 or 4")
    one.set_defaults(run=lambda settings, given: commands.health(settings, ready=given.ready))
    one.add_argument("--ready", action="store_true", help="and whether it can store")
    one = verbs.add_parser("move", help="copy everything to another store; a second run copies only what changed")
    one.set_defaults(
        run=lambda _, given: commands.move(given.origin, given.target, given.origin_bodies, given.target_bodies)
    )
    one.add_argument("--from", required=True, dest="origin", help="a data directory, or postgresql://...")
    one.add_argument("--to", required=True, dest="target", help="a new folder, or an empty database")
    one.add_argument("--from-bodies", default="", dest="origin_bodies", help="s3://bucket/prefix: bucket of --from")
    one.add_argument("--to-bodies", default="", dest="target_bodies", help="s3://bucket/prefix: bucket of --to")
    one = verbs.add_parser("backup", parents=[place], help="copy everything into a new folder, while it serves")
    one.set_defaults(run=lambda settings, given: commands.back_up(settings, given.target))
    one.add_argument("target", type=Path)
    return top


def _settings(given: argparse.Namespace) -> Settings:
    settings = load(os.environ, given.config)
    if "data_dir" in given and "store" not in given:  # the option replaces the configured store
        settings = replace(settings, store="", bodies="")
    for name in ("data_dir", "store", "bodies", "listen", "metrics_listen"):
        value = getattr(given, name, None)
        if value is not None:
            changed = read_value(name, f"--{name.replace('_', '-')}", value)
            sources = {**settings.sources, name: "option"}
            settings = replace(settings, **{name: changed}, sources=sources)
    if getattr(given, "behind_proxy", False):
        settings = replace(settings, behind_proxy=True)
    return settings


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit: 0 done, 1 failed, 2 usage, 3 not set up, 4 not reachable, 5 not allowed."""
    try:
        given = _parser().parse_args(arguments)
        given.run(_settings(given), given)
    except CannotServeError as error:
        _complain(str(error), error.hint)
        sys.exit(error.exit_code)
    except RequestRefusedError as error:
        _complain(error.detail, "")
        sys.exit(2 if error.status == 400 else 1)
    except BrokenPipeError:
        # The reader closed the pipe: print nothing at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        _complain(f"{error.filename or 'disk'}: {error.strerror or error}", "check its permissions and its disk")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def _complain(message: str, hint: str) -> None:
    sys.stderr.write(f"crystal-relay: error: {message}\n")
    if hint:
        sys.stderr.write(f"crystal-relay: hint: {hint}\n")


if __name__ == "__main__":
    main()
