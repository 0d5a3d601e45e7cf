import json
import pickle
from datetime import UTC, datetime

import msgspec
import pytest

from kubeshard.core import (
    AlreadyControlled,
    Condition,
    Key,
    KubeObject,
    Lease,
    LeaseSpec,
    ObjectMeta,
    Struct,
    UndecodableObject,
    controller_of,
    controller_reference,
    decode,
    encode,
    field,
    get_condition,
    metadata_only,
    owner_reference,
    set_condition,
    to_dict,
)
from kubeshard.core.builtin import ConfigMap, Secret
from kubeshard.core.names import is_dns_label, is_dns_subdomain, is_label_key, is_label_value
from kubeshard.core.objects import PartialObject, form_of
from kubeshard.core.owners import with_owner


class GadgetSpec(Struct):
    replicas: int = 0


class Gadget(KubeObject, group="example.com", version="v1"):
    spec: GadgetSpec = field(default_factory=GadgetSpec)


class Realm(KubeObject, group="example.com", version="v1", namespaced=False):
    pass


def test_what_is_encoded_names_its_kind():
    gadget = Gadget(metadata=ObjectMeta(name="a", namespace="n"), spec=GadgetSpec(replicas=2))
    expected = {
        "apiVersion": "example.com/v1",
        "kind": "Gadget",
        "metadata": {"name": "a", "namespace": "n"},
        "spec": {"replicas": 2},
    }
    assert json.loads(encode(gadget)) == to_dict(gadget) == expected
    assert json.loads(encode(Realm())) == {"apiVersion": "example.com/v1", "kind": "Realm", "metadata": {}}


def test_a_released_lease_encodes_its_empty_holder():
    assert to_dict(Lease(spec=LeaseSpec(holder_identity="")))["spec"] == {"holderIdentity": ""}


def test_decoding_skips_what_the_class_does_not_declare():
    gadget = decode(
        form_of(Gadget), b'{"kind":"Gadget","metadata":{"name":"a","managedFields":[{}]},"status":{"x":1}}'
    )
    assert gadget == Gadget(metadata=ObjectMeta(name="a"))


def test_the_metadata_form_reads_nothing_but_metadata():
    partial = decode(metadata_only(Gadget), b'{"metadata":{"name":"a"},"spec":{"replicas":"no"}}')
    assert partial == metadata_only(Gadget).type(metadata=ObjectMeta(name="a"))


def test_an_object_that_does_not_fit_its_class_still_tells_who_it_is():
    with pytest.raises(UndecodableObject, match=r"n/a does not fit Gadget: .*\$.spec.replicas") as caught:
        decode(form_of(Gadget), b'{"metadata":{"name":"a","namespace":"n"},"spec":{"replicas":"no"}}')
    assert caught.value.key == ("n", "a")
    with pytest.raises(UndecodableObject) as caught:
        decode(form_of(Gadget), b'{"metadata":[]}')
    assert caught.value.key is None


def test_the_transition_time_of_a_condition_moves_only_with_its_status():
    first = set_condition((), Condition(type="Ready", status="False", reason="A"), "t1")
    assert get_condition(first, "Ready").last_transition_time == "t1"
    reworded = set_condition(first, Condition(type="Ready", status="False", reason="B"), "t2")
    assert get_condition(reworded, "Ready").last_transition_time == "t1"
    turned = set_condition(reworded, Condition(type="Ready", status="True", reason="B"), "t3")
    assert get_condition(turned, "Ready").last_transition_time == "t3"
    assert set_condition(turned, Condition(type="Ready", status="True", reason="B"), "t4") == turned


def test_a_condition_encodes_its_empty_message():
    assert b'"message":""' in msgspec.json.encode(Condition(type="Ready"))


OWNER = Gadget(metadata=ObjectMeta(name="owner", namespace="n", uid="u1"))


def test_one_controller_any_number_of_owners():
    meta = with_owner(ObjectMeta(name="c", namespace="n"), OWNER, controller=True)
    assert controller_of(meta) == controller_reference(OWNER)
    other = Gadget(metadata=ObjectMeta(name="other", namespace="n", uid="u2"))
    with pytest.raises(AlreadyControlled, match="n/c is already controlled by Gadget owner"):
        with_owner(meta, other, controller=True)
    both = with_owner(meta, other)
    assert controller_of(both).uid == "u1"
    assert [owner.uid for owner in both.owner_references] == ["u1", "u2"]
    assert with_owner(meta, OWNER, controller=True) == meta


@pytest.mark.parametrize("target", ["Gadget", None, GadgetSpec, Gadget()])
def test_what_is_no_kind_is_a_type_error_that_says_so(target):
    with pytest.raises(TypeError, match="is not a kind"):
        form_of(target)


def test_a_kind_without_a_version_is_refused_where_it_is_declared():
    with pytest.raises(TypeError, match="Shop: a kind needs its version"):

        class Shop(KubeObject, group="example.com"):
            pass


def test_the_version_of_an_owner_does_not_matter():
    old = msgspec.structs.replace(controller_reference(OWNER), api_version="example.com/v1alpha1")
    meta = ObjectMeta(namespace="n", owner_references=(old,))
    assert with_owner(meta, OWNER, controller=True).owner_references == (controller_reference(OWNER),)


@pytest.mark.parametrize("namespace", ["", "elsewhere"])
def test_a_namespaced_owner_owns_only_within_its_namespace(namespace):
    with pytest.raises(ValueError, match="cannot own"):
        with_owner(ObjectMeta(name="c", namespace=namespace), OWNER)
    realm = Realm(metadata=ObjectMeta(name="r", uid="u3"))
    assert with_owner(ObjectMeta(name="c", namespace=namespace), realm).owner_references == (
        owner_reference(realm),
    )


def test_an_object_never_stored_cannot_own():
    with pytest.raises(ValueError, match="has no uid"):
        owner_reference(Gadget(metadata=ObjectMeta(name="a")))


def test_names_follow_the_api_servers_rules():
    assert is_dns_label("a-1")
    assert not is_dns_label("a" * 64)
    assert is_dns_subdomain("a.b-c.d")
    assert not any(map(is_dns_subdomain, ["", "A", "a..b", "-a", "a_b", "a." * 127 + "a"]))
    assert all(map(is_label_value, ["", "a", "A.b_c-1", "x" * 63]))
    assert not any(map(is_label_value, ["-", "a-", "a/b", "x" * 64, "a\n"]))
    assert all(map(is_label_key, ["a", "A_b.c", "example.com/a"]))
    assert not any(map(is_label_key, ["", "/a", "a/", "A.com/a", "a/b/c"]))


def test_keys_of_one_name_in_several_clusters_are_several_and_those_at_home_are_plain_pairs() -> None:
    home = Key("shop", "web")
    eu = home.at("eu")
    assert len({home, eu, home.at("us"), Key("shop", "web").at("eu")}) == 3
    assert (eu.namespace, eu.name, eu.cluster, home.cluster) == ("shop", "web", "eu", "")
    assert isinstance(eu, Key)
    assert eu != home
    assert home == ("shop", "web")
    assert home.at("") is home
    assert eu.at("") == home
    assert eu.at("us") == home.at("us")
    assert [str(key) for key in (home, eu, Key("", "node").at("eu"))] == [
        "shop/web",
        "shop/web@eu",
        "node@eu",
    ]
    assert repr(eu) == "Key(namespace='shop', name='web').at('eu')"
    assert sorted([home.at("us"), eu, Key("shop", "app").at("us"), home]) == [
        Key("shop", "app").at("us"),
        home,
        eu,
        home.at("us"),
    ]
    assert pickle.loads(pickle.dumps(eu)) == eu


def test_the_creation_timestamp_is_also_a_time() -> None:
    assert ObjectMeta().created is None
    made = ObjectMeta(creation_timestamp="2026-01-02T03:04:05Z")
    assert made.created == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert b"created" not in encode(Gadget(metadata=made))


def test_what_a_secret_contains_is_not_in_its_text():
    class Part(KubeObject, version="v1", kind="Secret", plural="secrets"):
        data: dict[str, str] | None = None

    shown = f"{Secret(data={'a': 'hunter2'}, string_data={'b': 'hunter2'})!r} {Part(data={'c': 'hunter2'})}"
    assert "hunter2" not in shown
    assert all(f"{key!r}: '...'" in shown for key in "abc")
    assert "'1'" in repr(ConfigMap(data={"a": "1"}))


@pytest.mark.regression
def test_what_kubectl_has_applied_is_not_in_the_text_of_an_object():
    """A Secret that kubectl has applied has its values there once more."""
    last = "kubectl.kubernetes.io/last-applied-configuration"
    meta = ObjectMeta(name="s", annotations={last: '{"data":{"a":"hunter2"}}', "other": "kept"})
    for shown in (repr(Secret(metadata=meta)), repr(PartialObject(metadata=meta)), repr(meta)):
        assert "hunter2" not in shown
        assert f"{last!r}: '...'" in shown
        assert "'other': 'kept'" in shown
