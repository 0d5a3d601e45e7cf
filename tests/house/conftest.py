"""Keeps the trees of all modules only as long as these tests run: they take 4 s of processor time, and 180 MiB."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from source_tree import parsed, walked


@pytest.fixture(autouse=True, scope="package")
def _trees() -> Iterator[None]:
    yield
    parsed.cache_clear()
    walked.cache_clear()
