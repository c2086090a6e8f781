"""List the memory programs whose stores ``crystal migrate`` imports, and where they keep them.

A new store needs only a row here and a reader: CONTRIBUTING.md, "A store for migrate".
"""

from crystal.config.harness import Harness, Place


def _store(name: str, title: str, *places: Place) -> Harness:
    return Harness(name, title, places, is_export=True, is_store=True, reader_version=3)


def _memory_crystal(file: str, *, below: str = ".") -> tuple[Place, ...]:
    """Return the two folders of memory-crystal: of later versions, and the legacy one."""
    homes = ((".ldm", "memory", "LDM_HOME"), (".openclaw", "memory-crystal", "OPENCLAW_HOME"))
    return tuple(
        Place(home, f"{folder}/{below}", (file,), variable, form="database") for home, folder, variable in homes
    )


MOVED = "memory-crystal.db"
"""Name of memory-crystal's database if it is in the same folder as crystal's own."""

MEMORY_CRYSTAL = "memory-crystal"
LANCEDB = "lancedb"
_STORES = (
    _store(MEMORY_CRYSTAL, "memory-crystal", *_memory_crystal("crystal.db"), *_memory_crystal(MOVED)[:1]),
    _store(LANCEDB, "memory-crystal (LanceDB)", *_memory_crystal("chunks.lance", below="lance")),
    _store(
        "context-embeddings",
        "OpenClaw's context-embeddings",
        Place(".openclaw", "memory", ("context-embeddings.sqlite",), "OPENCLAW_HOME", form="database"),
    ),
    _store(
        "claude-mem",
        "claude-mem",
        Place(".claude-mem", ".", ("claude-mem.db",), "CLAUDE_MEM_DATA_DIR", form="database"),
    ),
    _store(
        "episodic-memory",
        "episodic-memory",
        *(
            Place(".config/superpowers", "conversation-index", ("db.sqlite",), variable, below, form="database")
            for variable, below in (
                ("EPISODIC_MEMORY_CONFIG_DIR", ""),
                ("PERSONAL_SUPERPOWERS_DIR", ""),
                ("XDG_CONFIG_HOME", "superpowers"),
            )
        ),
    ),
    _store(
        "deja-vu",
        "deja-vu",
        Place(".local/share", "deja", ("notes.jsonl",), "XDG_DATA_HOME", form="document"),
    ),
)

MEMORY_STORES = {one.name: one for one in _STORES}
