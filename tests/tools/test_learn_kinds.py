"""The classes of the built-in kinds are those of the release that they claim to be from."""

from __future__ import annotations

import pytest

import learn_kinds as kinds


@pytest.mark.kube
def test_the_classes_that_are_kept_are_those_that_a_server_describes() -> None:
    learned = kinds.learn()
    written = {path.name for path in kinds.folder().glob("*.py*")} - {"__init__.py"}
    assert written == set(learned)
    for name, text in learned.items():
        assert (kinds.folder() / name).read_text() == text, f"{name}: run `make types`"
