"""Keeps the trees of all modules only as long as a file of tests needs them: they take a lot of memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from source_tree import parsed


@pytest.fixture(autouse=True, scope="module")
def _trees() -> Iterator[None]:
    yield
    parsed.cache_clear()
