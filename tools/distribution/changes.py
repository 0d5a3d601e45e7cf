"""What the changelog says about a version."""

from __future__ import annotations

import re


class NoEntry(Exception):
    """Says which heading is missing."""


def entry(changelog: str, version: str) -> str:
    """The section of the version; of one that is still under way (`.dev`), what is not released yet. Raises NoEntry."""
    heading = "Unreleased" if ".dev" in version else version
    sections = re.split(r"^(?=## \[)", changelog, flags=re.M)
    for section in sections:
        if section.startswith(f"## [{heading}]") and len(section.strip().splitlines()) > 1:
            return section.strip() + "\n"
    raise NoEntry(f"CHANGELOG.md has nothing under '## [{heading}]': say there what is new in {version}")
