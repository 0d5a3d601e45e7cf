"""An author's own kind is loaded as its template says, and is ready when its status says so of a generation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kubeshard.client.installing import install
from kubeshard.core import ALL, MergePatch, metadata_only
from kubeshard.core.errors import ConfigurationError
from kubeshard.sharding.names import shard_label
from kubeshard_apiserver.testing.memory import MemoryApi
from kubeshard_lab.experiment.plan import Due, LoadPlan, Verb
from kubeshard_lab.experiment.scenarios import SCENARIOS, scaled
from kubeshard_lab.experiment.templates import Ready, Templates
from kubeshard_lab.virtual_world import SeededRng

GREETING = """
apiVersion: example.com/v1
kind: Greeting
metadata: {name: $name, labels: {mine: "yes"}}
spec: {text: hello $random, number: $number, price: $$1}
"""
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "greetings.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {
            "kind": "Greeting",
            "plural": "greetings",
            "singular": "greeting",
            "listKind": "GreetingList",
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                },
            }
        ],
    },
}


def templates(text: str = GREETING, ready: str = "Ready", *, changes: bool = True) -> Templates:
    return Templates(
        "the-run",
        "basic",
        text,
        ready=Ready.parse(ready),
        ring="greetings",
        controller="greeting",
        given=[DEFINITION],
        changes=changes,
    )


@pytest.mark.parametrize(
    ("ready", "status", "generation"),
    [
        ("Ready", {}, 0),
        ("Ready", {"conditions": [{"type": "Ready", "status": "False"}], "observedGeneration": 2}, 0),
        ("Ready", {"conditions": [{"type": "Ready", "status": "True"}], "observedGeneration": 2}, 2),
        ("Ready", {"conditions": [{"type": "Ready", "status": "True", "observedGeneration": 1}]}, 1),
        ("Ready", {"conditions": [{"type": "Ready", "status": "True"}]}, 3),
        ("Available", {"conditions": [{"type": "Ready", "status": "True"}]}, 0),
        ("status.phase=Running", {"phase": "Running", "observedGeneration": 2}, 2),
        ("status.phase=Running", {"phase": "Pending", "observedGeneration": 2}, 0),
        ("status.phase=Running", {"phase": "Running"}, 3),
        ("status.deep.er=true", {"deep": {"er": True}}, 3),
        ("status.deep.er=true", {"deep": None}, 0),
    ],
)
def test_an_object_is_ready_when_its_status_says_so(
    ready: str, status: Mapping[str, Any], generation: int
) -> None:
    assert Ready.parse(ready).generation(status, 3) == generation


@pytest.mark.parametrize("text", ["spec.phase=Running", "phase=Running", "status=Running", "status..x=1"])
def test_a_field_that_is_none_of_the_status_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"write a condition's type, or status\.FIELD=VALUE"):
        Ready.parse(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (GREETING.replace("$random", "$rand"), r"it may use \$name, \$number and \$random"),
        (GREETING.replace("$$1", "$ 1"), r"and \$\$ for a dollar sign"),
        (GREETING.replace("$name", "fixed"), r"needs apiVersion, kind and metadata\.name"),
        ("{", "renders is not YAML"),
        ("- $name", "needs apiVersion"),
        (GREETING.replace("$random", "you").replace("$number", "1"), "no object would change"),
    ],
)
def test_a_template_that_cannot_work_is_refused_before_anything_runs(text: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        templates(text)


def test_a_spec_that_is_always_the_same_is_enough_for_a_scenario_without_changes() -> None:
    templates(GREETING.replace("$random", "you").replace("$number", "1"), changes=False)


async def test_objects_of_the_template_are_created_changed_and_deleted() -> None:
    async with MemoryApi().client() as client:
        subject = templates()
        plan = LoadPlan(scaled(SCENARIOS["basic"], 0.01, 60.0), SeededRng(1))
        async for _ in install(client, [*subject.installation(ring=False), *subject.foundation(plan)]):
            pass
        form, project = await subject.form(client), plan.projects[0]

        def due(number: int, verb: Verb, theme: str = "") -> Due:
            return Due(float(number), verb, project, "one", number, theme)

        created = await subject.send(client, due(7, "create", "theme-a"))
        assert created is not None
        assert created.generation == 1
        changed = await subject.send(client, due(8, "patch", "theme-b"))
        assert changed is not None
        assert (changed.uid, changed.generation) == (created.uid, 2)
        noted = await subject.send(client, due(9, "patch"))
        assert noted is not None
        assert (noted.generation, noted.annotation("experiment-reconcile")) == (2, "9")
        assert await subject.send(client, Due(2.0, "patch", "", "theme", 10, look=("red", "Arial"))) is None
        labels = {"metadata": {"labels": {shard_label("greetings"): "two"}}}
        await client.patch(metadata_only(form.kind), "one", project, MergePatch(labels))
        (found,) = await client.list_all(form, ALL, label_selector=subject.selector)
        assert found.metadata.label("mine") == "yes"
        assert subject.seen(found) == (created.uid, 0, "two")
        assert await subject.send(client, due(11, "delete")) is None
        assert await client.list_all(form, ALL, label_selector=subject.selector) == []
