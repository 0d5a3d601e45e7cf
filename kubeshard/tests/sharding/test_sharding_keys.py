"""Hash keys and their messages."""

import pytest

from kubeshard.core.objects import ObjectMeta, OwnerReference
from kubeshard.sharding.hash_ring import GeneratedName, KeyRefused, controlled_key, main_key


def controller(**reference: str) -> OwnerReference:
    full = {"api_version": "operator/v1", "kind": "Foo", "name": "foo"} | reference
    return OwnerReference(**full, controller=True)


@pytest.mark.parametrize(
    ("api_version", "kind", "meta", "key"),
    [
        ("v1", "Secret", ObjectMeta(name="foo", namespace="default"), "/Secret/default/foo"),
        ("apps/v1", "Deployment", ObjectMeta(name="foo", namespace="bar"), "apps/Deployment/bar/foo"),
        ("apps/v2beta1", "Deployment", ObjectMeta(name="foo", namespace="bar"), "apps/Deployment/bar/foo"),
        (
            "rbac.authorization.k8s.io/v1",
            "ClusterRole",
            ObjectMeta(name="admin"),
            "rbac.authorization.k8s.io/ClusterRole//admin",
        ),
    ],
)
def test_a_main_key_names_group_kind_namespace_and_name(
    api_version: str, kind: str, meta: ObjectMeta, key: str
) -> None:
    assert main_key(api_version, kind, meta) == key


@pytest.mark.parametrize(
    ("api_version", "kind", "meta", "message"),
    [
        ("", "", ObjectMeta(name="foo"), "apiVersion and kind must not be empty"),
        ("v1", "Secret", ObjectMeta(), "name must not be empty"),
        (
            "v1",
            "Secret",
            ObjectMeta(generate_name="foo-"),
            "generateName is not supported on ring resources that are not controlled by another resource",
        ),
    ],
)
def test_a_main_object_without_identity_is_refused_in_the_protocols_words(
    api_version: str, kind: str, meta: ObjectMeta, message: str
) -> None:
    with pytest.raises(KeyRefused) as refused:
        main_key(api_version, kind, meta)
    assert str(refused.value) == message


def test_a_generated_name_is_told_apart_from_other_refusals() -> None:
    with pytest.raises(GeneratedName):
        main_key("v1", "Secret", ObjectMeta(generate_name="foo-"))


def test_a_controlled_key_is_the_controllers_key_in_its_namespace() -> None:
    assert controlled_key(controller(), "bar") == "operator/Foo/bar/foo"
    assert controlled_key(controller(api_version="v1", kind="Secret"), "bar") == "/Secret/bar/foo"
    assert controlled_key(controller(), "") == "operator/Foo//foo"


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ({"api_version": ""}, "apiVersion of controller reference must not be empty"),
        ({"kind": ""}, "kind of controller reference must not be empty"),
        ({"name": ""}, "name of controller reference must not be empty"),
        (
            {"api_version": "a/b/c"},
            "invalid apiVersion of controller reference: unexpected GroupVersion string: a/b/c",
        ),
    ],
)
def test_a_malformed_controller_reference_is_refused_in_the_protocols_words(
    reference: dict[str, str], message: str
) -> None:
    with pytest.raises(KeyRefused) as refused:
        controlled_key(controller(**reference), "bar")
    assert str(refused.value) == message
