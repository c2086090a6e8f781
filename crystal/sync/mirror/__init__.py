"""Maintain the mirror: a searchable copy of home's memory on every device. Specification: docs/spec/mirror.md.

``publishing`` and its helpers run on home, ``device`` on a device.
"""
