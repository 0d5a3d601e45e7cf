"""The version of this distribution, which requests name in their User-Agent."""

from __future__ import annotations

__version__ = "0.1.0.dev0"
