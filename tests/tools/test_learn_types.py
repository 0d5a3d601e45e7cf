"""The types of the built-in kinds are those of the release that they claim to be from."""

import pytest

import learn_types as types


@pytest.mark.kube
def test_the_types_that_are_kept_are_those_that_a_server_tells():
    learned = types.learn()
    for name, text in learned._asdict().items():
        assert (types.folder() / f"{name}.json").read_text() == text, f"{name}.json: run `make types`"


def test_no_sentence_of_anybody_is_kept():
    for name in types.Learned._fields:
        assert "description" not in (types.folder() / f"{name}.json").read_text().replace(
            '"description":{', ""
        )
