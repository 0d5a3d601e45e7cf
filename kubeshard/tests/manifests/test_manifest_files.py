"""`deploy/` is generated from the typed source and never edited."""

from __future__ import annotations

from pathlib import Path

from render_manifests import ROOMS, rendered

ROOT = Path(__file__).resolve().parents[3]


def test_what_is_committed_is_what_make_manifests_writes() -> None:
    files = rendered()
    there = {
        str(path.relative_to(ROOT)) for room in ROOMS for path in (ROOT / room).rglob("*") if path.is_file()
    }
    assert there == {path for path in files if path.startswith(ROOMS)}
    assert not [path for path, text in files.items() if (ROOT / path).read_text() != text]
