"""The keys of `kubectl shard top`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeshard.cli.kubectl.browsing import Browsing, asked

RIGHT, LEFT, ESCAPE = "\x1b[C", "\x1b[D", "\x1b"


@pytest.mark.parametrize(
    ("typed", "ring"),
    [("", "a"), (RIGHT, "b"), ("\t\t", "c"), (RIGHT * 3, "a"), (LEFT, "c"), (f"{LEFT}{RIGHT}x", "a")],
)
def test_arrows_go_round_the_rings(typed: str, ring: str) -> None:
    browsing = Browsing(["a", "b", "c"])
    assert list(browsing.keys(typed)) == []
    assert browsing.ring == ring


def test_a_question_is_asked_at_enter_and_its_keys_do_nothing_else() -> None:
    browsing = Browsing(["a", "b"])
    assert list(browsing.keys(f"/secret/qx\x7f{RIGHT} team")) == []
    assert (browsing.typed, browsing.ring, browsing.ended) == ("secret/q team", "a", False)
    assert list(browsing.keys("\r")) == ["secret/q team"]
    assert browsing.typed is None


def test_escape_closes_first_the_question_and_then_the_answer() -> None:
    browsing = Browsing(["a"], answer=["it is there"])
    assert list(browsing.keys(f"/secret{ESCAPE}\r/\r")) == []
    browsing.answer = ["it is there"]
    list(browsing.keys(ESCAPE))
    assert not browsing.answer


@given(st.text(), st.integers(1, 3))
def test_whatever_is_typed_a_ring_is_shown(text: str, rings: int) -> None:
    browsing = Browsing([str(number) for number in range(rings)])
    for question in browsing.keys(text):
        assert question == question.strip() != ""
        words, _ = asked(question)
        assert words
    assert browsing.ring in browsing.rings


@pytest.mark.parametrize(
    ("question", "words", "namespace"),
    [
        ("secret/a", ["secret/a"], None),
        ("secret/a team", ["secret/a"], "team"),
        ("secret a", ["secret", "a"], None),
        ("secret a team", ["secret", "a"], "team"),
        ("secret", ["secret"], None),
    ],
)
def test_a_question_names_an_object_and_perhaps_a_namespace(
    question: str, words: list[str], namespace: str | None
) -> None:
    assert asked(question) == (words, namespace)
