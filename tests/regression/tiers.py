"""Scenes of which `make test` runs one or a few, and `make test-system` the others."""

from __future__ import annotations

from typing import Any

import pytest


def further(*values: Any) -> list[Any]:
    """Returns parameters that are left to `make test-system`, because `make test` has others of the same test."""
    return [pytest.param(value, marks=pytest.mark.system) for value in values]
