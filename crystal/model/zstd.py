"""Offer zstd, which is part of Python from 3.14 on, and the package backports.zstd before."""

import sys

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["zstd"]
