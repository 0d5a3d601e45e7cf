"""Reuses the world of `tests/regression`: production classes on virtual time."""

from __future__ import annotations

import sys
from pathlib import Path

for folder in ("regression", "webhook"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / folder))
