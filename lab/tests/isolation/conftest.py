"""Reuses the world of `lab/tests/scenes`: production classes on virtual time."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
for folder in ("lab/tests/scenes", "kubeshard/tests/webhook"):
    sys.path.insert(0, str(ROOT / folder))
