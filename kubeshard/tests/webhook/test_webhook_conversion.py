"""Conversion between versions: the path, what is preserved, and what is rejected."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest
from asgi_client import call

from failing_groups import FOREVER, fail_in_a_group
from kubeshard import KubeObject, ObjectMeta, Struct, field
from kubeshard.runtime.clock import SystemClock
from kubeshard.webhook import AdmissionApp, Denied, Webhooks, converts
from kubeshard.webhook.metrics import WebhookMetrics
from kubeshard_lab.virtual_time import virtual_time


class OldSpec(Struct):
    size: str = ""


class Spec(Struct):
    cpus: int = 0


class NewSpec(Struct):
    milli: int = 0


class Alpha(KubeObject, group="example.com", version="v1alpha1", kind="Box"):
    spec: OldSpec = field(default_factory=OldSpec)


class Box(KubeObject, group="example.com", version="v1"):
    spec: Spec = field(default_factory=Spec)


class Two(KubeObject, group="example.com", version="v2", kind="Box"):
    spec: NewSpec = field(default_factory=NewSpec)


SIZES = {"small": 1, "large": 8}


@converts(Alpha, Box)
def up(old: Alpha) -> Box:
    return Box(spec=Spec(cpus=SIZES[old.spec.size]))


@converts(Box, Alpha)
def down(new: Box) -> Alpha:
    size = next((name for name, cpus in SIZES.items() if cpus == new.spec.cpus), "odd")
    return Alpha(spec=OldSpec(size=size))


@converts(Box, Two)
async def further(box: Box) -> Two:
    await asyncio.sleep(0)
    annotations = {**(box.metadata.annotations or {}), "cpus": str(box.spec.cpus)}
    meta = msgspec.structs.replace(box.metadata, annotations=annotations)
    return Two(metadata=meta, spec=NewSpec(milli=1000 * box.spec.cpus))


@converts(Two, Box)
async def back(two: Two) -> Box:
    if two.spec.milli == -9:
        try:
            await fail_in_a_group()
        except* OSError:
            await asyncio.sleep(FOREVER)
    if two.spec.milli == -7:
        raise Denied("seven is for later")
    if two.spec.milli == -8:
        raise asyncio.CancelledError
    if two.spec.milli < 0:
        raise ValueError("secret of the code")
    meta = msgspec.structs.replace(two.metadata, annotations=None)
    return Box(metadata=meta, spec=Spec(cpus=two.spec.milli // 1000))


ALL = [up, down, further, back]
META = {
    "name": "a",
    "namespace": "n",
    "uid": "u",
    "labels": {"a": "b"},
    "managedFields": [{"manager": "kubectl"}],
}


def box(version: str, spec: Any, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"example.com/{version}",
        "kind": "Box",
        "metadata": {**META, **metadata},
        "spec": spec,
    }


async def converted(
    wanted: str, *objects: Any, functions: Any = ALL, metrics: WebhookMetrics | None = None
) -> dict[str, Any]:
    app = AdmissionApp(Webhooks("boxes", functions).routes, clock=SystemClock(), metrics=metrics)
    request = {"uid": "r", "desiredAPIVersion": f"example.com/{wanted}", "objects": objects}
    review = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}
    answer = await call(
        app, json.dumps(review).encode(), path="/convert/box.example.com", query=b"timeout=5s"
    )
    assert answer.status == 200
    found = json.loads(answer.body)
    assert (found["apiVersion"], found["kind"]) == (review["apiVersion"], "ConversionReview")
    response: dict[str, Any] = found["response"]
    assert response["uid"] == "r"
    return response


async def test_objects_take_one_step_or_the_way_over_the_hub() -> None:
    response = await converted("v2", box("v1alpha1", {"size": "large"}), box("v1", {"cpus": 2}))
    assert response["result"] == {"status": "Success"}
    assert [(found["apiVersion"], found["spec"]) for found in response["convertedObjects"]] == [
        ("example.com/v2", {"milli": 8000}),
        ("example.com/v2", {"milli": 2000}),
    ]
    (old,) = (await converted("v1alpha1", box("v2", {"milli": 1000})))["convertedObjects"]
    assert old["spec"] == {"size": "small"}


async def test_what_identifies_an_object_is_kept_and_annotations_are_those_of_the_result() -> None:
    (two,) = (await converted("v2", box("v1alpha1", {"size": "small"}, annotations={"x": "y"})))[
        "convertedObjects"
    ]
    assert two["metadata"] == {**META, "annotations": {"x": "y", "cpus": "1"}}
    (one,) = (await converted("v1", two))["convertedObjects"]
    assert one["metadata"] == META


async def test_an_object_that_is_of_the_version_already_comes_back() -> None:
    (same,) = (await converted("v1", box("v1", {"cpus": 3})))["convertedObjects"]
    assert same == box("v1", {"cpus": 3})


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            box("v1alpha1", {"size": "huge"}),
            "Box.example.com n/a: conversion to example.com/v1 failed: KeyError",
        ),
        (box("v2", {"milli": -1}), "conversion to example.com/v1 failed: ValueError"),
        (box("v2", {"milli": "1"}), "n/a does not fit Two: Expected `int`, got `str` - at `$.spec.milli`"),
        (box("v2", {"milli": -7}), "Box.example.com n/a: seven is for later"),
        (box("v2", {"milli": -8}), "conversion to example.com/v1 failed: CancelledWithin"),
        (box("v9", {}), "no way from Box of example.com/v9 to example.com/v1"),
        ({**box("v2", {}), "kind": "Crate"}, "no way from Crate of example.com/v2"),
        ("text", "not an object"),
    ],
)
async def test_what_cannot_be_converted_fails_the_review_with_the_reason(given: Any, says: str) -> None:
    metrics = WebhookMetrics()
    response = await converted("v1", box("v1", {}), given, metrics=metrics)
    assert response["result"]["status"] == "Failure"
    assert says in response["result"]["message"]
    assert "secret" not in response["result"]["message"]
    assert metrics.panics == ("failed:" in says)


@virtual_time
async def test_a_conversion_that_takes_too_long_fails_the_review_with_the_reason() -> None:
    response = await converted("v1", box("v2", {"milli": -9}))
    assert response["result"] == {"status": "Failure", "message": "conversion took too long"}


@pytest.mark.parametrize("version", ["v1", "v2"])
async def test_an_object_whose_metadata_is_null_is_converted_as_one_without(version: str) -> None:
    response = await converted("v1", {**box(version, {}), "metadata": None})
    assert response["result"] == {"status": "Success"}
    assert response["convertedObjects"][0]["metadata"] == {}


@virtual_time
async def test_a_conversion_that_hangs_fails_when_the_api_server_gives_up() -> None:
    @converts(Alpha, Box)
    async def hangs(old: Alpha) -> Box:
        await asyncio.get_running_loop().create_future()
        return Box()

    response = await converted("v1", box("v1alpha1", {}), functions=[hangs, down])
    assert response["result"]["message"] == "conversion took too long"


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"\xff", b'{"apiVersion":"admission.k8s.io/v1","request":{"uid":"u"}}', b"[" * 10000]
)
async def test_what_is_not_a_review_is_refused(body: bytes) -> None:
    app = AdmissionApp(Webhooks("boxes", ALL).routes, clock=SystemClock())
    assert (await call(app, body, path="/convert/box.example.com")).status == 400


def test_versions_without_a_way_between_them_are_refused_where_they_are_declared() -> None:
    with pytest.raises(ValueError, match=r"no function converts example\.com/v1 to example\.com/v1alpha1"):
        Webhooks("boxes", [up])
    with pytest.raises(ValueError, match="two functions convert"):
        Webhooks("boxes", [up, down, converts(Alpha, Box)(lambda old: Box(metadata=ObjectMeta()))])

    class Other(KubeObject, group="example.com", version="v1"):
        pass

    with pytest.raises(TypeError, match="not versions of one kind"):
        converts(Alpha, Other)


def test_the_stanza_of_the_definition_names_the_path() -> None:
    stanza = Webhooks("boxes", ALL, namespace="system").conversion("boxes.example.com", "Y2E=")
    assert stanza == {
        "strategy": "Webhook",
        "webhook": {
            "clientConfig": {
                "caBundle": "Y2E=",
                "service": {
                    "namespace": "system",
                    "name": "boxes",
                    "path": "/convert/box.example.com",
                    "port": 443,
                },
            },
            "conversionReviewVersions": ["v1"],
        },
    }
