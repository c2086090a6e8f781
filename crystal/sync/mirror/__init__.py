"""Mirror: a searchable copy of home's memory on every device. Specification: docs/spec/mirror.md.

``publish`` and its helpers run on home, ``Mirror`` on a device.
"""

from crystal.sync.mirror.device import Mirror, MirrorDamagedError, MirrorReport, MirrorRollbackError, MirrorStatus
from crystal.sync.mirror.listing import MirrorManifestError
from crystal.sync.mirror.publishing import manifest, on_told, publish, roll_key

__all__ = [
    "Mirror",
    "MirrorDamagedError",
    "MirrorManifestError",
    "MirrorReport",
    "MirrorRollbackError",
    "MirrorStatus",
    "manifest",
    "on_told",
    "publish",
    "roll_key",
]
