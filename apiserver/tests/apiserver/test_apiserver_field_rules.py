"""The table of field rules mentions only types and fields that exist."""

import pytest

from kubeshard_apiserver.resources.field_rules import RULES, changed_errors, field_rule_errors, field_rules
from kubeshard_apiserver.schema import name_formats
from kubeshard_apiserver.schema.catalog import struct


@pytest.mark.parametrize("type_", field_rules())
def test_every_fact_is_about_a_field_of_its_type(type_):
    fields = struct(type_.partition("#")[0]).fields
    for field_rule in field_rules()[type_]:
        assert fields.keys() >= set(field_rule.fields.split())
        assert not field_rule.form or callable(getattr(name_formats, field_rule.form))
        assert not field_rule.rule or field_rule.rule in RULES
        assert not field_rule.of or field_rule.of in field_rules()


def test_a_fact_of_a_list_holds_for_each_of_its_items_in_order():
    spec = {"fsGroup": -1, "supplementalGroups": [0, -2, 2**31], "sysctls": [{"name": "a"}, {}]}
    assert [error.path for error in field_rule_errors("core.v1.PodSecurityContext", "spec", spec)] == [
        "spec.fsGroup",
        "spec.supplementalGroups[1]",
        "spec.supplementalGroups[2]",
        "spec.sysctls[1].name",
    ]


def test_of_a_missing_field_nothing_is_said_but_that_it_is_required():
    (error,) = field_rule_errors("core.v1.ContainerPort", "ports[0]", {"protocol": "TCP"})
    assert str(error) == "ports[0].containerPort: Required value"


def test_a_unique_field_differs_from_those_of_the_items_before_it_and_from_no_other_list():
    items = [{"name": "a"}, {"name": "b"}, {"name": "a"}]
    (error,) = field_rule_errors("core.v1.PodSpec#claims", "spec", {"resourceClaims": items})
    assert str(error) == 'spec.resourceClaims[2].name: Duplicate value: "a"'
    assert not field_rule_errors("core.v1.PodSpec#claims", "spec", {"resourceClaims": items[:2]})


def test_a_list_has_unique_items_of_its_own_in_every_struct():
    terms = [{"key": "a", "values": ["x"]}, {"key": "b", "values": ["x", "y", "x"]}]
    (error,) = field_rule_errors("core.v1.TopologySelectorTerm", "", {"matchLabelExpressions": terms})
    assert error.path == "matchLabelExpressions[1].values[2]"


def test_of_a_list_with_too_many_items_nothing_else_is_said():
    ports = [{"name": "same"}] * 20001
    (error,) = field_rule_errors("discovery.v1.EndpointSlice", "", {"addressType": "IPv4", "ports": ports})
    assert str(error) == "ports: Too many: 20001: must have at most 20000 items"
    kinds = {"policyTypes": ["Ingress", "Egress", "x"]}
    (error,) = field_rule_errors("networking.v1.NetworkPolicySpec", "spec", kinds)
    assert error.message.endswith("may not specify more than two policyTypes")


def test_a_fact_that_stops_is_the_last_word_on_its_struct():
    assert [
        error.path
        for path in ("", "/..")
        for error in field_rule_errors(
            "core.v1.HostPathVolumeSource", "hostPath", {"path": path, "type": "x"}
        )
    ] == ["hostPath.path", "hostPath.path", "hostPath.type"]


def test_a_blank_text_is_right_only_where_that_is_said():
    assert not field_rule_errors("apps.v1.StatefulSetSpec#service", "spec", {"serviceName": ""})
    assert field_rule_errors("apps.v1.StatefulSetSpec#service", "spec", {"serviceName": "A"})
    assert field_rule_errors("discovery.v1.Endpoint", "endpoints[0]", {"hostname": ""})


def test_a_whole_object_has_paths_without_a_beginning():
    (error,) = field_rule_errors("discovery.v1.EndpointSlice", "", {"addressType": "IPX"})
    assert str(error) == ('addressType: Unsupported value: "IPX": supported values: "FQDN", "IPv4", "IPv6"')
    (changed,) = changed_errors("", ("data", "kind"), {"data": 1}, {"data": 2})
    assert str(changed) == "data: Invalid value: 1: field is immutable"
