"""Reuses the world of `lab/tests/scenes`: production classes on virtual time."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scenes"))
