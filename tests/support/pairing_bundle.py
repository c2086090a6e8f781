"""A bundle as home gives it to a device."""

from __future__ import annotations

from crystal.sync.keys.bundle import Bundle
from crystal.sync.keys.derive import device_secret

SECRET = device_secret(bytes(range(32)), bytes(range(16)), 1)


def bundle(**more: object) -> Bundle:
    """Make a bundle with the usual fields, some of them replaced."""
    fields: dict = {
        "url": "https://relay.example.org",
        "token": "crt_0123456789ab_" + "A" * 43 + "_deadbeef",
        "device_id": bytes(range(16)),
        "generation": 1,
        "device_secret": SECRET,
        "up_prefix": b"upupupup",
        "down_prefix": b"downdown",
        "home_name": "mini",
        "device_name": "laptop",
    }
    return Bundle(**(fields | more))
