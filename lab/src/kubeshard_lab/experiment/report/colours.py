"""Colours by name. Charts are drawn in the light ones; on a page each becomes a variable, so that one drawing serves
light, dark and print.

The colours of lines can be told apart with any kind of colour blindness, and stand out from their ground by 3:1.
"""

from __future__ import annotations

import re

LIGHT = {
    "ground": "#fefefe",
    "wash": "#f4f6f8",
    "ink": "#1c2430",
    "faint": "#5c6672",
    "rule": "#dde2e8",
    "blue": "#0b6fb8",
    "vermilion": "#cf5300",
    "green": "#00875f",
    "purple": "#a8468f",
    "amber": "#a87900",
    "sky": "#2f98d3",
    "indigo": "#4b3b9b",
    "grey": "#707883",
    "good": "#1f7a45",
    "bad": "#c22f45",
    "unsure": "#8a5f00",
}
DARK = {
    "ground": "#12161c",
    "wash": "#1a2029",
    "ink": "#e6ebf2",
    "faint": "#9aa5b4",
    "rule": "#2c343f",
    "blue": "#5aa9f0",
    "vermilion": "#ff8a4c",
    "green": "#35c593",
    "purple": "#e08ccb",
    "amber": "#e3b341",
    "sky": "#8fd0f7",
    "indigo": "#a99cf0",
    "grey": "#a3acb8",
    "good": "#58c98a",
    "bad": "#f07585",
    "unsure": "#f0c245",
}
LINES = ("blue", "vermilion", "green", "purple", "amber", "sky", "indigo", "grey")
"""In the order in which lines take them."""

_NAMES = {colour: name for name, colour in LIGHT.items()}


def of_line(number: int) -> str:
    return LINES[number % len(LINES)]


def themed(svg: str) -> str:
    """The drawing with variables in place of colours."""
    return re.sub("|".join(_NAMES), lambda found: f"var(--{_NAMES[found[0]]})", svg, flags=re.IGNORECASE)


def variables(theme: dict[str, str]) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in theme.items())
