"""The mirror: home's memory, ready to be searched, on every device. docs/spec/mirror.md says how.

``publish`` and what goes with it are home's; ``Mirror`` is a device's.
"""

from crystal.sync.mirror.device import Mirror, MirrorDamaged, MirrorReport, MirrorRollback, MirrorStatus
from crystal.sync.mirror.documents import AgentDocuments, Documents
from crystal.sync.mirror.listing import ManifestUnreadable
from crystal.sync.mirror.publishing import manifest, on_told, publish, roll_key

__all__ = [
    "AgentDocuments",
    "Documents",
    "ManifestUnreadable",
    "Mirror",
    "MirrorDamaged",
    "MirrorReport",
    "MirrorRollback",
    "MirrorStatus",
    "manifest",
    "on_told",
    "publish",
    "roll_key",
]
