"""Names that are valid for every kind."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeshard.core.names import is_dns_label, is_dns_subdomain, is_label_value, safe_name

TEXT = st.text(st.characters(), max_size=80) | st.text("abAB09-._:/ ", max_size=80)


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (("web", "config"), "web-config"),
        (("web",), "web"),
        (("", "web", ""), "web"),
        (("a" * 63,), "a" * 63),
        (("a" * 64,), "a" * 54 + "-e9284fe1"),
        (("a" * 53 + "-" + "b" * 20,), "a" * 53 + "-2e700c48"),
        (("my.site", "Config"), "my-site-config-780bc603"),
        (("Größe", "42"), "gr-e-42-a2397f89"),
        (("___",), "n-c7efb06a"),
        (("9lives", "web"), "n-9lives-web-7715c390"),
    ],
)
def test_a_name_is_the_parts_with_a_hash_where_they_do_not_fit(parts: tuple[str, ...], name: str) -> None:
    assert safe_name(*parts) == name


@given(st.lists(TEXT, min_size=1, max_size=5).filter(any), st.integers(10, 63))
def test_every_name_is_a_label_within_the_limit_and_always_the_same(parts: list[str], limit: int) -> None:
    name = safe_name(*parts, limit=limit)
    assert len(name) <= limit
    assert is_dns_label(name)
    assert name[0].isalpha()  # as of a Service
    assert is_label_value(name)
    assert safe_name(*parts, limit=limit) == name


@given(st.lists(TEXT, min_size=1, max_size=4).filter(any), st.lists(TEXT, min_size=1, max_size=4).filter(any))
def test_other_parts_give_another_name_unless_they_are_the_same_joined(
    one: list[str], other: list[str]
) -> None:
    if "-".join(filter(None, one)) != "-".join(filter(None, other)):
        assert safe_name(*one) != safe_name(*other)


def test_long_names_that_differ_at_the_end_or_in_their_parts_differ() -> None:
    assert safe_name("a" * 70, "b") != safe_name("a" * 70, "c")
    assert safe_name("a" * 70, "b-c") != safe_name("a" * 70, "b", "c")


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (("my.site", "config"), "my.site-config"),
        (("9lives",), "9lives"),
        (("a" * 253,), "a" * 253),
        (("system:discovery",), "system-discovery-"),
        (("Größe.De-",), "gr-e.de-"),
        (("..a.-.b--",), "a.b-"),
        (("a" * 243 + ".b.c" * 20,), "a" * 243 + "-"),
    ],
)
def test_a_name_with_dots_is_a_subdomain(parts: tuple[str, ...], name: str) -> None:
    assert safe_name(*parts, dots=True).startswith(name)


@given(st.lists(TEXT, min_size=1, max_size=5).filter(any), st.integers(10, 253))
def test_every_name_with_dots_is_a_subdomain_within_the_limit(parts: list[str], limit: int) -> None:
    name = safe_name(*parts, limit=limit, dots=True)
    assert len(name) <= limit
    assert is_dns_subdomain(name)
    assert limit > 63 or is_label_value(name)


@pytest.mark.parametrize("parts", [(), ("",), ("", "")])
def test_no_name_is_made_of_nothing(parts: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="at least one part"):
        safe_name(*parts)


@pytest.mark.parametrize("limit", [9, 64, 254])
def test_a_limit_that_leaves_no_room_or_is_no_label_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match="between 10 and 63"):
        safe_name("a", limit=limit)
    if limit != 64:
        with pytest.raises(ValueError, match="between 10 and 253"):
            safe_name("a", limit=limit, dots=True)
