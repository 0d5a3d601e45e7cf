from __future__ import annotations

import copy
from typing import Any

import pytest

from kubeshard.sharder.admission import acknowledges

SHARD, DRAIN = "shard/r", "drain/r"


def drained(**labels: str) -> dict[str, Any]:
    """Returns an object that its shard should release."""
    return {
        "apiVersion": "g/v1",
        "kind": "Thing",
        "metadata": {
            "name": "a",
            "namespace": "ns",
            "uid": "u",
            "resourceVersion": "7",
            "generation": 2,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"a": "b"},
            "managedFields": [{"manager": "someone", "time": "2026-01-01T00:00:00Z"}],
            "labels": {SHARD: "s0", DRAIN: "true", **labels},
        },
        "spec": {"on": True, "size": 1, "list": [1, {"x": None}]},
        "status": {"phase": "fine"},
    }


def given_back(old: dict[str, Any]) -> dict[str, Any]:
    new = copy.deepcopy(old)
    del new["metadata"]["labels"][SHARD], new["metadata"]["labels"][DRAIN]
    return new


@pytest.mark.parametrize("labels", [{}, {"x": "y"}])
@pytest.mark.parametrize(
    "servers",
    [
        {},
        {"managedFields": [{"manager": "shard", "time": "2026-01-01T00:00:01Z"}]},
        {"managedFields": None, "resourceVersion": "", "uid": "", "generation": 0, "creationTimestamp": None},
        {"finalizers": [], "ownerReferences": None},
    ],
)
def test_taking_both_labels_away_is_an_acknowledgement_whatever_the_server_writes_beside_it(
    labels: dict[str, str], servers: dict[str, Any]
) -> None:
    old = drained(**labels)
    new = given_back(old)
    new["metadata"].update(servers)
    assert acknowledges(old, new, SHARD, DRAIN)


@pytest.mark.parametrize("none_left", [None, {}])
def test_no_labels_at_all_are_as_good_as_an_empty_map(none_left: dict[str, str] | None) -> None:
    new = given_back(drained())
    new["metadata"]["labels"] = none_left
    assert acknowledges(drained(), new, SHARD, DRAIN)
    del new["metadata"]["labels"]
    assert acknowledges(drained(), new, SHARD, DRAIN)


CHANGES: dict[str, dict[str, Any]] = {
    "spec": {"spec": {"on": True, "size": 2, "list": [1, {"x": None}]}},
    "a number for true": {"spec": {"on": 1, "size": 1, "list": [1, {"x": None}]}},
    "no spec": {"spec": None},
    "status": {"status": {}},
    "an unknown field": {"more": 1},
    "annotations": {"metadata": {"annotations": {"a": "c"}}},
    "no annotations": {"metadata": {"annotations": None}},
    "finalizers": {"metadata": {"finalizers": ["x"]}},
    "owner": {"metadata": {"ownerReferences": [{"uid": "o"}]}},
    "another label": {"metadata": {"labels": {"x": "z"}}},
    "another label gone": {"metadata": {"labels": None}},
    "drain label left": {"metadata": {"labels": {"x": "y", DRAIN: "true"}}},
    "drain label emptied": {"metadata": {"labels": {"x": "y", DRAIN: ""}}},
    "metadata that is none": {"metadata": 7},
}


@pytest.mark.regression
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_an_update_that_changes_anything_else_is_no_acknowledgement(change: dict[str, Any]) -> None:
    old = drained(x="y")
    new = given_back(old)
    metadata = change.get("metadata", {})
    new.update(change)
    new["metadata"] = {**given_back(old)["metadata"], **metadata} if isinstance(metadata, dict) else metadata
    assert not acknowledges(old, new, SHARD, DRAIN)


def test_an_object_that_nobody_asked_for_cannot_be_given_back() -> None:
    old = drained()
    new = given_back(old)
    del old["metadata"]["labels"][DRAIN]
    assert not acknowledges(old, new, SHARD, DRAIN)
