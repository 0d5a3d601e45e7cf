"""Quantities are compared by amount."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeshard.core.overlay import same_quantity

SAME = [
    "1 1000m 1.0 1e0 1. +1 1000000u",
    "1Gi 1024Mi 1073741824",
    "0.5 500m .5 5e-1",
    "0 0Gi -0 0m",
    "1k 1000 1e3 1E3",
]


@pytest.mark.parametrize("amounts", SAME)
def test_forms_of_one_amount_are_the_same(amounts: str) -> None:
    first, *others = amounts.split()
    assert all(same_quantity(first, other) and same_quantity(other, first) for other in others)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("1", "2"),
        ("1G", "1Gi"),
        ("", ""),
        ("a", "a"),
        ("1 ", "1"),
        ("1e9999", "1e9999"),
        (True, 1),
        (None, None),
        ("١", "1"),
    ],
)
def test_other_amounts_and_what_is_none_are_not(a: object, b: object) -> None:
    assert not same_quantity(a, b)


def test_numbers_are_quantities_too() -> None:
    assert same_quantity(1, "1000m")
    assert same_quantity(0.5, "500m")
    assert not same_quantity(float("nan"), "1")


@given(st.integers(-(10**6), 10**6), st.sampled_from(["n", "u", "m", "k", "M", "G", "T", "P", "E"]))
def test_suffixes_are_powers_of_a_thousand(number: int, suffix: str) -> None:
    power = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E").index(suffix) - 3
    amount = Fraction(number) * Fraction(1000) ** power
    if amount.denominator == 1:
        assert same_quantity(f"{number}{suffix}", f"{amount}") or len(f"{amount}") > 64
