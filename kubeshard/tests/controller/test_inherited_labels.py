"""The labels of a ring are on an object itself, and nowhere else: whatever an author hands on, and wherever to."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest
from ensuring import Ensuring
from hypothesis import given
from hypothesis import strategies as st

from kubeshard import EnsureResult, KubeObject, ObjectMeta, field, labels_to_inherit
from kubeshard.controller.desired.applyset import ID, PART_OF, SET, applyset
from kubeshard.controller.desired.inherited_labels import without_inner
from kubeshard.controller.desired.members import members_of
from kubeshard.core.encoding import to_dict
from kubeshard.kinds import (
    Container,
    Deployment,
    DeploymentSpec,
    LabelSelector,
    LabelSelectorRequirement,
    PodSpec,
    PodTemplateSpec,
)
from kubeshard.sharding.names import drain_label, shard_label
from kubeshard_apiserver.testing import MemoryApi

SHARD, DRAIN = shard_label("caches"), drain_label("caches")


class Cache(KubeObject, group="example.com", version="v1"):
    spec: dict[str, Any] = field(default_factory=dict)


def cache(shard: str) -> Cache:
    labels = {"team": "blue", SHARD: shard, DRAIN: "true", ID: "x", PART_OF: "y", SET: "z"}
    return Cache(metadata=ObjectMeta(name="c", namespace="default", uid="u", labels=labels))


def deployment(labels: dict[str, str]) -> Deployment:
    own = {"app": "c"}
    requirement = LabelSelectorRequirement(key=SHARD, operator="Exists")
    selector = LabelSelector(match_labels={**labels, **own}, match_expressions=(requirement,))
    template = PodTemplateSpec(
        metadata=ObjectMeta(labels={**labels, **own}),
        spec=PodSpec(containers=(Container(name="c", image="i"),)),
    )
    return Deployment(
        metadata=ObjectMeta(name="c", namespace="default", labels=labels),
        spec=DeploymentSpec(replicas=1, selector=selector, template=template),
    )


def test_the_labels_to_inherit_are_those_that_do_not_say_where_the_object_is() -> None:
    assert labels_to_inherit(cache("a")) == {"team": "blue"}
    assert labels_to_inherit(Cache(metadata=ObjectMeta(name="c"))) == {}


async def test_ensure_hands_no_label_of_a_ring_on_and_an_object_that_moves_changes_nothing(
    kube_memory: MemoryApi, caplog: pytest.LogCaptureFixture
) -> None:
    async with kube_memory.client() as client:
        ensure = Ensuring(client)
        with caplog.at_level(logging.WARNING):
            assert await ensure(deployment(dict(cache("a").metadata.labels or {}))) is EnsureResult.CREATED
            stored = await client.get(Deployment, "c", "default")
            moved = deployment(dict(cache("b").metadata.labels or {}))
            assert await ensure(moved) is EnsureResult.UNCHANGED
            assert await ensure(moved) is EnsureResult.UNCHANGED
    assert "sharding.timebertt.dev" not in msgspec.json.encode(to_dict(stored)).decode()
    assert stored.metadata.labels == {"team": "blue"}
    warnings = [record.message for record in caplog.records if "labels_to_inherit" in record.message]
    assert len(warnings) == 1, "once, however often the controller tries"
    for place in ("/spec/template/metadata/labels", "/spec/selector/matchLabels", "matchExpressions/0/key"):
        assert place in warnings[0]


def test_members_of_a_set_are_the_same_on_every_shard() -> None:
    owner = cache("a")
    set_ = applyset(
        msgspec.structs.replace(owner, metadata=ObjectMeta(name="c", namespace="default", uid="u")), "c", ""
    )
    digests = set()
    for shard in ("a", "b"):
        inherited = {"team": "blue", SHARD: shard, ID: set_.id}
        (member,) = members_of(set_, [deployment(inherited)]).values()
        assert member.left_out
        assert not any("timebertt" in label for label in member.obj.metadata.labels or ())
        digests.add(member.digest)
    assert len(digests) == 1


LABELS = st.dictionaries(st.sampled_from(["a", SHARD, DRAIN, shard_label("other")]), st.text(max_size=3))
DOCUMENTS = st.recursive(
    st.none() | st.integers(0, 3) | st.text(max_size=3) | LABELS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("xyz", max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(spec=st.dictionaries(st.text("abc", max_size=3), DOCUMENTS, max_size=3))
def test_wherever_they_are_they_are_found_and_nothing_else_is_taken(spec: dict[str, Any]) -> None:
    obj = Cache(metadata=ObjectMeta(name="c", labels={SHARD: "a"}), spec=spec)
    cleaned, found = without_inner(obj)
    text = msgspec.json.encode(spec)
    assert bool(found) == (b"shard.alpha" in text or b"drain.alpha" in text)
    assert cleaned.metadata == obj.metadata
    assert without_inner(cleaned) == (cleaned, [])
    assert found or cleaned == obj
