"""Resource versions are ordered where they are numbers, and of others nothing is claimed."""

from __future__ import annotations

import pytest

from kubeshard.core.versions import at_least, may_be_at_least, newest, precedes


@pytest.mark.parametrize(
    ("older", "newer"),
    [("9", "10"), ("99", "100"), ("100", "101"), ("18446744073709551615", "18446744073709551616")],
)
def test_numbers_are_ordered(older: str, newer: str) -> None:
    assert precedes(older, newer)
    assert not precedes(newer, older)
    assert at_least(newer, older)
    assert not at_least(older, newer)
    assert may_be_at_least(newer, older)
    assert not may_be_at_least(older, newer)
    assert newest(older, newer) == newest(newer, older) == newer


@pytest.mark.parametrize(("one", "other"), [("a1", "b0"), ("9f", "10"), ("10", "9f"), ("x", "1"), ("¹", "2")])
def test_of_versions_that_are_no_numbers_nobody_can_tell_which_is_newer(one: str, other: str) -> None:
    for a, b in ((one, other), (other, one)):
        assert not precedes(a, b)
        assert not at_least(a, b)
        assert may_be_at_least(a, b)
        assert newest(a, b) == a
        assert at_least(a, a)


@pytest.mark.parametrize("version", ["1", "x"])
def test_no_version_is_older_than_any(version: str) -> None:
    assert at_least(version, "")
    assert not at_least("", version)
    assert not may_be_at_least("", version)
    assert newest("", version) == newest(version, "") == version
