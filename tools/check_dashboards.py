"""Checks the dashboards against Grafana's published schema, in the form of its foundation SDK.

    pip install grafana-foundation-sdk && python tools/check_dashboards.py [FILE]...

The SDK's classes are generated from Grafana's schema, and drop what this does not know. So a file is read and written
again, and what is lost is a mistake. The SDK is not among the development dependencies, because nothing else needs it.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "deploy" / "monitoring"


def unknown(document: Any) -> list[str]:
    """The paths of what Grafana's schema does not know."""
    sdk = "grafana_foundation_sdk"
    importlib.import_module(f"{sdk}.cog.plugins").register_default_plugins()
    read = importlib.import_module(f"{sdk}.models.dashboard").Dashboard.from_json(document)
    written = importlib.import_module(f"{sdk}.cog.encoder").JSONEncoder().encode(read)
    return list(_lost(document, json.loads(written), "dashboard"))


def _lost(before: Any, after: Any, path: str) -> Iterator[str]:
    match before, after:
        case dict(), dict():
            for key, value in before.items():
                place = f"{path}.{key}"
                yield from _lost(value, after[key], place) if key in after else [place]
        case list(), list() if len(before) == len(after):
            for number, (one, other) in enumerate(zip(before, after, strict=True)):
                yield from _lost(one, other, f"{path}[{number}]")
        case _:
            if before != after:
                yield path


if __name__ == "__main__":
    failed = False
    for file in [Path(name) for name in sys.argv[1:]] or sorted(FOLDER.glob("*.json")):
        for place in unknown(json.loads(file.read_text())):
            print(f"{file.name}: {place}")
            failed = True
    sys.exit(failed)
