"""Where the store is: one table for ``crystal.config.paths`` and for ``crystal.hook``, which repeats the rule in few lines.

``{home}`` and ``{cwd}`` stand for two folders of the test; a name in ``makes`` that ends with ``/`` is a folder.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class DataDirCase:
    name: str
    expected: str
    env: dict[str, str] = field(default_factory=dict)
    makes: tuple[str, ...] = ()
    is_other: bool = False

    def build(self, home: Path, cwd: Path) -> tuple[dict[str, str], Path]:
        """Make the folders and files; give the environment (with HOME) and the expected folder."""
        for name in self.makes:
            path = Path(name.format(home=home, cwd=cwd))
            (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
            if not name.endswith("/"):
                path.write_bytes(OTHER if self.is_other else b"")
        env = {name: value.format(home=home, cwd=cwd) for name, value in self.env.items()}
        return {"HOME": str(home), **env}, Path(self.expected.format(home=home, cwd=cwd))


OTHER = b"SQLite format 3\0".ljust(40, b"\1") + b"\0\0\0\7".ljust(60, b"\0")
"""The beginning of a database that another program has made."""
LEGACY = "{home}/.openclaw/memory-crystal/"

DATA_DIR_CASES = [
    DataDirCase("nothing is set", "{home}/.ldm/memory"),
    DataDirCase("CRYSTAL_DATA_DIR wins", "{home}/d", {"CRYSTAL_DATA_DIR": "{home}/d", "LDM_HOME": "{home}/l"}),
    DataDirCase(
        "CRYSTAL_DATA_DIR wins over both stores",
        "{home}/d",
        {"CRYSTAL_DATA_DIR": "{home}/d"},
        ("{home}/.ldm/memory/crystal.db", LEGACY + "crystal.db"),
    ),
    DataDirCase("CRYSTAL_DATA_DIR need not exist", "/no/such/place", {"CRYSTAL_DATA_DIR": "/no/such/place"}),
    DataDirCase("CRYSTAL_DATA_DIR with tilde", "{home}/my/d", {"CRYSTAL_DATA_DIR": "~/my/d"}),
    DataDirCase("CRYSTAL_DATA_DIR is the tilde alone", "{home}", {"CRYSTAL_DATA_DIR": "~"}),
    DataDirCase("CRYSTAL_DATA_DIR with a slash behind", "{home}/d", {"CRYSTAL_DATA_DIR": "{home}/d/"}),
    DataDirCase("CRYSTAL_DATA_DIR with dots", "{home}/d", {"CRYSTAL_DATA_DIR": "{home}/x/../d/."}),
    DataDirCase("CRYSTAL_DATA_DIR is relative", "{cwd}/d", {"CRYSTAL_DATA_DIR": "d"}),
    DataDirCase("a tilde inside is a letter", "{cwd}/a~b/~", {"CRYSTAL_DATA_DIR": "a~b/~"}),
    DataDirCase("spaces belong to the name", "{home}/my data ", {"CRYSTAL_DATA_DIR": "{home}/my data "}),
    DataDirCase("other scripts belong to the name", "{home}/päť 記", {"CRYSTAL_DATA_DIR": "{home}/päť 記"}),
    DataDirCase("empty CRYSTAL_DATA_DIR is unset", "{home}/.ldm/memory", {"CRYSTAL_DATA_DIR": ""}),
    DataDirCase("blank CRYSTAL_DATA_DIR is unset", "{home}/.ldm/memory", {"CRYSTAL_DATA_DIR": " \t"}),
    DataDirCase("LDM_HOME moves the tree", "{home}/l/memory", {"LDM_HOME": "{home}/l"}),
    DataDirCase("LDM_HOME with tilde", "{home}/l/memory", {"LDM_HOME": "~/l"}),
    DataDirCase("LDM_HOME is relative", "{cwd}/l/memory", {"LDM_HOME": "./l"}),
    DataDirCase("empty LDM_HOME is unset", "{home}/.ldm/memory", {"LDM_HOME": ""}),
    DataDirCase("legacy alone", LEGACY, makes=(LEGACY,)),
    DataDirCase("legacy beside a tree without a store", LEGACY, makes=(LEGACY + "crystal.db", "{home}/.ldm/memory/")),
    DataDirCase("legacy of another program", "{home}/.ldm/memory", makes=(LEGACY + "crystal.db",), is_other=True),
    DataDirCase("legacy beside a new store", "{home}/.ldm/memory", makes=(LEGACY, "{home}/.ldm/memory/crystal.db")),
    DataDirCase("legacy that is a file", "{home}/.ldm/memory", makes=("{home}/.openclaw/memory-crystal",)),
    DataDirCase("only the folder above legacy", "{home}/.ldm/memory", makes=("{home}/.openclaw/",)),
    DataDirCase("legacy and an LDM_HOME without a store", LEGACY, {"LDM_HOME": "{home}/l"}, (LEGACY,)),
    DataDirCase(
        "legacy and an LDM_HOME with a store",
        "{home}/l/memory",
        {"LDM_HOME": "{home}/l"},
        (LEGACY, "{home}/l/memory/crystal.db"),
    ),
    DataDirCase(
        "OPENCLAW_HOME moves legacy",
        "{home}/claw/memory-crystal",
        {"OPENCLAW_HOME": "{home}/claw"},
        ("{home}/claw/memory-crystal/", LEGACY),
    ),
    DataDirCase("OPENCLAW_HOME without a store", "{home}/.ldm/memory", {"OPENCLAW_HOME": "{home}/claw"}, (LEGACY,)),
    DataDirCase("empty OPENCLAW_HOME is unset", LEGACY, {"OPENCLAW_HOME": ""}, (LEGACY,)),
]
