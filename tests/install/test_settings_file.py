"""Claude Code's settings file on disk: changed as a whole or not at all, and itself again afterwards."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from crystal.errors import UnavailableError, UsageError
from crystal.install.claude_settings.claude_file import (
    SettingsPlan,
    apply,
    backup_path,
    hook_line,
    hook_words,
    locations_to_bake,
    plan_install,
    plan_uninstall,
    read_facts,
)
from crystal.install.claude_settings.hooks import TIMEOUTS
from crystal.install.live import json_entries
from tests.support.settings_entries import COMMAND, FOREIGN, OLDER, ours
from tests.support.table import each_row


def install(file: Path, command: str, **options: Any) -> SettingsPlan:
    plan = plan_install(file, command, **options)
    apply(plan)
    return plan


def uninstall(file: Path) -> SettingsPlan:
    plan = plan_uninstall(file)
    apply(plan)
    return plan


@pytest.fixture
def file(home: Path) -> Path:
    folder = home / ".claude"
    folder.mkdir()
    return folder / "settings.json"


# --- the file


ORIGINALS = {
    "empty object": b"{}",
    "as the client writes": b'{\n  "model": "opus",\n  "env": {\n    "A": "b"\n  }\n}',
    "trailing newline": b'{\n  "model": "opus"\n}\n',
    "four spaces and CRLF": b'{\r\n    "model": "opus"\r\n}\r\n',
    "tabs": b'{\n\t"hooks": {\n\t\t"Stop": []\n\t}\n}',
    "byte order mark": b'\xef\xbb\xbf{"a": 1}',
    "byte order mark alone": b"\xef\xbb\xbf",
    "minified": b'{"a":1,"hooks":{"Stop":[{"hooks":[{"type":"command","command":"x"}]}]}}',
    "unicode": '{"a": "täglich 漢 \\ud83d \u2028", "b": 1.50}'.encode(),
    "numbers as written": b'{"big": 12345678901234567890, "one": 1.0, "e": 1E+2}',
    "nothing in it": b"",
    "only space": b" \n\t\n",
}


@each_row("original", ORIGINALS.values())
def test_a_file_is_itself_again_after_uninstalling(file: Path, original: bytes) -> None:
    file.write_bytes(original)
    file.chmod(0o640)
    assert install(file, COMMAND).changed
    assert read_facts(file).commands == {event: [COMMAND] for event in TIMEOUTS}
    assert file.read_bytes().startswith(b"\xef\xbb\xbf") == original.startswith(b"\xef\xbb\xbf")
    assert backup_path(file).read_bytes() == original
    installed = file.read_bytes()
    assert not install(file, COMMAND).changed
    assert file.read_bytes() == installed
    assert uninstall(file).changed
    assert file.read_bytes() == original
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert [path.name for path in file.parent.iterdir()] == ["settings.json"]
    assert not uninstall(file).changed


def test_a_file_that_was_not_there_goes_again(home: Path) -> None:
    file = home / "elsewhere" / ".claude" / "settings.json"
    install(file, COMMAND)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_bytes()) == {"hooks": {event: [ours(event)] for event in TIMEOUTS}}
    assert file.read_bytes().endswith(b"}\n")
    uninstall(file)
    assert list(file.parent.iterdir()) == []


def test_a_file_that_was_not_there_stays_when_others_use_it_now(file: Path) -> None:
    install(file, COMMAND)
    file.write_text(json.dumps({**json.loads(file.read_text()), "model": "opus"}, indent=2))
    uninstall(file)
    assert json.loads(file.read_text()) == {"model": "opus"}


def test_other_tools_hooks_added_meanwhile_stay(file: Path) -> None:
    file.write_text('{\n  "model": "opus"\n}\n')
    install(file, COMMAND)
    document = json.loads(file.read_text())
    document["hooks"]["Stop"][0]["hooks"].append(FOREIGN)  # even within our own group
    document["hooks"]["PreToolUse"] = [{"matcher": "Bash", "hooks": [FOREIGN]}]
    file.write_text(json.dumps(document, indent=4))
    uninstall(file)
    left = {"Stop": [{"hooks": [FOREIGN]}], "PreToolUse": [{"matcher": "Bash", "hooks": [FOREIGN]}]}
    assert file.read_text() == json.dumps({"model": "opus", "hooks": left}, indent=4)
    assert backup_path(file).read_text() == '{\n  "model": "opus"\n}\n'


def test_an_older_crystal_is_replaced_where_it_stands(file: Path) -> None:
    before = {"hooks": {"Stop": [{"hooks": [FOREIGN]}, ours("Stop", OLDER), {"hooks": [FOREIGN]}]}}
    before["hooks"]["Stop"][1]["hooks"][0]["timeout"] = 33  # somebody's own wish
    before["hooks"]["Notification"] = [{"hooks": [{"type": "command", "command": OLDER}]}]
    before["hooks"]["SessionEnd"] = [ours("SessionEnd", OLDER), ours("SessionEnd", OLDER)]
    file.write_text(json.dumps(before, indent=2))
    install(file, COMMAND)
    hooks = json.loads(file.read_text())["hooks"]
    assert hooks["Stop"][1]["hooks"][0] == {"type": "command", "command": COMMAND, "timeout": 33}
    assert hooks["Stop"][0] == hooks["Stop"][2] == {"hooks": [FOREIGN]}
    assert hooks["SessionEnd"] == [ours("SessionEnd")]
    assert set(hooks) == set(TIMEOUTS)
    assert not backup_path(file).exists()  # the file already held a change of ours


def test_the_backup_is_of_the_last_file_without_us(file: Path) -> None:
    file.write_text('{"first": 1}')
    install(file, COMMAND)
    install(file, OLDER)
    assert backup_path(file).read_text() == '{"first": 1}'
    file.write_text('{"second": 2}')  # somebody put back another file
    install(file, COMMAND)
    assert backup_path(file).read_text() == '{"second": 2}'
    file.unlink()
    install(file, COMMAND)
    assert not backup_path(file).exists()
    uninstall(file)
    assert [path.name for path in file.parent.iterdir()] == ["settings.json.crystal-backup-old"]


@each_row(
    "command",
    [
        "/opt/crystal/hook/main.python",
        "/opt/not-crystal/hook/main.py",
        "python crystal_hook.py",
        "/opt/crystal/other/hook.py",
        "echo crystal",
    ],
)
def test_commands_that_only_look_like_ours_are_left(file: Path, command: str) -> None:
    original = json.dumps({"hooks": {"Stop": [{"hooks": [{"type": "command", "command": command}]}]}})
    file.write_text(original)
    assert not plan_uninstall(file).changed
    install(file, COMMAND)
    assert command in [entry["hooks"][0]["command"] for entry in json.loads(file.read_text())["hooks"]["Stop"]]
    uninstall(file)
    assert file.read_text() == original


BROKEN = {  # with words of ours, or those that every Python has for it
    "trailing comma in an object": ('{"a": 1,}', 1, ""),
    "trailing comma in a list": ('{"a": [1,]}', 1, ""),
    "a comment": ('{\n  // mine\n  "a": 1}', 2, "column 3: a comment, which JSON does not allow"),
    "a comment after": ('{"a": 1} /* x */', 1, "column 10: a comment, which JSON does not allow"),
    "a key twice": ('{"a": 1,\r\n "a": 2}', 2, 'column 2: the key "a" a second time'),
    "hooks twice": ('{"hooks": {}, "hooks": {}}', 1, 'column 15: the key "hooks" a second time'),
    "a list": ("[]", 1, "column 1: the settings should be an object, but are a list"),
    "a string": ('"x"', 1, "column 1: the settings should be an object, but are a string"),
    "null": ("null", 1, "column 1: the settings should be an object, but are null"),
    "hooks a list": ('{"hooks": []}', 1, 'column 11: "hooks" should be an object, but is a list'),
    "hooks null": ('{"hooks": null}', 1, 'column 11: "hooks" should be an object, but is null'),
    "an event an object": ('{"hooks": {"Stop": {}}}', 1, 'column 20: "hooks.Stop" should be a list, but is an object'),
    "cut off": ('{"a": "b', 1, "column 7: unterminated string"),
    "cut off after a value": ('{"a": 1', 1, "column 8: expecting ','"),
    "two objects": ("{}\n{}", 2, "column 1: extra data"),
    "single quotes": ("{'a': 1}", 1, "column 2: expecting property name"),
    "no colon": ('{"a" 1}', 1, "column 6: expecting ':'"),
    "no comma": ('{"a": 1 "b": 2}', 1, "column 9: expecting ','"),
    "NaN": ('{"a": NaN}', 1, "column 7: NaN, which JSON does not allow"),
    "too deep": ('{"a":' + "[" * 100_000 + "]" * 100_000 + "}", 1, "nested too deeply"),
    "a long number": ('{"a": ' + "9" * 5000 + "}", 1, "a number with too many digits"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("text", "line", "problem"), BROKEN.values(), ids=BROKEN)
def test_what_the_client_could_not_read_is_refused_and_left(file: Path, text: str, line: int, problem: str) -> None:
    file.write_bytes(text.encode())
    with pytest.raises(UsageError) as refused:
        install(file, COMMAND)
    assert refused.value.message.startswith(f"{file}: line {line}, column ")
    assert problem in refused.value.message
    assert "nothing was changed" in (refused.value.hint or "")
    assert [path.name for path in file.parent.iterdir()] == ["settings.json"]
    assert file.read_bytes() == text.encode()
    assert not uninstall(file).changed  # nothing of ours is in it
    facts = read_facts(file)
    assert isinstance(facts.problem, UsageError)
    assert facts.commands == {}


def test_a_broken_file_with_us_in_it_is_not_called_clean(file: Path) -> None:
    install(file, COMMAND)
    whole = file.read_text()
    file.write_text(whole[:-3])
    with pytest.raises(UsageError, match="line 58, column 4"):
        uninstall(file)
    file.write_text("{ // mine\n" + whole[1:])
    with pytest.raises(UsageError, match="line 1, column 3: a comment, which JSON does not allow"):
        uninstall(file)


@pytest.mark.parametrize(("data", "column"), [(b'{"a": "\xff"}', 8), (b"\xff\xfe{\x00}\x00", 1)])
def test_bytes_that_are_not_utf8_are_refused_and_left(file: Path, data: bytes, column: int) -> None:
    file.write_bytes(data)
    with pytest.raises(UsageError, match=f"line 1, column {column}: not UTF-8"):
        install(file, COMMAND)
    assert file.read_bytes() == data


def test_odd_values_in_other_places_are_no_reason_to_refuse(file: Path) -> None:
    original = '{"hooks": {"PreToolUse": 1, "Stop": [1, {"hooks": 2}, {"hooks": [3, {"command": 4}]}, null]}}'
    file.write_text(original)
    install(file, COMMAND)
    assert json.loads(file.read_text())["hooks"]["Stop"][:4] == [1, {"hooks": 2}, {"hooks": [3, {"command": 4}]}, None]
    uninstall(file)
    assert file.read_text() == original


def test_a_link_stays_a_link(file: Path, tmp_path: Path) -> None:
    dotfiles = tmp_path / "dotfiles"
    dotfiles.mkdir()
    (dotfiles / "claude.json").write_text('{"a": 1}')
    file.symlink_to(dotfiles / "claude.json")
    install(file, COMMAND)
    assert file.is_symlink()
    assert COMMAND in (dotfiles / "claude.json").read_text()
    assert [path.name for path in dotfiles.iterdir()] == ["claude.json"]
    uninstall(file)
    assert file.is_symlink()
    assert file.read_text() == '{"a": 1}'


def test_a_link_to_nowhere_is_filled_and_emptied(file: Path, tmp_path: Path) -> None:
    file.symlink_to(tmp_path / "not yet" / "claude.json")
    install(file, COMMAND)
    assert file.is_symlink()
    assert COMMAND in file.read_text()
    uninstall(file)
    assert file.is_symlink()
    assert not file.exists()


def test_a_file_changed_meanwhile_is_not_overwritten(file: Path) -> None:
    file.write_text("{}")
    plan = plan_install(file, COMMAND)
    file.write_text('{"a": 1}')
    with pytest.raises(UnavailableError, match="changed by another program"):
        apply(plan)
    assert file.read_text() == '{"a": 1}'
    assert not backup_path(file).exists()


@pytest.mark.parametrize("call", ["fsync", "open", "fdopen"])
def test_a_disk_that_refuses_leaves_the_file_as_it_is(file: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    file.write_text("{}")
    plan = plan_install(file, COMMAND)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(UnavailableError, match="no space left"):
        apply(plan)
    monkeypatch.undo()
    assert file.read_text() == "{}"
    assert [path.name for path in file.parent.iterdir()] == ["settings.json"]


def test_a_folder_in_the_files_place_is_refused(file: Path) -> None:
    file.mkdir()
    with pytest.raises(UsageError, match="is not a regular file"):
        plan_install(file, COMMAND)
    assert isinstance(read_facts(file).problem, UsageError)


def test_the_plan_shows_what_comes_and_not_what_is_there(file: Path) -> None:
    file.write_text('{\n  "env": {\n    "OPENAI_API_KEY": "sk-secret"\n  }\n}\n')
    plan = plan_install(file, COMMAND)
    assert file.read_text().count("\n") == 5  # nothing was written
    diff = plan.diff()
    assert diff.startswith(f"{file}\n@@ line 4 @@\n")
    assert diff.count(COMMAND) == len(TIMEOUTS)
    assert "sk-secret" not in diff
    apply(plan)
    assert plan_install(file, COMMAND).diff() == f"{file}: nothing to change\n"
    away = plan_uninstall(file).diff()
    assert away.count(f'-             "command": "{COMMAND}"') == len(TIMEOUTS)
    assert "sk-secret" not in away
    file.unlink()
    assert plan_install(file, COMMAND).diff().startswith(f"{file} (new file)\n@@ line 1 @@\n+ {{\n")


def test_upgrading_shows_the_old_and_the_new_command(file: Path) -> None:
    install(file, OLDER)
    diff = plan_install(file, COMMAND).diff()
    assert diff.count("\n- ") == diff.count("\n+ ") == len(TIMEOUTS)


def test_facts_for_the_doctor(file: Path) -> None:
    assert (read_facts(file).exists, read_facts(file).commands) == (False, {})
    file.write_text('{"disableAllHooks": true, "cleanupPeriodDays": 0}')
    facts = read_facts(file)
    assert (facts.exists, facts.hooks_disabled, facts.cleanup_days, facts.problem) == (True, True, 0, None)
    install(file, COMMAND)
    assert read_facts(file).commands["Stop"] == [COMMAND]
    file.write_text("")
    assert read_facts(file).problem is None


def test_the_command_survives_the_shell(tmp_path: Path) -> None:
    awkward = tmp_path / 'it\'s a "folder" $HOME `x` \\ ünï'
    words = hook_line(hook_words(awkward / "python", awkward / "crystal" / "hook.py", {"LDM_HOME": str(awkward)}))
    expected = [
        str(awkward / "python"),
        "-I",
        "-S",
        str(awkward / "crystal" / "hook.py"),
        "--env",
        f"LDM_HOME={awkward}",
    ]
    assert shlex.split(words) == [*expected, "||", "true"]
    assert json_entries.is_ours(None, {"type": "command", "command": words})
    words_there = hook_words(Path("C:\\py\\python.exe"), Path("C:\\a b\\crystal\\hook\\main.py"), {})
    on_windows = hook_line(words_there, windows=True)
    assert on_windows == "C:/py/python.exe -I -S 'C:/a b/crystal/hook/main.py'"
    assert json_entries.is_ours(None, {"type": "command", "command": on_windows})


def test_the_command_succeeds_if_crystal_is_gone(tmp_path: Path) -> None:
    command = hook_line(hook_words(Path(sys.executable), tmp_path / "crystal" / "hook" / "main.py", {}))
    assert subprocess.run(["sh", "-c", command], input=b"{}", capture_output=True, check=False).returncode == 0


def test_a_path_that_is_not_utf8_cannot_be_installed(file: Path) -> None:
    with pytest.raises(UsageError, match="not UTF-8"):
        install(file, "/a\udcff/python -I -S /a/crystal/hook/main.py")
    assert not file.exists()


def test_locations_are_baked_absolute_and_only_if_set(home: Path) -> None:
    env = {"LDM_HOME": "~/x", "CRYSTAL_DATA_DIR": " ", "OPENAI_API_KEY": "sk-1", "CLAUDE_CONFIG_DIR": "/c/../d"}
    assert locations_to_bake(env, home) == {"LDM_HOME": str(home / "x"), "CLAUDE_CONFIG_DIR": "/d"}
