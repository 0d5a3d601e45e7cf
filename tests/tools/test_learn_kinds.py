"""The classes of the built-in kinds are those of the release that they claim to be from."""

from __future__ import annotations

import pytest

import learn_kinds as kinds


@pytest.mark.kube
def test_the_classes_that_are_kept_are_those_that_a_server_describes() -> None:
    learned = kinds.learn()
    folder = kinds.folder()
    written = {str(path.relative_to(folder)) for path in folder.rglob("*.py*") if path.name != "__init__.py"}
    written = {name for name in written if not name.endswith(".pyc")}
    assert written == set(learned)
    for name, text in learned.items():
        assert (folder / name).read_text() == text, f"{name}: run `make types`"
