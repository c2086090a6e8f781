"""API keys from the system's keyring and from a command."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from crystal.credentials.api_keys import (
    KeyCommand,
    find_key,
    read_keyring,
    run_key_command,
)
from crystal.errors import CrystalError, NotConfiguredError, UsageError
from tests.support.key_places import KEY, program
from tests.support.table import each_row

# ------------------------------------------------------------------------------------------------- the keyring


def keyring_module(folder: Path, body: str) -> str:
    """A stand-in for the system's keyring: a back end of our own, as plug-ins are. Gives PYTHONPATH."""
    (folder / "backend_of_test.py").write_text(
        "from keyring.backend import KeyringBackend\n"
        "from keyring import errors\n"
        "class Ours(KeyringBackend):\n"
        "    priority = 1\n"
        "    def set_password(self, *_): raise NotImplementedError\n"
        "    delete_password = set_password\n"
        f"    def get_password(self, service, name):\n        {body}\n"
    )
    return str(folder)


def ask_keyring(home: Path, body: str) -> subprocess.CompletedProcess[str]:
    code = (
        "from crystal.credentials.api_keys import read_keyring\n"
        "from crystal.errors import NotConfiguredError\n"
        "try: print(read_keyring('crystal', 'openai'))\n"
        "except NotConfiguredError as error: print('NotConfiguredError:', error.message, '|', error.hint)\n"
    )
    env = {**os.environ, "PYTHONPATH": keyring_module(home, body), "PYTHON_KEYRING_BACKEND": "backend_of_test.Ours"}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)


@pytest.mark.slow
def test_the_keyring_is_asked_for_service_and_provider(home: Path) -> None:
    pytest.importorskip("keyring")
    assert ask_keyring(home, "return f'{service}:{name}'").stdout == "crystal:openai\n"


@pytest.mark.slow
@pytest.mark.parametrize("body", ["return None", "raise errors.NoKeyringError('none')"])
def test_a_keyring_without_the_key_has_none(body: str, home: Path) -> None:
    pytest.importorskip("keyring")
    assert ask_keyring(home, body).stdout == "None\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "failure", ["errors.KeyringLocked('sk-inside')", "errors.InitError('x')", "OSError('dbus')", "Exception('plug-in')"]
)
def test_a_keyring_that_fails_is_an_error_that_shows_nothing_of_it(failure: str, home: Path) -> None:
    pytest.importorskip("keyring")
    said = ask_keyring(home, f"raise {failure}").stdout
    assert said.startswith("NotConfiguredError: the system's keyring failed (")
    assert "credentials.keyring false" in said
    assert "sk-inside" not in said


def test_a_machine_without_any_keyring_has_no_key() -> None:
    assert read_keyring("crystal", "openai") is None


def test_without_the_package_there_is_no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    assert read_keyring("crystal", "openai") is None


def test_the_keyring_is_imported_only_when_it_is_reached(data: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from crystal.credentials.api_keys import find_key;"
        "find_key('openai', env={'OPENAI_API_KEY': 'k'}, data_dir=Path(sys.argv[1]));"
        "print('keyring' in sys.modules, 'rich' in sys.modules);"
    )
    said = subprocess.run([sys.executable, "-c", code, str(data)], capture_output=True, text=True, check=True)
    assert said.stdout == "False False\n"


# ------------------------------------------------------------------------------------------------- the command


def run(home: Path, body: str, **more: float) -> str:
    return run_key_command(KeyCommand(program(home, body), **more), "openai", {"HOME": str(home)})  # type: ignore[arg-type]


def test_the_command_gets_the_provider_and_its_first_line_is_the_key(home: Path) -> None:
    body = "import os, sys; print(sys.argv[1] + ':' + os.environ['CRYSTAL_KEY_PROVIDER'] + '\\r\\nsecond\\nthird')"
    assert run(home, body) == "openai:openai"


def test_no_shell_touches_the_command(home: Path) -> None:
    command = f"'{sys.executable}' -c 'import sys; print(sys.argv[1:])' $HOME `x` ; '|' '>y' * '{{provider}}-{{x}}'"
    said = run_key_command(KeyCommand(command), "openai", {})
    assert said == "['$HOME', '`x`', ';', '|', '>y', '*', 'openai-{x}']"
    assert not Path("y").exists()


def test_a_tilde_in_front_of_the_program_is_the_home(home: Path) -> None:
    script = home / "getkey"
    script.write_text("#!/bin/sh\necho from-home\n")
    script.chmod(0o700)
    assert run_key_command(KeyCommand("~/getkey"), "openai", {"HOME": str(home)}) == "from-home"


def test_the_command_has_nothing_to_read(home: Path) -> None:
    assert run(home, "import sys; print('end' + sys.stdin.read())") == "end"


@pytest.mark.parametrize("status", [1, 3, 127])
def test_a_failing_command_is_named_with_its_status_and_nothing_it_said(status, home, capfd):
    body = f"import sys; print('{KEY}'); print('{KEY}', file=sys.stderr); sys.exit({status})"
    with pytest.raises(NotConfiguredError) as caught:
        run(home, body)
    assert caught.value.message == f"CRYSTAL_KEY_COMMAND ({sys.executable}) ended with exit status {status}"
    assert KEY not in f"{caught.value.hint}{''.join(capfd.readouterr())}"


@pytest.mark.skipif(sys.platform == "win32", reason="no signals there")
def test_a_command_that_dies_is_named_with_its_signal(home: Path) -> None:
    with pytest.raises(NotConfiguredError, match="ended with signal 9"):
        run(home, "import os; os.kill(os.getpid(), 9)")


@each_row("body", ["", "print()", "print('  ')", "print('\\nsecond')"])
def test_a_command_that_prints_no_key_is_named(body: str, home: Path) -> None:
    with pytest.raises(NotConfiguredError, match="printed no key for openai"):
        run(home, body)


@pytest.mark.slow
def test_a_command_that_takes_too_long_is_ended(home: Path) -> None:
    begin = time.monotonic()
    with pytest.raises(NotConfiguredError, match=r"did not end within 0\.3 seconds"):
        run(home, f"import time; print('{KEY}', flush=True); time.sleep(600)", timeout=0.3)
    assert time.monotonic() - begin < 10


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no fork there")
def test_a_daemon_left_behind_holds_nobody_up(home: Path) -> None:
    body = "import os, time; print('key', flush=True)\nif os.fork() == 0: time.sleep(8)"
    begin = time.monotonic()
    assert run(home, body) == "key"
    assert time.monotonic() - begin < 6


def test_a_command_that_prints_without_end_is_stopped(home: Path) -> None:
    begin = time.monotonic()
    with pytest.raises(NotConfiguredError):
        run(home, "while True: print('x' * 1000)")
    assert time.monotonic() - begin < 10


@each_row("line", ["/no/such/program {provider}", "no-such-program-anywhere", "/"])
def test_a_program_that_cannot_be_run_is_named(line: str) -> None:
    with pytest.raises(NotConfiguredError, match=rf"CRYSTAL_KEY_COMMAND \({line.split(maxsplit=1)[0]}\)"):
        run_key_command(KeyCommand(line), "openai", {"PATH": os.environ["PATH"]})


@each_row("line", ["a 'b", 'a "b', "a \\"])
def test_a_line_that_is_no_command_is_a_wrong_value(line: str, data: Path) -> None:
    with pytest.raises(UsageError, match="CRYSTAL_KEY_COMMAND"):
        find_key("openai", env={}, data_dir=data, command=KeyCommand(line))


def test_an_empty_pair_of_quotes_is_no_command(data: Path) -> None:
    with pytest.raises(CrystalError, match="CRYSTAL_KEY_COMMAND"):
        find_key("openai", env={}, data_dir=data, command=KeyCommand("''"))


def test_a_key_of_the_command_that_cannot_be_one_is_refused_unshown(data: Path, home: Path) -> None:
    command = KeyCommand(program(home, "print('error: not signed in')"))
    with pytest.raises(NotConfiguredError) as caught:
        find_key("openai", env={}, data_dir=data, command=command)
    assert "not signed in" not in caught.value.message
