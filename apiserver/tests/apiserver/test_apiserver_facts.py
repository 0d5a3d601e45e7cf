"""The table of facts about fields speaks of types and fields that there are."""

import pytest

from kubeshard_apiserver.resources import pod_names
from kubeshard_apiserver.resources.facts import changed_errors, fact_errors, facts
from kubeshard_apiserver.schema.catalog import struct


@pytest.mark.parametrize("type_", facts())
def test_every_fact_is_about_a_field_of_its_type(type_):
    fields = struct(type_.partition("#")[0]).fields
    for fact in facts()[type_]:
        assert fields.keys() >= set(fact.fields.split())
        assert not fact.form or callable(getattr(pod_names, fact.form))
        assert not fact.of or fact.of in facts()


def test_a_fact_of_a_list_holds_for_each_of_its_items_in_order():
    spec = {"fsGroup": -1, "supplementalGroups": [0, -2, 2**31], "sysctls": [{"name": "a"}, {}]}
    assert [error.path for error in fact_errors("core.v1.PodSecurityContext", "spec", spec)] == [
        "spec.fsGroup",
        "spec.supplementalGroups[1]",
        "spec.supplementalGroups[2]",
        "spec.sysctls[1].name",
    ]


def test_of_a_missing_field_nothing_is_said_but_that_it_is_required():
    (error,) = fact_errors("core.v1.ContainerPort", "ports[0]", {"protocol": "TCP"})
    assert str(error) == "ports[0].containerPort: Required value"


def test_a_whole_object_has_paths_without_a_beginning():
    (error,) = fact_errors("discovery.v1.EndpointSlice", "", {"addressType": "IPX"})
    assert str(error) == ('addressType: Unsupported value: "IPX": supported values: "FQDN", "IPv4", "IPv6"')
    (changed,) = changed_errors("", ("data", "kind"), {"data": 1}, {"data": 2})
    assert str(changed) == "data: Invalid value: 1: field is immutable"
