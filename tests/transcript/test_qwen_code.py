"""Claims about Qwen Code: either of two variables moves its chats, and a hook's note brings the subagents along."""

from __future__ import annotations

from pathlib import Path

from crystal.capture import finder
from crystal.capture.safe_open import Folders
from crystal.config.paths import resolve_places
from tests.support import agent_samples as samples


def folders_of(env: dict[str, str], home: Path) -> list[Path]:
    return [
        root.folder
        for root in resolve_places(env, home).transcript_roots
        if (root.harness, root.place.form) == ("qwen-code", "lines")
    ]


def test_either_variable_moves_the_chats_and_the_usual_folder_is_read_once(home: Path) -> None:
    usual = home / ".qwen" / "projects"
    assert folders_of({}, home) == [usual]
    assert folders_of({"QWEN_RUNTIME_DIR": "/run/qwen"}, home) == [usual, Path("/run/qwen/projects")]
    assert folders_of({"QWEN_HOME": "/q", "QWEN_RUNTIME_DIR": "/run/qwen"}, home) == [
        Path("/q/projects"),
        Path("/run/qwen/projects"),
    ]


def test_the_subagents_of_a_session_lie_beside_its_folder(home: Path) -> None:
    samples.lay_out("qwen-code", home)
    folders = Folders(resolve_places({}, home).transcript_roots)
    project = home / ".qwen" / "projects" / "-tmp-demo-project"
    path = project / "chats" / "87fa5058-6730-4827-9b58-7120b873c406.jsonl"
    found = finder.subagents_of(path, folders, finder.root_of(path, folders))
    assert [one.path for one in found] == sorted((project / "subagents").rglob("agent-*.jsonl"))
    assert len(found) == 1
