"""The patches of finalizers, and which strings are valid finalizers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeshard.core import Invalid, ObjectMeta
from kubeshard.core.finalizers import (
    adding,
    deletion_age,
    is_finalizer,
    is_kubernetes_own,
    removing,
    spoken,
)
from kubeshard_apiserver.json_patch import apply_json_patch

KEYS = st.lists(st.sampled_from(["a.b/1", "a.b/2", "c.d/1", "c.d/2"]), unique=True)


def document(finalizers: list[str], uid: str = "u", **meta: str) -> dict[str, object]:
    return {"metadata": {"uid": uid, **({"finalizers": finalizers} if finalizers else {}), **meta}}


def meta(finalizers: list[str]) -> ObjectMeta:
    return ObjectMeta(name="a", uid="u", finalizers=tuple(finalizers))


def left(patched: dict[str, dict[str, list[str]]]) -> list[str]:
    return patched["metadata"].get("finalizers", [])


@given(KEYS, KEYS)
def test_adding_keeps_what_is_there_and_appends_what_is_missing(have: list[str], keys: list[str]) -> None:
    patched = apply_json_patch(document(have), adding(meta(have), keys).ops)
    assert left(patched) == [*have, *(key for key in keys if key not in have)]


@given(KEYS, KEYS, KEYS)
def test_removing_takes_off_exactly_these_whatever_was_appended_meanwhile(
    have: list[str], keys: list[str], later: list[str]
) -> None:
    now = [*have, *(key for key in later if key not in have)]
    patched = apply_json_patch(document(now), removing(meta(have), keys).ops)
    assert left(patched) == [key for key in now if key not in keys or key not in have]


@pytest.mark.parametrize(
    "live",
    [
        document(["a.b/1"], uid="another"),
        document(["c.d/1", "a.b/1"]),
        document([]),
        document(["a.b/1"], deletionTimestamp="2026-01-01T00:00:00Z"),
    ],
)
def test_adding_is_refused_where_the_object_is_another_or_has_changed(live: dict[str, object]) -> None:
    with pytest.raises(Invalid):
        apply_json_patch(live, adding(meta(["a.b/1"]), ["c.d/2"]).ops)


@pytest.mark.parametrize("live", [document(["a.b/1"], uid="another"), document(["c.d/1", "a.b/1"])])
def test_removing_is_refused_where_the_object_is_another_or_the_place_is(live: dict[str, object]) -> None:
    with pytest.raises(Invalid):
        apply_json_patch(live, removing(meta(["a.b/1"]), ["a.b/1"]).ops)


@pytest.mark.parametrize(
    ("text", "valid", "kubernetes"),
    [
        ("example.com/bucket", True, False),
        ("a.example.com/Bucket_1", True, False),
        ("example/bucket", False, False),
        ("bucket", False, True),
        ("foregroundDeletion", False, True),
        ("kubernetes.io/pvc-protection", True, True),
        ("snapshot.storage.kubernetes.io/x", True, True),
        ("x.k8s.io/y", True, True),
        ("mykubernetes.io/y", True, False),
        ("example.com/", False, False),
        ("example.com/a b", False, False),
        ("Example.com/a", False, False),
        ("", False, True),
    ],
)
def test_a_finalizer_has_a_domain_and_kubernetes_own_are_known(
    text: str, valid: bool, kubernetes: bool
) -> None:
    assert is_finalizer(text) is valid
    assert is_kubernetes_own(text) is kubernetes


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "less than a minute"), (59, "less than a minute"), (60, "1 min"), (7_300, "2 h"), (200_000, "2 d")],
)
def test_an_age_is_told_coarsely(seconds: float, text: str) -> None:
    assert spoken(seconds) == text


def test_the_age_of_a_deletion_is_never_negative() -> None:
    going = ObjectMeta(deletion_timestamp="1970-01-01T00:01:40Z")
    assert deletion_age(going, 160) == 60
    assert deletion_age(going, 10) == 0
    assert deletion_age(ObjectMeta(), 10) == 0
