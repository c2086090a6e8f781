"""Mirror: a searchable copy of home's memory on every device. Specification: docs/spec/mirror.md.

``publish`` and its helpers run on home, ``Mirror`` on a device.
"""

from crystal.sync.mirror.device import Mirror, MirrorDamaged, MirrorReport, MirrorRollback, MirrorStatus
from crystal.sync.mirror.listing import ManifestUnreadable
from crystal.sync.mirror.publishing import manifest, on_told, publish, roll_key

__all__ = [
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
