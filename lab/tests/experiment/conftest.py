"""The browser of the tests of pages."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "kubeshard" / "tests" / "kubectl"))
