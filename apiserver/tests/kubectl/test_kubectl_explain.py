"""kubectl explain. Descriptions and enumerations of built-in kinds are Kubernetes' own prose; there are none here."""

from __future__ import annotations

import re

import pytest


def fields(kubectl, line: str) -> list[str]:
    """Returns names and types of fields, without descriptions."""
    return re.findall(r"^ {2,}(\w+\t<[^\n]*)$", kubectl(f"explain {line}"), re.MULTILINE)


def test_a_kind(kubectl):
    assert fields(kubectl, "configmap") == [
        "apiVersion\t<string>",
        "binaryData\t<map[string]string>",
        "data\t<map[string]string>",
        "immutable\t<boolean>",
        "kind\t<string>",
        "metadata\t<ObjectMeta>",
    ]


def test_a_field_of_a_field(kubectl):
    explained = kubectl("explain deployment.spec.strategy.rollingUpdate")
    assert "FIELD: rollingUpdate <RollingUpdateDeployment>" in explained
    assert fields(kubectl, "deploy.spec.strategy.rollingUpdate") == [
        "maxSurge\t<IntOrString>",
        "maxUnavailable\t<IntOrString>",
    ]


def test_what_is_required(kubectl):
    assert "containers\t<[]Container> -required-" in fields(kubectl, "pod.spec")
    assert "selector\t<LabelSelector> -required-" in fields(kubectl, "deployment.spec")
    assert "replicas\t<integer>" in fields(kubectl, "deployment.spec")


def test_everything_below(kubectl):
    explained = kubectl("explain pods --recursive")
    assert re.search(r"^ {12,}fieldRef\t<ObjectFieldSelector>$", explained, re.MULTILINE)
    assert re.search(
        r"^ {4}topologySpreadConstraints\t<\[\]TopologySpreadConstraint>$", explained, re.MULTILINE
    )


def test_another_version(kubectl):
    assert "targetCPUUtilizationPercentage\t<integer>" in fields(
        kubectl, "hpa.spec --api-version=autoscaling/v1"
    )


def test_no_such_field(kubectl):
    assert kubectl.refused("explain pod.spec.nope") == 'error: field "nope" does not exist'


def test_a_custom_kind_with_its_descriptions(gizmos):
    explained = gizmos("explain gizmo")
    assert "GROUP:      kubectl.example.com" in explained
    assert "A gizmo does things." in explained
    explained = gizmos("explain gizmo.spec")
    assert "What is wanted." in explained
    assert "color\t<string> -required-\n    How it looks." in explained
    assert fields(gizmos, "gizmo") == [
        "apiVersion\t<string>",
        "kind\t<string>",
        "metadata\t<ObjectMeta>",
        "spec\t<Object>",
        "status\t<Object>",
    ]


def test_a_kind_in_the_older_form(kubectl):
    explained = kubectl("explain configmap --output=plaintext-openapiv2")
    assert "KIND:     ConfigMap" in explained
    assert "immutable\t<boolean>" in explained


@pytest.mark.regression
def test_no_such_kind(kubectl):
    assert kubectl.refused("explain nope") == 'the server doesn\'t have a resource type "nope"'
