"""The repository contains no private key (D9 in docs/defects.md): tests and programs generate theirs on demand."""

from __future__ import annotations

import re

import pytest
from source_tree import texts

_PRIVATE_KEY = re.compile(r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----\s+[A-Za-z0-9+/=]{40}")


def test_no_private_key_is_in_the_tree() -> None:
    assert not [path for path, text in texts() if _PRIVATE_KEY.search(text)]


@pytest.mark.parametrize("kind", ["", "RSA ", "EC ", "ENCRYPTED "])
def test_the_search_finds_a_key(kind: str) -> None:
    assert _PRIVATE_KEY.search(f"-----BEGIN {kind}PRIVATE KEY-----\n" + 64 * "M")
