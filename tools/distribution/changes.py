"""What the changelog says about a version."""

from __future__ import annotations

import re


class NoEntry(Exception):
    """The changelog has no such entry. The message names the missing heading."""


def entry(changelog: str, version: str) -> str:
    """The version's section, or the unreleased one for a development version (`.dev`). Raises NoEntry."""
    heading = "Unreleased" if ".dev" in version else version
    sections = re.split(r"^(?=## \[)", changelog, flags=re.M)
    for section in sections:
        if section.startswith(f"## [{heading}]") and len(section.strip().splitlines()) > 1:
            return section.strip() + "\n"
    raise NoEntry(f"CHANGELOG.md has nothing under '## [{heading}]': describe there what is new in {version}")
