"""Scenes of which `.ci/run` runs one or a few, and `make test-nightly` the others."""

from __future__ import annotations

from typing import Any

import pytest


def further(*values: Any) -> list[Any]:
    """Returns parameters that are left to `make test-nightly`, because `.ci/run` has others of the same test. A tuple
    is several parameters.
    """
    return [
        pytest.param(*(value if type(value) is tuple else (value,)), marks=pytest.mark.nightly)
        for value in values
    ]
