"""Fields that a manager set by other kinds of writes count as applied by it."""

from __future__ import annotations

from typing import Any

from kubeshard.core.managed_fields import as_applied


def entry(manager: str, operation: str, *fields: str, **more: Any) -> dict[str, Any]:
    data = {f"f:{name}": {} for name in fields}
    return {
        "manager": manager,
        "operation": operation,
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": data},
        **more,
    }


def test_an_update_becomes_an_apply() -> None:
    other = entry("other", "Update", "b")
    assert as_applied([entry("me", "Update", "a"), other], "me") == [other, entry("me", "Apply", "a")]


def test_an_update_is_united_with_the_apply_there_is() -> None:
    entries = [entry("me", "Update", "a", "b"), entry("me", "Apply", "b", "c")]
    assert as_applied(entries, "me") == [entry("me", "Apply", "b", "c", "a")]


def test_nested_fields_are_united() -> None:
    one = entry("me", "Apply", fieldsV1={"f:spec": {"f:a": {"f:x": {}}}})
    two = entry("me", "Update", fieldsV1={"f:spec": {"f:a": {"f:y": {}}}, "f:data": {}})
    merged = as_applied([one, two], "me")
    assert merged is not None
    assert merged[0]["fieldsV1"] == {"f:spec": {"f:a": {"f:x": {}, "f:y": {}}}, "f:data": {}}


def test_there_is_nothing_to_do_without_an_update_of_the_object_itself() -> None:
    status = entry("me", "Update", "a", subresource="status")
    assert as_applied([entry("me", "Apply", "a"), entry("other", "Update", "a"), status], "me") is None
    assert as_applied([], "me") is None


def test_the_fields_of_another_version_of_the_kind_belong_to_nobody() -> None:
    """Their paths may not exist in the version that is applied."""
    old = entry("me", "Update", "old", apiVersion="v1beta1", time="2026-01-01T00:00:00Z")
    new = entry("me", "Update", "new", time="2026-01-02T00:00:00Z")
    assert as_applied([old, new], "me") == [{**new, "operation": "Apply"}]


def test_arguments_are_not_changed() -> None:
    entries = [entry("me", "Update", "a"), entry("me", "Apply", "b")]
    as_applied(entries, "me")
    assert entries == [entry("me", "Update", "a"), entry("me", "Apply", "b")]
