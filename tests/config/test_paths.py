from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.config import paths
from crystal.config.harnesses import Root, usual_roots
from crystal.config.json_file import read_regular
from crystal.config.paths import (
    Places,
    make_private_dir,
    open_to_others,
    resolve_places,
    write_private,
)
from crystal.config.register import register_agent, registered_agents
from crystal.config.working_folder import working_folder
from crystal.errors import CrystalError, DamagedError, UnavailableError, UsageError
from crystal.hook import event as hook
from tests.support.data_dir_cases import DATA_DIR_CASES, DataDirCase
from tests.support.table import each_row
from tests.support.threads import at_once

needs_no_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may enter every folder"
)


@pytest.fixture
def places(home: Path) -> Places:
    return resolve_places({}, home)


@pytest.fixture
def cwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cwd"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def is_private(path: Path) -> bool:
    return mode(path) == (0o700 if path.is_dir() else 0o600)


# ---------------------------------------------------------------------------------------------- where things are


@each_row("case", DATA_DIR_CASES)
def test_the_data_folder_is_where_the_table_says(case: DataDirCase, home: Path, cwd: Path) -> None:
    env, expected = case.build(home := home / case.name, cwd)
    assert resolve_places(env, home).data_dir == expected


@each_row("case", DATA_DIR_CASES)
def test_the_hook_finds_the_same_data_folder(case, home, cwd, monkeypatch):
    env, expected = case.build(home := home / case.name, cwd)
    monkeypatch.setenv("HOME", str(home))
    assert Path(hook.find_data_dir(env)) == expected


@each_row("case", DATA_DIR_CASES)
def test_an_explicit_data_folder_wins_over_everything(case: DataDirCase, home: Path, cwd: Path) -> None:
    env, _ = case.build(home := home / case.name, cwd)
    found = resolve_places(env, home, data_dir=Path("given"))
    assert (found.data_dir, found.data_dir_source) == (cwd / "given", "flag")


def test_every_place_has_its_usual_home(home: Path) -> None:
    found = resolve_places({}, home)
    assert found.ldm_home == home / ".ldm"
    assert found.db == home / ".ldm/memory/crystal.db"
    assert found.spool == home / ".ldm/memory/spool"
    assert found.machine_json == home / ".ldm/config.json"
    assert found.claude_dirs == (home / ".claude",)
    assert found.transcript_roots[0] == Root(home / ".claude/projects")
    assert found.transcript_roots == usual_roots(home)
    assert found.agent_folder("cc-mini") == home / ".ldm/agents/cc-mini/memory"
    assert found.data_dir_source == "default"


def test_variables_move_each_place(home: Path, cwd: Path) -> None:
    env = {"LDM_HOME": "l", "CLAUDE_CONFIG_DIR": "~/c", "CRYSTAL_CONFIG": "my.toml", "CRYSTAL_DATA_DIR": "/d"}
    found = resolve_places(env, home)
    assert (found.ldm_home, found.config_file) == (cwd / "l", cwd / "my.toml")
    assert found.claude_dirs == (home / "c",)
    assert found.data_dir_source == "environment CRYSTAL_DATA_DIR"


def test_the_source_tells_of_the_legacy_folder(home: Path) -> None:
    (home / ".openclaw/memory-crystal").mkdir(parents=True)
    assert resolve_places({}, home).data_dir_source.startswith("legacy folder")


def test_links_are_not_followed(home: Path) -> None:
    (home / "real").mkdir()
    (home / "link").symlink_to("real")
    assert resolve_places({"CRYSTAL_DATA_DIR": str(home / "link/d")}, home).data_dir == home / "link/d"


def test_a_tilde_with_the_name_of_nobody_is_refused(home: Path) -> None:
    with pytest.raises(UsageError, match=r"CRYSTAL_DATA_DIR is '~no-such-user-x/d'"):
        resolve_places({"CRYSTAL_DATA_DIR": "~no-such-user-x/d"}, home)


@pytest.mark.skipif(sys.platform == "win32", reason="a folder in use cannot be removed there")
def test_a_relative_path_in_a_vanished_folder_is_refused(home: Path, cwd: Path) -> None:
    cwd.rmdir()
    with pytest.raises(UsageError, match="LDM_HOME is 'l', relative to a current folder that no longer exists"):
        resolve_places({"LDM_HOME": "l"}, home)
    assert resolve_places({"LDM_HOME": "/l"}, home).ldm_home == Path("/l")


@needs_no_root
def test_a_folder_that_may_not_be_entered_is_no_crash(home: Path) -> None:
    (home / ".openclaw").mkdir(mode=0o000)
    assert resolve_places({}, home).data_dir == home / ".ldm/memory"


@pytest.mark.skipif(sys.platform == "win32", reason="platformdirs asks the registry there")
@pytest.mark.parametrize("xdg", [None, "", " ", "{home}/xdg"])
def test_the_settings_file_is_where_platformdirs_puts_it(xdg, home, monkeypatch):
    platformdirs = pytest.importorskip("platformdirs")
    if xdg is not None:
        monkeypatch.setenv("XDG_CONFIG_HOME", xdg.format(home=home))
    if xdg and sys.platform == "darwin":
        pytest.skip("versions of platformdirs differ there")
    found = resolve_places(os.environ, home).config_file
    assert found == platformdirs.user_config_path("crystal") / "config.toml"


def test_the_settings_folder_on_a_mac(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths.sys, "platform", "darwin")
    assert paths.user_config_dir({}, home) == home / "Library/Application Support/crystal"
    assert paths.user_config_dir({"XDG_CONFIG_HOME": "/x"}, home) == Path("/x/crystal")


@each_row("agent", ["a", "cc-mini", "cc-Laptop.2", "0", "A" * 64, "a..b", "a_"])
def test_agent_ids_of_harmless_letters_are_taken(agent: str, places: Places) -> None:
    assert places.agent_folder(agent).parent.name == agent


@each_row(
    "agent", ["", ".", "..", "../x", "a/b", "a\\b", "-a", ".a", "_a", "a b", "a\n", "a\0", "é", "A" * 65, "~", "a:b"]
)
def test_agent_ids_that_could_leave_their_folder_are_refused(agent: str, places: Places) -> None:
    with pytest.raises(UsageError, match="agent id"):
        places.agent_folder(agent)


@given(st.text(max_size=70))
def test_an_agent_folder_is_always_one_level_below_agents(agent: str) -> None:
    places = resolve_places({}, Path("/h"))
    try:
        folder = places.agent_folder(agent)
    except UsageError:
        return
    assert Path(os.path.normpath(folder)).relative_to("/h/.ldm/agents").parts == (agent, "memory")


# ------------------------------------------------------------------------------------------- private folders, files


def test_the_umask_makes_no_difference(home: Path) -> None:
    before = os.umask(0)
    try:
        for _ in range(2):
            make_private_dir(home / "a/b/c")
        write_private(home / "a/f", b"")
    finally:
        os.umask(before)
    assert all(is_private(home / part) for part in ("a", "a/b", "a/b/c", "a/f"))


def test_folders_that_were_there_keep_their_mode(home: Path) -> None:
    (home / "shared").mkdir(mode=0o755)
    before = mode(home / "shared")
    make_private_dir(home / "shared")
    make_private_dir(home / "shared/mine")
    assert mode(home / "shared") == before
    assert is_private(home / "shared/mine")


def test_a_folder_behind_a_link_is_a_folder(home: Path) -> None:
    (home / "real").mkdir()
    (home / "link").symlink_to("real")
    make_private_dir(home / "link/sub")
    assert (home / "real/sub").is_dir()


@pytest.mark.parametrize("below", ["f", "f/sub/sub"])
def test_a_file_in_the_way_of_a_folder_is_named(home: Path, below: str) -> None:
    (home / "f").touch()
    with pytest.raises(UsageError, match=f"{home}/f is not a folder"):
        make_private_dir(home / below)


def test_a_dangling_link_in_the_way_is_named(home: Path) -> None:
    (home / "link").symlink_to("nowhere")
    with pytest.raises(UsageError, match="link"):
        make_private_dir(home / "link")


@needs_no_root
def test_a_folder_that_the_system_refuses_is_unavailable(home: Path) -> None:
    (home / "locked").mkdir(mode=0o500)
    with pytest.raises(UnavailableError, match="permission denied"):
        make_private_dir(home / "locked/x")
    with pytest.raises(UnavailableError, match="permission denied"):
        write_private(home / "locked/x", b"")


def test_many_may_make_the_same_folder_at_once(home: Path) -> None:
    failures: list[Exception] = []

    def make() -> None:
        try:
            make_private_dir(home / "a/b/c/d/e")
        except (OSError, CrystalError) as error:
            failures.append(error)

    at_once(*[make] * 8)
    assert failures == []
    assert (home / "a/b/c/d/e").is_dir()


def test_writing_replaces_the_whole_file_and_narrows_it(home: Path) -> None:
    file = home / "f"
    file.write_bytes(b"a much longer text")
    file.chmod(0o644)
    write_private(file, b"new")
    assert file.read_bytes() == b"new"
    assert is_private(file)
    assert [path.name for path in home.iterdir()] == ["f"]


def test_writing_through_a_link_keeps_the_link(home: Path) -> None:
    (home / "dotfiles").mkdir()
    (home / "dotfiles/f").write_bytes(b"old")
    (home / "f").symlink_to("dotfiles/f")
    write_private(home / "f", b"new")
    assert (home / "f").is_symlink()
    assert (home / "dotfiles/f").read_bytes() == b"new"


@pytest.mark.parametrize("step", ["fsync", "replace", "write"])
def test_a_failed_write_leaves_the_old_file_and_no_litter(step, home, monkeypatch):
    (home / "f").write_bytes(b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    if step == "fsync":
        monkeypatch.setattr(paths.os, "fsync", fail)
    elif step == "replace":
        monkeypatch.setattr(Path, "replace", fail)
    else:
        monkeypatch.setattr(paths.os, "fdopen", fail)
    with pytest.raises(UnavailableError, match="no space left") as caught:
        write_private(home / "f", b"new")
    monkeypatch.undo()
    assert str(home / "f") in caught.value.message
    assert (home / "f").read_bytes() == b"old"
    assert [path.name for path in home.iterdir()] == ["f"]


def test_open_to_others_sees_any_foreign_right(home: Path) -> None:
    (home / "f").touch()
    for bits, expected in ((0o600, False), (0o400, False), (0o640, True), (0o604, True), (0o620, True)):
        (home / "f").chmod(bits)
        assert open_to_others(home / "f") is expected
    assert open_to_others(home / "absent") is False


# ------------------------------------------------------------------------------------------------- the register


def test_a_first_agent_makes_the_register(places: Places) -> None:
    assert registered_agents(places) == ()
    assert register_agent(places, "cc-laptop") is True
    assert json.loads(places.machine_json.read_text()) == {"version": 1, "agents": ["cc-laptop"]}
    assert is_private(places.machine_json)
    assert is_private(places.ldm_home)
    assert registered_agents(places) == ("cc-laptop",)


def test_registering_twice_changes_nothing(places: Places) -> None:
    register_agent(places, "cc-laptop")
    before = places.machine_json.stat()
    assert register_agent(places, "cc-laptop") is False
    assert places.machine_json.stat().st_mtime_ns == before.st_mtime_ns
    assert places.machine_json.stat().st_ino == before.st_ino


def test_what_others_wrote_into_the_register_stays(places: Places) -> None:
    make_private_dir(places.ldm_home)
    old = {"agents": ["cc-mini"], "createdAt": "2025-01-01", "version": "1.0.0", "näme": {"deep": [1, None]}}
    places.machine_json.write_text(json.dumps(old))
    assert register_agent(places, "cc-laptop") is True
    assert json.loads(places.machine_json.read_text()) == {**old, "agents": ["cc-mini", "cc-laptop"]}


def test_a_register_without_agents_gets_them(places: Places) -> None:
    make_private_dir(places.ldm_home)
    places.machine_json.write_text('{"createdAt": "x"}')
    register_agent(places, "cc-laptop")
    found = json.loads(places.machine_json.read_text())
    assert found == {"version": 1, "createdAt": "x", "agents": ["cc-laptop"]}


@each_row(
    "damage",
    [b"", b"{", b"[]", b'"x"', b"\xff\xfe", b'{"agents": {}}', b'{"agents": [1]}', b'{"agents": "cc"}', b"[" * 100_000],
)
def test_a_damaged_register_is_refused_and_left_alone(damage: bytes, places: Places) -> None:
    make_private_dir(places.ldm_home)
    places.machine_json.write_bytes(damage)
    for act in (registered_agents, lambda each: register_agent(each, "cc-laptop")):
        with pytest.raises(DamagedError, match=str(places.machine_json)) as caught:
            act(places)
        assert caught.value.hint
    assert places.machine_json.read_bytes() == damage


def test_a_bad_agent_id_never_reaches_the_register(places: Places) -> None:
    with pytest.raises(UsageError):
        register_agent(places, "../x")
    assert not places.ldm_home.exists()


@pytest.mark.slow
def test_agents_registered_at_once_are_all_kept(places: Places) -> None:
    code = (
        "import sys; from pathlib import Path; from crystal.config.paths import resolve_places;"
        "from crystal.config.register import register_agent;"
        "[register_agent(resolve_places({}, Path(sys.argv[1])), f'{sys.argv[2]}-{n}') for n in range(5)]"
    )
    home = str(places.ldm_home.parent)
    workers = [subprocess.Popen([sys.executable, "-c", code, home, name]) for name in "abcd"]
    assert [worker.wait() for worker in workers] == [0] * 4
    assert sorted(registered_agents(places)) == sorted(f"{name}-{n}" for name in "abcd" for n in range(5))


@pytest.mark.parametrize("harness", ["opencode", "goose", "zed"])
def test_programs_that_keep_data_in_the_usual_folder_follow_its_variable(tmp_path: Path, harness: str) -> None:
    usual = [root.folder for root in resolve_places({}, tmp_path).transcript_roots if root.harness == harness]
    moved = resolve_places({"XDG_DATA_HOME": str(tmp_path / "data")}, tmp_path).transcript_roots
    data = tmp_path / ".local" / "share"
    expected = [tmp_path / "data" / one.relative_to(data) if one.is_relative_to(data) else one for one in usual]
    assert any(one.is_relative_to(data) for one in usual)
    assert [root.folder for root in moved if root.harness == harness] == expected


def test_a_working_folder_goes_also_if_its_process_was_killed(tmp_path: Path) -> None:
    work = tmp_path / "work"
    script = "import os, sys; from pathlib import Path; from crystal.config.working_folder import working_folder as w\n"
    script += "with w(Path(sys.argv[1])) as folder: (folder / 'a').touch(); print(flush=True); input(); os.kill(os.getpid(), 9)"
    with subprocess.Popen([sys.executable, "-c", script, work], stdin=-1, stdout=-1) as other:
        assert other.stdin
        assert other.stdout
        other.stdout.readline()
        (left,) = work.glob("*/a")
        renamed = left.parent.with_name("1234567890-another-container")  # its number means no process, or another, here
        left.parent.rename(renamed)
        with working_folder(work) as one:
            assert {*work.iterdir()} == {one, renamed}
        other.communicate(b"\n")
    assert (renamed / "a").exists()
    with working_folder(work) as one, working_folder(work) as two:
        assert {*work.iterdir()} == {one, two}
    assert not [*work.iterdir()]


@pytest.mark.skipif(sys.platform == "win32", reason="no pipes")
def test_a_pipe_in_place_of_a_file_is_named_and_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "config.json"
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match="is not a regular file") as refused:
        read_regular(pipe)
    assert refused.value.hint == f"mv {pipe} {pipe}.old"
    with pytest.raises(UsageError, match="is not a regular file") as refused:
        read_regular(Path(os.devnull))  # else a settings file there would be replaced by one of crystal's
    assert refused.value.hint == "choose another path: this is a device of the system"
